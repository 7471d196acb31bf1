"""Intervals for what was measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


def error_interval_pct(errors: int, num_images: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval, in percent, of the rate of `errors` on `num_images`; it
    speaks of the choice of test images for one network, not of the spread over seeds."""
    from scipy.stats import binomtest  # here and not above: it takes half a second

    interval = binomtest(errors, num_images).proportion_ci(0.95, method="wilson")
    return 100 * float(interval.low), 100 * float(interval.high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm, 1979): each is below a level with at most
    that probability that any of the true hypotheses is rejected."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, (len(p_values) - rank) * p_values[i])
        corrected[i] = min(1.0, largest)
    return corrected


@dataclass(frozen=True)
class Mean:
    """A mean over n runs with its 95 % interval (Student's t; NaN for a single run, which tells
    nothing of spread)."""

    n: int
    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def signed(self) -> str:
        """Return `-1.20 (-1.50 to -0.90)`."""
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def t_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return Student's interval of the mean of at least two values."""
    from scipy.special import stdtrit  # here and not above: a finished run's table needs no scipy

    n, mean = len(values), fmean(values)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * stdev(values) / math.sqrt(n)
    return mean - half, mean + half


def median_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return the exact interval of the median between two order statistics, for any distribution
    and for values of which only a bound is known (a loss that was not reached)."""
    from scipy.stats import quantile_test

    low, high = quantile_test(list(values), p=0.5).confidence_interval(level)
    return (-math.inf, math.inf) if math.isnan(low) else (float(low), float(high))


def share_interval(ones: float, n: int, level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's exact interval of a share of n."""
    from scipy.special import betaincinv  # sooner imported than scipy.stats, by half a second

    tail = (1 - level) / 2
    low = 0.0 if ones == 0 else float(betaincinv(ones, n - ones + 1, tail))
    high = 1.0 if ones == n else float(betaincinv(ones + 1, n - ones, 1 - tail))
    return low, high


def interval_of(values: Sequence[float], statistic: str, level: float) -> tuple[float, float]:
    """Return the interval of a `mean`, a `median`, or the `share` of ones among the values."""
    if statistic == "mean":
        return t_interval(values, level)
    if statistic == "median":
        return median_interval(values, level)
    return share_interval(sum(values), len(values), level)


def zero_mean_p(values: Sequence[float]) -> float:
    """Return the two-sided p of Student's test that the mean is 0; 1 where equal values, or a
    single one, tell nothing of their spread."""
    from scipy.special import stdtr  # here and not above: see `t_interval`

    n = len(values)
    spread = stdev(values) if n > 1 else 0.0
    if not spread:
        return 1.0
    return 2 * float(stdtr(n - 1, -abs(fmean(values)) * math.sqrt(n) / spread))


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of at least one value with its interval."""
    low, high = t_interval(values, 0.95) if len(values) > 1 else (math.nan, math.nan)
    return Mean(len(values), fmean(values), low, high)


def mcnemar(one: Sequence[bool], other: Sequence[bool]) -> tuple[int, int, float]:
    """Return McNemar's exact test of two networks on the same images: (only the first right, only
    the second right, two-sided p)."""
    from scipy.stats import binomtest

    first = sum(a and not b for a, b in zip(one, other, strict=True))
    second = sum(b and not a for a, b in zip(one, other, strict=True))
    p = binomtest(first, first + second).pvalue if first + second else 1.0
    return first, second, float(p)
