import pytest
from scipy.stats import binomtest

from rectifiers.reporting.statistics import error_interval_pct


@pytest.mark.parametrize(("errors", "seen"), [(0, 450), (12, 450), (225, 450), (450, 450), (3000, 50000)])
def test_the_interval_is_wilsons(errors: int, seen: int) -> None:
    expected = binomtest(errors, seen).proportion_ci(0.95, method="wilson")
    assert error_interval_pct(errors, seen) == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-9)
