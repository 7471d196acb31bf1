"""Verdicts on numbers whose truth is known, and how often they are wrong."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, wilcoxon

from rectifiers.claims.claims import FEWEST, Criterion, Region
from rectifiers.claims.judge import (
    Verdict,
    combine_verdicts,
    decide,
    interval_of,
    judge,
    median_interval,
    share_interval,
)
from rectifiers.results.statistics import mean_of, t_interval


def region(side: str, *bounds: float) -> Region:
    return Region(side, bounds)


LOWER = Criterion(region("below", -0.2), region("above", 0.0))
SAME = Criterion(region("within", -0.6, 0.6), region("outside", -0.6, 0.6))
MOST = Criterion(region("above", 0.5), region("below", 0.5))
SPREAD = (-0.3, -0.1, 0.0, 0.1, 0.3)


def around(centre: float) -> list[float]:
    return [centre + each for each in SPREAD]


@pytest.mark.parametrize(
    ("centre", "verdict"),
    [
        (-1.0, "supported"),
        (-0.3, "inconclusive"),
        (0.0, "inconclusive"),
        (0.1, "inconclusive"),
        (1, "contradicted"),
    ],
)
def test_a_direction_is_judged_by_its_whole_interval(centre: float, verdict: str) -> None:
    found = judge(around(centre), 5, "mean", LOWER)
    assert found.verdict == verdict
    assert (found.n, found.effect) == (5, pytest.approx(centre))
    assert (found.low, found.high) == pytest.approx(
        (mean_of(around(centre)).low, mean_of(around(centre)).high)
    )


def test_an_effect_smaller_than_what_matters_is_none_where_an_effect_can_be_none() -> None:
    small = [-0.1, -0.11, -0.09, -0.1, -0.1]
    assert judge(small, 5, "mean", LOWER).verdict is Verdict.INCONCLUSIVE  # the level of one arm
    difference, ratio = (
        replace(LOWER, none=0.0),
        Criterion(region("above", 1.2), region("below", 1.0), 1.0),
    )
    assert judge(small, 5, "mean", difference).verdict is Verdict.NO_EFFECT
    assert (
        judge([0.15, 0.16, 0.14, 0.15, 0.15], 5, "mean", ratio.in_logs()).verdict
        is Verdict.NO_EFFECT
    )
    assert (
        judge([0.21, 0.22, 0.20, 0.21, 0.21], 5, "mean", ratio.in_logs()).verdict
        is Verdict.SUPPORTED
    )
    assert judge(around(-0.1), 5, "mean", difference).verdict is Verdict.INCONCLUSIVE
    not_worse = Criterion(region("below", 0.6), region("above", 0.6), 0.0)
    assert not_worse.negligible() is None  # that there is no effect supports it


@pytest.mark.parametrize(
    ("centre", "verdict"),
    [
        (0, "supported"),
        (0.5, "inconclusive"),
        (-0.8, "inconclusive"),
        (2, "contradicted"),
        (-2, "contradicted"),
    ],
)
def test_equivalence_is_two_one_sided_tests(centre: float, verdict: str) -> None:
    assert judge(around(centre), 5, "mean", SAME).verdict == verdict


def test_equivalence_uses_the_interval_of_90_percent_and_shows_that_of_95() -> None:
    values = around(0.37)
    ninety, ninety_five = t_interval(values, 0.90), t_interval(values, 0.95)
    assert ninety[1] < 0.6 < ninety_five[1]
    found = judge(values, 5, "mean", SAME)
    assert (found.verdict, found.high) == (Verdict.SUPPORTED, ninety_five[1])


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1] * 6, Verdict.SUPPORTED),
        ([0] * 6, Verdict.CONTRADICTED),
        ([1] * 5 + [0], Verdict.INCONCLUSIVE),
    ],
)
def test_a_share_is_judged_by_its_exact_interval(values: list[float], verdict: Verdict) -> None:
    found = judge(values, 6, "share", MOST)
    assert found.verdict is verdict
    exact = binomtest(sum(values), 6).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))


def test_the_interval_of_a_median_is_of_order_statistics() -> None:
    assert median_interval([6.0, 1, 3, 2, 5, 4], 0.95) == (1, 6)  # all but 2/64
    assert median_interval(list(range(10)), 0.95) == (1, 8)  # the table of the sign test: 2 of 10
    assert median_interval([1.0, 2, 3, 4, 5], 0.95) == (
        -math.inf,
        math.inf,
    )  # 2/32 is more than 5 %
    low, high = median_interval(list(range(20)), 0.95)
    assert (low, high) == (5, 14)  # 6th and 15th


def test_ties_and_censored_values_do_not_make_a_median_significant() -> None:
    criterion = Criterion(region("above", 1.0), region("below", 0.0))
    assert judge([0.0] * 6, 6, "median", criterion).verdict is Verdict.INCONCLUSIVE
    assert judge([13.0] * 6, 6, "median", criterion).verdict is Verdict.SUPPORTED
    assert judge([-1.0] * 6, 6, "median", criterion).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("statistic", sorted(FEWEST))
def test_too_few_seeds_are_no_verdict(statistic: str) -> None:
    fewest = FEWEST[statistic]
    assert judge([], 6, statistic, MOST).verdict is Verdict.NOT_RUN
    few = judge([1.0] * (fewest - 1), fewest - 1, statistic, MOST)
    assert (few.verdict, few.n, few.low) == (Verdict.TOO_FEW, fewest - 1, -math.inf)
    assert (
        judge([1.0] * 9, 10, statistic, MOST).verdict is Verdict.TOO_FEW
    )  # one that was planned is missing


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        judge([1.0, math.nan, 1, 1, 1], 5, "mean", LOWER)


def test_a_claim_is_supported_where_all_its_tests_are() -> None:
    s, n, c, few, no = (
        Verdict(v) for v in ("supported", "inconclusive", "contradicted", "too few runs", "not run")
    )
    for parts, whole in (
        ([s, s], s),
        ([s, n], n),
        ([s, n, c], c),
        ([c, few], few),
        ([s, no], few),
        ([no, no], no),
    ):
        assert combine_verdicts(parts) is whole


DRAWS = 4000


def share_of(verdict: Verdict, statistic: str, criterion: Criterion, values: np.ndarray) -> float:
    verdicts = [
        decide(criterion, functools.partial(interval_of, list(map(float, row)), statistic))
        for row in values
    ]
    return verdicts.count(verdict) / len(verdicts)


@pytest.mark.process
def test_a_claim_that_just_does_not_hold_is_found_supported_as_often_as_stated() -> None:
    """At the worst place for it, the bound itself. A share of 4,000 has a standard deviation of
    0.0025 (0.0034 at 5 %):

    the bounds below are four of them, so that this test fails by chance in less than one of 10,000
    cases."""
    draw = np.random.default_rng(0)
    at_bound = draw.normal(-0.2, 1, (DRAWS, 5))
    assert share_of(Verdict.SUPPORTED, "mean", LOWER, at_bound) == pytest.approx(
        LOWER.chance(), abs=0.01
    )
    assert share_of(Verdict.CONTRADICTED, "mean", LOWER, at_bound + 0.2) == pytest.approx(
        0.025, abs=0.01
    )
    at_margin = draw.normal(0.6, 0.05, (DRAWS, 10))
    assert share_of(Verdict.SUPPORTED, "mean", SAME, at_margin) == pytest.approx(0.05, abs=0.014)
    assert SAME.chance() == pytest.approx(0.1 / 2)
    skewed = draw.exponential(1, (DRAWS, 6)) - math.log(2)  # of median 0, and far from normal
    median = Criterion(region("above", 0.0), region("below", 0.0))
    assert share_of(Verdict.SUPPORTED, "median", median, skewed) == pytest.approx(1 / 64, abs=0.008)
    fair = draw.integers(0, 2, (DRAWS, 6))
    assert share_of(Verdict.SUPPORTED, "share", MOST, fair) == pytest.approx(1 / 64, abs=0.008)


def test_an_effect_that_is_there_is_found() -> None:
    draw = np.random.default_rng(1)
    assert share_of(Verdict.SUPPORTED, "mean", LOWER, draw.normal(-2.2, 1, (400, 10))) > 0.99
    assert share_of(Verdict.SUPPORTED, "mean", SAME, draw.normal(0, 0.4, (400, 10))) > 0.9


def test_the_sign_tests_interval_agrees_with_scipys_rank_test_where_signs_are_all_that_counts() -> (
    None
):
    values = [1.0, 1, 1, 1, 1, 1]
    assert (median_interval(values, 0.95)[0] > 0) == (wilcoxon(values).pvalue < 0.05)
    assert share_interval(1, 2, 0.95) == pytest.approx(
        tuple(binomtest(1, 2).proportion_ci(0.95, "exact"))
    )


def with_moments(n: int, mean: float, sd: float) -> list[float]:
    """Return n values of exactly this mean and standard deviation."""
    shape = np.linspace(-1, 1, n)
    return [float(mean + sd * x / shape.std(ddof=1)) for x in shape]


@pytest.mark.parametrize(
    ("mean", "criterion", "would_be"),
    [
        (-0.7, replace(LOWER, none=0.0), Verdict.SUPPORTED),
        (0.3, replace(LOWER, none=0.0), Verdict.CONTRADICTED),
        (-0.05, replace(LOWER, none=0.0), Verdict.NO_EFFECT),
        (0.01, replace(LOWER, none=0.0), Verdict.NO_EFFECT),  # long before it is contradicted
        (-0.3, SAME, Verdict.SUPPORTED),
    ],
)
def test_seeds_to_decide_is_the_smallest_number_with_a_verdict(
    mean: float, criterion: Criterion, would_be: Verdict
) -> None:
    found = judge(with_moments(6, mean, 1.0), 6, "mean", criterion)
    assert (found.verdict, found.would_be) == (Verdict.INCONCLUSIVE, would_be)
    assert found.needed is not None
    for n, verdict in ((found.needed - 1, Verdict.INCONCLUSIVE), (found.needed, would_be)):
        assert judge(with_moments(n, mean, 1.0), n, "mean", criterion).verdict is verdict


def test_seeds_to_decide_of_a_share_and_a_median_keep_the_observed_distribution() -> None:
    share = judge([1, 1, 1, 1, 1, 0], 6, "share", MOST)
    assert (share.verdict, share.needed) == (Verdict.INCONCLUSIVE, 12)
    assert judge([1] * 10 + [0] * 2, 12, "share", MOST).verdict is Verdict.SUPPORTED
    median = judge([0.4, 0.6, 0.7, 0.8, 0.9, 1.0], 6, "median", MOST)
    assert (median.would_be, median.needed) == (Verdict.SUPPORTED, 9)  # one of nine may be below


def test_no_number_of_seeds_decides_an_effect_between_the_bounds() -> None:
    for mean in (-0.19, -0.1, -0.01):  # of one arm, where no effect can be none
        found = judge(with_moments(6, mean, 1.0), 6, "mean", LOWER)
        assert (found.would_be, found.needed) == (Verdict.INCONCLUSIVE, None)
    near = judge(with_moments(6, -0.2001, 1.0), 6, "mean", LOWER)
    assert (near.would_be, near.needed) == (Verdict.SUPPORTED, None)  # more than MOST_SEEDS
