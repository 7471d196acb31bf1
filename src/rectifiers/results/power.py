"""How likely a number of seeds was to decide, with the spread that was seen, and how many would
have been enough."""

import math
from collections.abc import Callable, Sequence
from statistics import stdev

import numpy as np

from rectifiers.results.statistics import t_quantile

WANTED = 0.8  # the power that a study is planned for
MOST_SEEDS = 10_000
POINTS = 200  # of an average over what an experiment finds
NINE_IN_TEN = (
    0.9  # of seeds, for a share or a median: what an effect is taken to be that ought to be found
)


def of_mean(
    values: Sequence[float], level: float, below: float, above: float, floor: float = 0.0
) -> Callable[[int], float]:
    """Return the chance, by the number of seeds, that a mean's interval lies within a region around
    the truth.

    It is that of two one-sided t tests with the spread of `values`, averaged over what an
    experiment may find of it.
    below, above: how far the region reaches to both sides of the truth, possibly infinitely far.
    floor: how far from the region's borders the mean of as many seeds as `values` has to stay as
        well; with n times as many it is less by sqrt(n).
    """
    from scipy.special import gammaincinv, ndtr

    spread, floor_of_one = stdev(values), floor * math.sqrt(len(values))
    levels = (np.arange(POINTS) + 0.5) / POINTS

    def power(n: int) -> float:
        if spread == 0:
            return float(floor_of_one / math.sqrt(n) < min(below, above))
        found = np.sqrt(
            2 * gammaincinv((n - 1) / 2, levels) / (n - 1)
        )  # quantiles of the spread that n seeds show
        half = np.maximum(t_quantile(n - 1, level) * found, floor_of_one / spread)
        low, high = (side * math.sqrt(n) / spread - half for side in (below, above))
        return float(np.clip(ndtr(high) - ndtr(-low), 0, None).mean())

    return power


def of_sign_test(level: float) -> Callable[[int], float]:
    """Return the chance, by the number of seeds, that a median lies beyond a bound which nine in
    ten seeds pass."""
    from scipy.special import bdtr

    def power(n: int) -> float:
        allowed = max((k for k in range(n // 2) if 2 * bdtr(k, n, 0.5) <= 1 - level), default=None)
        return 0.0 if allowed is None else float(bdtr(allowed, n, 1 - NINE_IN_TEN))

    return power


def of_share(
    bound: float, interval: Callable[[Sequence[float], float], tuple[float, float]], level: float
) -> Callable[[int], float]:
    """Return the chance, by the number of seeds, that a share's interval lies above `bound` where
    it is nine in ten."""
    from scipy.special import bdtrc

    def power(n: int) -> float:
        fewest = next(
            (k for k in range(n + 1) if interval([1.0] * k + [0.0] * (n - k), level)[0] > bound),
            None,
        )
        return (
            0.0
            if fewest is None
            else 1.0
            if fewest == 0
            else float(bdtrc(fewest - 1, n, NINE_IN_TEN))
        )

    return power


def seeds_for(power: Callable[[int], float], fewest: int) -> int | None:
    """Return the smallest number of seeds, from `fewest` on, at which `power` is WANTED; None
    beyond MOST_SEEDS."""
    low, high = fewest - 1, fewest
    while power(high) < WANTED:
        low, high = high, 2 * high
        if low >= MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= WANTED else (middle, high)
    return high
