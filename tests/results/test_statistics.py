import math

import pytest
from scipy import stats

from rectifiers.results.statistics import (
    error_interval_pct,
    holm,
    mcnemar,
    mean_of,
    median_interval,
    zero_mean_p,
)


@pytest.mark.parametrize(
    ("errors", "seen"), [(0, 450), (12, 450), (225, 450), (450, 450), (3000, 50000)]
)
def test_the_interval_is_wilsons(errors: int, seen: int) -> None:
    expected = stats.binomtest(errors, seen).proportion_ci(0.95, method="wilson")
    expected = (100 * expected.low, 100 * expected.high)
    assert error_interval_pct(errors, seen) == pytest.approx(expected, abs=1e-9)


def test_the_interval_of_a_mean_is_students() -> None:
    values = [2.0, 4.0, 6.0, 8.0]
    expected = stats.t.interval(0.95, 3, loc=5, scale=stats.sem(values))
    found = mean_of(values)
    assert (found.n, found.mean) == (4, 5)
    assert (found.low, found.high) == pytest.approx(expected)
    single = mean_of([3.0])
    assert math.isnan(single.low + single.high)
    assert (found.excludes_zero, single.excludes_zero) == (True, False)


def test_median_interval_is_of_order_statistics() -> None:
    assert median_interval([6.0, 1, 3, 2, 5, 4], 0.95) == (1, 6)  # all but 2/64
    assert median_interval(list(range(10)), 0.95) == (1, 8)  # the table of the sign test: 2 of 10
    # 2/32 is more than 5 %
    assert median_interval([1.0, 2, 3, 4, 5], 0.95) == (-math.inf, math.inf)
    low, high = median_interval(list(range(20)), 0.95)
    assert (low, high) == (5, 14)  # 6th and 15th


def test_mcnemar_is_an_exact_binomial_test() -> None:
    hits = [True] * 50 + [True] * 9 + [False] * 2
    others = [True] * 50 + [False] * 9 + [True] * 2
    first, second, p = mcnemar(hits, others)
    assert (first, second) == (9, 2)
    assert p == pytest.approx(stats.binomtest(2, 11, 0.5).pvalue)
    assert mcnemar([True], [True]) == (0, 0, 1.0)
    assert mcnemar([True, False], [False, True]) == (1, 1, 1.0)


def test_holm_multiplies_by_the_hypotheses_left() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_mean_is_tested_by_student() -> None:
    values = [1.0, 2.0, 2.5, -0.5]
    assert zero_mean_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert zero_mean_p([2.0, 2.0]) == zero_mean_p([2.0]) == 1
