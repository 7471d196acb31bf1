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
