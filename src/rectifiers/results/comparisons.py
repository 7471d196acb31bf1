"""What claims compare: a measure of one arm, or of two seed by seed. A test also says how that is
judged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rectifiers.results.measures import MEASURES, check, has_diverged, named
from rectifiers.results.statistics import Mean, mean_of
from rectifiers.results.verdicts import STATISTICS, Criterion, Region
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

YES_OR_NO = ("reached", "diverged")  # the measures that are 1 or 0
SIDES = {"supported": ("above", "below", "within"), "contradicted": ("above", "below", "outside")}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A measure of the arm `of`, or its difference from the arm `minus`, or its ratio to the arm
    `over`."""

    says: str
    measure: str
    of: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    minus: str | None = None
    over: str | None = None

    def arms(self) -> list[str]:
        """Return the arm that is measured, and the one that it is held against."""
        return [arm for arm in (self.of, self.minus or self.over) if arm]

    def compared(self) -> str:
        """Return the arm with what it is compared with, as in `prelu minus relu`."""
        return (
            f"{self.of} minus {self.minus}"
            if self.minus
            else f"{self.of} over {self.over}"
            if self.over
            else self.of
        )

    def measure_name(self) -> str:
        """Return the measure with its settings, as in `reached(below=0.5)`."""
        return named(self.measure, self.settings)

    def measured(self, records: Sequence[TrainingRecord]) -> tuple[float, ...] | None:
        """Return the measure of each arm's record of one seed, or None where it does not exist in
        one of them."""
        found = [MEASURES[self.measure](record, **self.settings) for record in records]
        measured = tuple(value for value in found if value is not None and math.isfinite(value))
        return measured if len(measured) == len(found) else None

    def effect(self, measured: Sequence[float]) -> float | None:
        """Return one seed's effect; None for a ratio that has no logarithm, by which ratios are
        averaged."""
        own, *others = measured
        if not others:
            return own
        if self.over:
            return own / others[0] if own > 0 and others[0] > 0 else None
        return own - others[0]


@dataclass(frozen=True)
class Diverged:
    """How many runs of each arm diverged, of as many seeds."""

    by_arm: Mapping[str, int] = field(default_factory=dict)
    seeds: int = 0

    @classmethod
    def of(cls, comparison: Comparison, pairs: Sequence[Sequence[TrainingRecord]]) -> "Diverged":
        """Return the counts of pairs of records, one per arm of the comparison."""
        runs = zip(*pairs, strict=True) if pairs else [()] * len(comparison.arms())
        counts = (sum(map(has_diverged, arm)) for arm in runs)
        return cls(dict(zip(comparison.arms(), counts, strict=True)), len(pairs))

    def __bool__(self) -> bool:
        return any(self.by_arm.values())

    def __str__(self) -> str:
        return "diverged: " + ", ".join(
            f"{arm} {count} of {self.seeds}" for arm, count in self.by_arm.items()
        )


@dataclass(frozen=True)
class Description:
    """What a comparison found over the pairs of which no run diverged. It is judged by nothing.

    mean: of the effects; None where there is none. measured: the measure of each arm, by pair."""

    comparison: Comparison
    mean: Mean | None
    measured: Sequence[tuple[float, ...]]

    def n(self) -> int:
        """Return how many pairs it is of."""
        return self.mean.n if self.mean else 0


def describe(comparison: Comparison, pairs: Sequence[Sequence[TrainingRecord]]) -> Description:
    """Return the description of pairs of records, one per arm of the comparison."""
    trained = [pair for pair in pairs if not any(map(has_diverged, pair))]
    measured = [each for pair in trained if (each := comparison.measured(pair)) is not None]
    effects = [effect for each in measured if (effect := comparison.effect(each)) is not None]
    return Description(comparison, mean_of(effects) if effects else None, measured)


@dataclass(frozen=True, kw_only=True)
class Test(Comparison):
    """One part of a claim."""

    criterion: Criterion
    statistic: str = "mean"
    leave_out_diverged: bool = False


def test_of(name: str, given: dict[str, Any]) -> Test:
    """Return a test of the claim `name` as its file describes it.

    Raises:
        InputError: for a measure, a statistic or a region that cannot be used.
        KeyError, TypeError: for one that is not whole.
    """
    none = 0.0 if given.get("minus") else 1.0 if given.get("over") else None
    supported, contradicted = (_region(name, key, given.pop(key)) for key in SIDES)
    criterion = Criterion(supported, contradicted, none)
    test = Test(**_fields(given), criterion=criterion)
    if test.statistic not in STATISTICS or (test.minus and test.over):
        raise InputError(
            f"claim/{name}: statistic={test.statistic} cannot be used; give one of "
            f"{', '.join(STATISTICS)}, and either "
            "minus or over"
        )
    _check_measure(name, test)
    if test.statistic == "share" and (test.measure not in YES_OR_NO or test.minus or test.over):
        raise InputError(
            f"claim/{name}: statistic=share is of a yes or no of one arm; give one of "
            f"{', '.join(YES_OR_NO)}, without "
            "minus and over"
        )
    shared = [
        (max(a, c), min(b, d))
        for a, b in criterion.supported.spans()
        for c, d in criterion.contradicted.spans()
    ]
    if any(low < high for low, high in shared):
        raise InputError(
            f"claim/{name}: what is {criterion} can be both; give regions that share nothing"
        )
    if test.over and any(bound <= 0 for bound in criterion.bounds()):
        raise InputError(
            f"claim/{name}: a ratio is above 0, and its bounds are {criterion}; give such as are"
        )
    return test


def description_of(name: str, given: dict[str, Any]) -> Comparison:
    """Return what the claim `name` describes besides its tests: the mean of an arm, or of a
    difference.

    Raises:
        InputError: for a measure that cannot be used.
        TypeError: for a description that is not whole, or that asks for what only a test has.
    """
    comparison = Comparison(**_fields(given))
    _check_measure(name, comparison)
    if comparison.over:
        raise InputError(
            f"claim/{name}: a description has over={comparison.over}; give minus, or neither"
        )
    return comparison


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"settings" if key == "with" else key: value for key, value in given.items()}


def _check_measure(name: str, comparison: Comparison) -> None:
    try:
        check(comparison.measure, comparison.settings)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"claim/{name}: measure={comparison.measure} with {comparison.settings} is not "
            f"usable ({error})"
        ) from error


def _region(name: str, key: str, region: Any) -> Region:
    """The region of {above: 0.5}, {within: [-1, 1]}."""
    if not isinstance(region, dict) or len(region) != 1 or not set(region) <= set(SIDES[key]):
        raise InputError(
            f"claim/{name}: {key}={region} is not usable; give one of: {', '.join(SIDES[key])}"
        )
    ((side, bound),) = region.items()
    bounds = bound if isinstance(bound, list) else [bound]
    wanted = 2 if side in ("within", "outside") else 1
    if len(bounds) != wanted or not all(map(_is_finite, bounds)) or sorted(bounds) != bounds:
        raise InputError(
            f"claim/{name}: {key}={region} is not usable; give {wanted} ascending number(s)"
        )
    return Region(side, tuple(bounds))


def _is_finite(bound: Any) -> bool:
    return isinstance(bound, int | float) and not isinstance(bound, bool) and math.isfinite(bound)
