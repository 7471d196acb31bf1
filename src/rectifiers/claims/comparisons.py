"""What a claim compares: a measure of an arm, alone or beside another arm, and the criterion of a
test, which says where the interval of the effect has to lie."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rectifiers.claims.measures import MEASURES, RELATIVE, in_words, is_bound, unit_of
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.schema import JsonObject, Section

LEVEL = 0.95
EQUIVALENCE_LEVEL = 0.90  # two one-sided tests at 5 % are one interval of 90 %
FEWEST = {"mean": 5, "median": 6, "share": 6}  # seeds for which the statistic has an interval
YES_OR_NO = ("reached", "diverged")  # the measures that are 1 or 0
ERROR = "top1_error_pct"  # how the keys of errors end
PROTOCOLS = ("protocol", "other")  # settings of measures that name a test protocol


@dataclass(frozen=True)
class Region:
    """A part of the line: `above` or `below` one bound, `within` or `outside` two."""

    side: str
    bounds: tuple[float, ...]

    def spans(self, left: float = -math.inf, right: float = math.inf) -> list[tuple[float, float]]:
        """Return the parts of the line from `left` to `right` that lie in the region."""
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

    def scaled(self, scale: Callable[[float], float]) -> "Region":
        """Return the region of `scale(number)`, which rises with the number."""
        return Region(self.side, tuple(map(scale, self.bounds)))

    def __str__(self) -> str:
        return f"{self.side} {' to '.join(f'{bound:g}' for bound in self.bounds)}"


def _region(*sides: str) -> BeforeValidator:
    """Return the validator of {above: 0.5} or {within: [-1, 1]} with one of these sides."""

    def parse(region: object) -> Region:
        side, bound = "", None
        if isinstance(region, dict) and len(region) == 1:
            ((side, bound),) = region.items()
        bounds = bound if isinstance(bound, list) else [bound]
        are_numbers = all(isinstance(x, int | float) and math.isfinite(x) for x in bounds)
        count = 2 if side in ("within", "outside") else 1
        if side not in sides or not are_numbers or len(bounds) != count or sorted(bounds) != bounds:
            raise ValueError(
                f"give one of {', '.join(sides)}: a number, or 2 ascending ones of within, outside"
            )
        return Region(side, tuple(bounds))

    return BeforeValidator(parse)


class Measured(Section):
    """A measure: a function of `measures.py` with its settings."""

    measure: str
    settings: JsonObject = Field(default={}, alias="with")

    @model_validator(mode="after")
    def _check_measure(self) -> "Measured":
        try:
            inspect.signature(MEASURES[self.measure]).bind({}, **self.settings)
        except (KeyError, TypeError) as error:
            known = ", ".join(MEASURES)
            message = f"measure={self.measure} with {self.settings} is not one of {known} ({error})"
            raise ValueError(message) from error
        return self

    def value(
        self, record: TrainingRecord, reference: TrainingRecord | None = None
    ) -> float | None:
        """Return the measure of a run; one that is relative to a `reference` is None without."""
        if self.measure not in RELATIVE:
            return MEASURES[self.measure](record, **self.settings)
        if reference is None:
            return None
        return MEASURES[self.measure](record, reference=reference, **self.settings)

    def protocols(self) -> set[str]:
        """Return the test protocols that it reads."""
        parameters = inspect.signature(MEASURES[self.measure]).bind({}, **self.settings)
        parameters.apply_defaults()
        return {parameters.arguments[key] for key in PROTOCOLS if key in parameters.arguments}

    def measure_name(self) -> str:
        """Return the measure with its settings, as in `reached(below=0.5)`."""
        listed = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.measure}({listed})" if listed else self.measure

    def in_words(self) -> str:
        """Return the measure with its settings in words, and with its unit."""
        unit = unit_of(self.measure, self.settings)
        words = in_words(self.measure, self.settings)
        return f"{words} ({unit})" if unit in ("%", "degrees") else words


class Comparison(Measured):
    """A measure of the arm `of`, or its difference from the arm `minus`, or its ratio to the arm
    `over`, seed by seed. `since` names two arms whose difference is subtracted from that of the
    first two: a change of the effect, as from short runs to long ones."""

    says: str
    """What it tests, in words."""
    of: str
    minus: str | None = None
    over: str | None = None
    since: tuple[str, str] | None = None

    @model_validator(mode="after")
    def _check_arms(self) -> "Comparison":
        if self.minus and self.over:
            raise ValueError("give either minus or over")
        if self.since and not self.minus:
            raise ValueError("since is a change of a difference; give minus")
        if self.measure in RELATIVE and not self.over:
            raise ValueError(f"{self.measure} is relative to another arm; give over")
        if len(arms := self.arms()) > len(set(arms)):
            raise ValueError(f"{self.compared()} names an arm twice, which cancels; give others")
        return self

    def arms(self) -> list[str]:
        """Return the arm that is measured, the one that it is held against, and those of
        `since`."""
        return [arm for arm in (self.of, self.minus or self.over, *(self.since or ())) if arm]

    def compared(self) -> str:
        """Return the arm with what it is compared with, as in `prelu minus relu`."""
        if self.since:
            earlier = " minus ".join(self.since)
            return f"({self.of} minus {self.minus}) minus ({earlier})"
        if self.minus:
            return f"{self.of} minus {self.minus}"
        return f"{self.of} over {self.over}" if self.over else self.of

    def is_of_errors(self) -> bool:
        """Return whether it is a difference of two arms' errors."""
        is_error = self.measure.startswith("error") or str(self.settings.get("key")).endswith(ERROR)
        return is_error and self.minus is not None and self.since is None

    def unit(self) -> str:
        """Return the unit of the effect; empty where it has none."""
        unit = "" if self.over else unit_of(self.measure, self.settings)
        return "points" if unit == "%" and self.minus else unit

    def measured(self, records: Sequence[TrainingRecord]) -> tuple[float, ...] | None:
        """Return the measure of each arm's record of one seed; None where one has no number."""
        values = [self.value(record, reference=records[-1]) for record in records]
        finite = tuple(value for value in values if value is not None and math.isfinite(value))
        return finite if len(finite) == len(values) else None

    def is_bound(self, records: Sequence[TrainingRecord]) -> bool:
        """Return whether only a lower bound of one seed's effect is known."""
        if self.measure not in RELATIVE:
            return False
        return is_bound(records[0], reference=records[-1], **self.settings)

    def effect(self, measured: Sequence[float]) -> float | None:
        """Return one seed's effect; None for a ratio that has no finite logarithm."""
        if len(measured) == 1:
            return measured[0]
        value, other, *earlier = measured
        if self.over:
            ratio = value / other if other > 0 else 0.0
            return ratio if 0 < ratio < math.inf else None
        difference = value - other
        return difference - (earlier[0] - earlier[1]) if earlier else difference


class Test(Comparison):
    """A part of a claim, with its criterion in the units of the effect. The claim is supported
    where all tests are, and contradicted where one is."""

    supported: Annotated[Region, _region("above", "below", "within")]
    """Where the whole 95 % interval has to lie: beyond the smallest effect of interest; or `within`
    two bounds, of the 90 % interval (equivalence, by two one-sided tests at 5 %)."""
    contradicted: Annotated[Region, _region("above", "below", "outside")]
    """Where the whole 95 % interval has to lie; for `outside`, beyond one of the two bounds."""
    statistic: Literal["mean", "median", "share"] = "mean"
    """mean (Student's t), median (exact, by ranks), or share (exact, of a yes or no)."""
    leave_out_diverged: bool = False
    """Whether pairs in which a run diverged are left out, and counted beside the effect."""

    def bounds(self) -> tuple[float, ...]:
        return self.supported.bounds + self.contradicted.bounds

    def criterion(self) -> str:
        """Return the criterion in words."""
        return f"supported {self.supported}, contradicted {self.contradicted}"

    def negligible(self) -> Region | None:
        """Return the effects too small to matter, nearer to none than the bound; None without
        such."""
        if len(self.arms()) == 1 or self.supported.side == "within":
            return None
        (bound,) = self.supported.bounds
        mirrored = 1 / bound if self.over else -bound
        low, high = (mirrored, bound) if self.supported.side == "above" else (bound, mirrored)
        return Region("within", (low, high)) if low < high else None

    def chance(self) -> float:
        """Return the largest probability that it is found supported where it does not hold."""
        level = EQUIVALENCE_LEVEL if self.supported.side == "within" else LEVEL
        return (1 - level) / 2

    @model_validator(mode="after")
    def _check_criterion(self) -> "Test":
        if self.statistic == "share" and (self.measure not in YES_OR_NO or len(self.arms()) > 1):
            raise ValueError(
                "statistic=share is of a yes or no of one arm; give one of "
                f"{', '.join(YES_OR_NO)}, without minus and over"
            )
        pairs = product(self.supported.spans(), self.contradicted.spans())
        if any(max(a, c) < min(b, d) for (a, b), (c, d) in pairs):
            raise ValueError(
                f"{self.criterion()}: the regions overlap; give ones that share nothing"
            )
        if self.over and min(self.bounds()) <= 0:
            raise ValueError(f"a ratio is above 0, and its bounds are {self.criterion()}")
        return self
