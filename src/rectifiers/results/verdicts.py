"""From measured numbers to a verdict: an effect, its interval over seeds, and a criterion that
stood there before."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, median, stdev

from rectifiers.results.statistics import t_interval, t_quantile

LEVEL = 0.95
EQUIVALENCE_LEVEL = 0.90  # two one-sided tests at 5 % are one interval of 90 %
MOST_SEEDS = 1_000  # that are worth a plan
Interval = Callable[[float], tuple[float, float]]  # level -> (low, high)


class Verdict(StrEnum):
    """What the runs say of a claim, in the order of CLAIMS.md."""

    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"
    NO_EFFECT = "no effect that matters"
    SUPPORTED = "supported"
    TOO_FEW = "too few runs"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Statistic:
    """An estimate with its interval, and the fewest values for which that interval is one.

    interval: (values, level) -> (low, high).
    """

    estimate: Callable[[Sequence[float]], float]
    interval: Callable[[Sequence[float], float], tuple[float, float]]
    fewest: int


def median_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return the exact interval of the median between two order statistics, that of the sign test.

    It holds for any distribution, and for values of which only a bound is known (a loss that was
    not reached)."""
    from scipy.special import bdtr

    ordered, n = sorted(values), len(values)
    out = max((k for k in range(n // 2) if 2 * bdtr(k, n, 0.5) <= 1 - level), default=None)
    return (-math.inf, math.inf) if out is None else (ordered[out], ordered[n - 1 - out])


def share_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's exact interval of the share of ones among zeros and ones."""
    return _share_interval(sum(values), len(values), level)


def _share_interval(ones: float, n: int, level: float) -> tuple[float, float]:
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if ones == 0 else float(betaincinv(ones, n - ones + 1, tail))
    high = 1.0 if ones == n else float(betaincinv(ones + 1, n - ones, 1 - tail))
    return low, high


STATISTICS = {
    "mean": Statistic(fmean, t_interval, 5),
    "median": Statistic(median, median_interval, 6),
    "share": Statistic(fmean, share_interval, 6),
}


@dataclass(frozen=True)
class Region:
    """A part of the line: `above` or `below` one bound, `within` or `outside` two."""

    side: str
    bounds: tuple[float, ...]

    def spans(self, left: float = -math.inf, right: float = math.inf) -> list[tuple[float, float]]:
        """Return what of the line from `left` to `right` lies in the region."""
        first, last = self.bounds[0], self.bounds[-1]
        return {
            "above": [(first, right)],
            "below": [(left, first)],
            "within": [(first, last)],
            "outside": [(left, first), (last, right)],
        }[self.side]

    def holds(self, interval: tuple[float, float]) -> bool:
        """Return whether the whole interval lies inside, clear of the bounds."""
        return any(low < interval[0] and interval[1] < high for low, high in self.spans())

    def in_logs(self) -> "Region":
        """Return the region of the logarithm of a number that is to lie in this one."""
        return Region(self.side, tuple(map(math.log, self.bounds)))

    def __str__(self) -> str:
        return f"{self.side} {' to '.join(f'{bound:g}' for bound in self.bounds)}"


@dataclass(frozen=True)
class Criterion:
    """When a claim is supported or contradicted, in the units of the effect.

    supported: above or below (the 95 % interval lies beyond the bound, the smallest effect of
        interest), or within (equivalence, by two one-sided tests at 5 %).
    contradicted: above, below, or outside (the 95 % interval lies beyond one of two bounds).
    none: the effect of no effect, 0 for a difference; None for the level of one arm, which can have
    none."""

    supported: Region
    contradicted: Region
    none: float | None = None

    def negligible(self) -> Region | None:
        """Return the effects too small to matter: nearer to none than the bound, on both sides;
        None without such."""
        if self.none is None or self.supported.side not in ("above", "below"):
            return None
        (bound,) = self.supported.bounds
        reach = bound - self.none if self.supported.side == "above" else self.none - bound
        return Region("within", (self.none - reach, self.none + reach)) if reach > 0 else None

    def chance(self) -> float:
        """Return the largest probability that a claim which does not hold, if only just, is found
        supported."""
        return (1 - self.level_of_support()) / 2

    def level_of_support(self) -> float:
        """Return the level of the interval that has to lie in `supported`."""
        return EQUIVALENCE_LEVEL if self.supported.side == "within" else LEVEL

    def bounds(self) -> tuple[float, ...]:
        return self.supported.bounds + self.contradicted.bounds

    def in_logs(self) -> "Criterion":
        """Return the criterion of the logarithm of an effect that is a ratio."""
        none = None if self.none is None else math.log(self.none)
        return Criterion(self.supported.in_logs(), self.contradicted.in_logs(), none)

    def __str__(self) -> str:
        return f"supported {self.supported}, contradicted {self.contradicted}"


@dataclass(frozen=True)
class Finding:
    """An effect over `n` seeds (NaN where there is none) with its 95 % interval, and what follows
    from it.

    needed: of an inconclusive effect, the seeds that would decide at the observed effect and
    spread, and would_be the verdict that they would give. needed is None where that takes more than
    MOST_SEEDS; would_be is inconclusive where no number of seeds would decide, because the effect
    lies at a bound or between the bounds."""

    verdict: Verdict
    n: int = 0
    effect: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    needed: int | None = None
    would_be: Verdict = Verdict.INCONCLUSIVE


def judge(values: Sequence[float], planned: int, statistic: str, criterion: Criterion) -> Finding:
    """Return the finding from one value per seed: a difference where arms are paired, or a log
    ratio.

    planned: the seeds that the configuration asks for. Fewer are no verdict, which prevents
    optional stopping.

    Raises:
        ValueError: for a value that is not finite.
    """
    if not values:
        return Finding(Verdict.NOT_RUN)
    if not all(map(math.isfinite, values)):
        raise ValueError(f"values that are not finite: {values}")
    chosen = STATISTICS[statistic]
    n, effect = len(values), chosen.estimate(values)
    if n < max(planned, chosen.fewest):
        return Finding(Verdict.TOO_FEW, n, effect)
    verdict = decide(criterion, lambda level: chosen.interval(values, level))
    finding = Finding(verdict, n, effect, *chosen.interval(values, LEVEL))
    if verdict is not Verdict.INCONCLUSIVE:
        return finding
    for more in range(n + 1, MOST_SEEDS + 1):
        would_be = decide(criterion, _interval_at(values, statistic, more))
        if would_be is not Verdict.INCONCLUSIVE:
            return replace(finding, needed=more, would_be=would_be)
    return replace(finding, would_be=decide(criterion, lambda level: (effect, effect)))


def decide(criterion: Criterion, interval: Interval) -> Verdict:
    """Return the verdict that follows from an effect's intervals."""
    if criterion.supported.holds(interval(criterion.level_of_support())):
        return Verdict.SUPPORTED
    if criterion.contradicted.holds(interval(LEVEL)):
        return Verdict.CONTRADICTED
    negligible = criterion.negligible()
    if negligible is not None and negligible.holds(interval(EQUIVALENCE_LEVEL)):
        return Verdict.NO_EFFECT
    return Verdict.INCONCLUSIVE


def _interval_at(values: Sequence[float], statistic: str, n: int) -> Interval:
    """Return the intervals of n seeds with the mean and standard deviation of `values`.

    A share is kept, too; the median's n seeds are the quantiles of `values`."""
    if statistic == "mean":
        mean, standard_error = fmean(values), stdev(values) / math.sqrt(n)

        def student(level: float) -> tuple[float, float]:
            half = t_quantile(n - 1, level) * standard_error
            return mean - half, mean + half

        return student
    if statistic == "share":
        return functools.partial(_share_interval, fmean(values) * n, n)
    ordered = sorted(values)
    quantiles = [ordered[int((i + 0.5) * len(values) / n)] for i in range(n)]
    return functools.partial(median_interval, quantiles)


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a claim of several tests: supported where all are, contradicted where
    one is."""
    if set(verdicts) == {Verdict.NOT_RUN}:
        return Verdict.NOT_RUN
    if {Verdict.NOT_RUN, Verdict.TOO_FEW} & set(verdicts):
        return Verdict.TOO_FEW
    return min(verdicts, key=list(Verdict).index)
