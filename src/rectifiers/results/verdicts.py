"""From measured numbers to a verdict: an effect, its interval over seeds, and a criterion that
stood there before."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median

from rectifiers.results.power import NINE_IN_TEN, of_mean, of_share, of_sign_test, seeds_for
from rectifiers.results.statistics import t_interval

LEVEL = 0.95
EQUIVALENCE_LEVEL = 0.90  # two one-sided tests at 5 % are one interval of 90 %


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
    from scipy.special import betaincinv

    n, ones, tail = len(values), sum(values), (1 - level) / 2
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

    def sought(self) -> tuple[float, float, float] | None:
        """Return what an experiment of a mean ought to show, as (level, how far it reaches below
        and above the truth).

        It ought to show that no effect is none that matters, or is as the claim says. The level of
        one arm has no effect that is none: there it ought to support a truth beyond the bound by as
        much as both bounds are apart. None where these are one."""
        (bound, *others), negligible = self.supported.bounds, self.negligible()
        if others or negligible is not None:
            low, high = (negligible or self.supported).bounds
            return EQUIVALENCE_LEVEL, (high - low) / 2, (high - low) / 2
        reach = min(
            abs(bound - other)
            for other in (self.contradicted.bounds if self.none is None else [self.none])
        )
        return (LEVEL, reach, math.inf) if reach > 0 else None

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

    floor: how far rounding alone moves the effect; floor_of: the data that it was measured on,
    where it is not the effect's own. held_back: whether the floor, and not the interval, prevents a
    verdict.
    power: of what was inconclusive, the chance that so many seeds with this spread decide: that an
    effect of none is shown not to matter, or, of the level of one arm, that nine in ten seeds on
    one side show it, or a mean that lies beyond the bound by as much as both bounds are apart.
    needed: the seeds for a power of 0.8. Both are None where there is nothing to base them on.
    guessed: the runs that diverged and count as guessing, with whose spread no power
    is computed. is_of_few: whether a few runs lie so far from the others that the mean is outside
    the 95 % interval of the median; no power is computed with their spread either. too_coarse:
    whether the floor alone is as wide as what was to be shown, so that no spread helps."""

    verdict: Verdict
    n: int = 0
    effect: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    floor: float = 0.0
    held_back: bool = False
    power: float | None = None
    needed: int | None = None
    guessed: int = 0
    is_of_few: bool = False
    too_coarse: bool = False
    floor_of: str = ""


def judge(
    values: Sequence[float],
    planned: int,
    statistic: str,
    criterion: Criterion,
    floor: float = 0.0,
    guessed: int = 0,
) -> Finding:
    """Return the finding from one value per seed: a difference where arms are paired, or a log
    ratio.

    planned: the seeds that the configuration asks for. Fewer are no verdict, which prevents
    optional stopping.
    floor: a verdict also needs the effect to lie on its side by this much, or nothing is shown.
    guessed: how many runs behind the values diverged: the spread of such outliers says nothing of
    other seeds.

    Raises:
        ValueError: for a value that is not finite.
    """
    if not values:
        return Finding(Verdict.NOT_RUN)
    if not all(map(math.isfinite, values)):
        raise ValueError(f"values that are not finite: {values}")
    chosen = STATISTICS[statistic]
    effect = chosen.estimate(values)
    if len(values) < max(planned, chosen.fewest):
        return Finding(Verdict.TOO_FEW, len(values), effect)
    interval = chosen.interval(values, LEVEL)
    decisive = chosen.interval(values, criterion.level_of_support())
    negligible = criterion.negligible()
    verdict, region = Verdict.INCONCLUSIVE, None
    if criterion.supported.holds(decisive):
        verdict, region = Verdict.SUPPORTED, criterion.supported
    elif criterion.contradicted.holds(interval):
        verdict, region = Verdict.CONTRADICTED, criterion.contradicted
    elif negligible is not None and negligible.holds(chosen.interval(values, EQUIVALENCE_LEVEL)):
        verdict, region = Verdict.NO_EFFECT, negligible
    held_back = (
        floor > 0 and region is not None and not region.holds((effect - floor, effect + floor))
    )
    power, needed = (None, None)
    is_of_few = statistic == "mean" and not guessed and _is_of_few(values)
    is_open = (region is None or held_back) and not guessed and not is_of_few
    if is_open and (chance := _power(values, statistic, criterion, floor)) is not None:
        power, needed = chance(len(values)), seeds_for(chance, chosen.fewest)
    sought = criterion.sought() if statistic == "mean" else None
    too_coarse = sought is not None and floor >= min(sought[1:])
    verdict = Verdict.INCONCLUSIVE if held_back else verdict
    return Finding(
        verdict,
        len(values),
        effect,
        *interval,
        floor,
        held_back,
        power,
        needed,
        guessed,
        is_of_few,
        too_coarse,
    )


def _is_of_few(values: Sequence[float]) -> bool:
    """Say whether the mean lies outside the median's interval, as where a few values are far from
    the others."""
    if len(values) < STATISTICS["median"].fewest:
        return False
    low, high = median_interval(values, LEVEL)
    return not low <= fmean(values) <= high


def _power(
    values: Sequence[float], statistic: str, criterion: Criterion, floor: float
) -> Callable[[int], float] | None:
    """Return the power by the number of seeds; None where the criterion names no truth that it
    ought to find."""
    if statistic == "median":
        return of_sign_test(LEVEL)
    if statistic == "share":
        bound = criterion.supported.bounds[0]
        bound = bound if criterion.supported.side == "above" else 1 - bound
        return of_share(bound, share_interval, LEVEL) if bound < NINE_IN_TEN else None
    sought = criterion.sought()
    return of_mean(values, *sought, floor) if sought else None


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a claim of several tests: supported where all are, contradicted where
    one is."""
    if set(verdicts) == {Verdict.NOT_RUN}:
        return Verdict.NOT_RUN
    if {Verdict.NOT_RUN, Verdict.TOO_FEW} & set(verdicts):
        return Verdict.TOO_FEW
    return min(verdicts, key=list(Verdict).index)
