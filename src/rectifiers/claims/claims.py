"""Claims: statements with their source, the runs that answer them, and a criterion that was
committed before the runs.

A claim is a file `conf/claim/<name>.yaml`: the setting, as for any experiment, and the key `claim`,
which no run reads and which holds the fields of `Claim`. For example:

    claim:
      statement: PReLU has a lower error than ReLU
      source: section 2.1, Table 2
      whose: paper
      seeds: 10
      arms: {relu: [optim.lr=0.01], prelu: [activation=prelu, optim.lr=0.02]}
      tests:
        - {says: lower error, measure: error, with: {protocol: center}, of: prelu, minus: relu,
           supported: {below: -0.5}, contradicted: {above: 0}}
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rectifiers.claims.measures import MEASURES, RELATIVE, in_words, is_bound, unit_of
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject, Section, checked

PLACE = CONF / "claim"
LEVEL = 0.95
EQUIVALENCE_LEVEL = 0.90  # two one-sided tests at 5 % are one interval of 90 %
FEWEST = {"mean": 5, "median": 6, "share": 6}  # seeds for which the statistic has an interval
YES_OR_NO = ("reached", "diverged")  # the measures that are 1 or 0
PROTOCOLS = ("protocol", "other")  # settings of measures that name a test protocol
RATE = "optim.lr="
FROM = "init.from_weights="  # of an arm, with the arm whose run of the same seed it starts from
VAL_ERROR = {"key": "val/top1_error_pct"}


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


class Search(Measured):
    """A grid of learning rates for each arm, searched on the validation images by runs of their
    own: `scripts/claims.py search <claim>` makes them."""

    rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=2)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    """Of the runs that choose, none of which is one of the claim's own."""
    overrides: tuple[str, ...] = ()
    """What makes these runs shorter, such as trainer.max_epochs=6."""
    measure: str = "final"
    """What the lowest mean of is best; without it the last epoch's validation error."""
    settings: JsonObject = Field(default=VAL_ERROR, alias="with")
    more_rates: Mapping[str, tuple[Annotated[float, Field(gt=0)], ...]] = Field(default={})
    """By arm, further rates: a grid grows where its best rate was an end."""
    others: Mapping[str, Mapping[str, tuple[str, ...]]] = Field(default={})
    """By arm, what was searched beside it and lost, such as other slopes: arms by name."""

    def rates_of(self, arm: str) -> list[float]:
        """Return the grid of an arm, from the lowest rate."""
        return sorted({*self.rates, *self.more_rates.get(arm, ())})

    def arms(self, arms: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return the runs' overrides by name: each of a claim's `arms`, and each that lost to one,
        at each rate."""
        named_runs = {}
        for arm, overrides in self.with_others(arms).items():
            others = without_rate(overrides)
            for rate in self.rates_of(arm):
                named_runs[name_of(arm, rate)] = [*others, f"{RATE}{rate:g}", *self.overrides]
        return named_runs

    def with_others(self, arms: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """Return a claim's `arms`, each followed by those that it was chosen from."""
        searched: dict[str, Sequence[str]] = {}
        for arm, overrides in arms.items():
            searched |= {arm: overrides, **self.others.get(arm, {})}
        return searched

    def measured_by(self) -> str:
        """Return what it chooses by, in words."""
        return "validation error (%)" if self.settings == VAL_ERROR else self.in_words()


def without_rate(overrides: Sequence[str]) -> list[str]:
    """Return an arm's overrides without that of its learning rate."""
    return [override for override in overrides if not override.startswith(RATE)]


def name_of(arm: str, rate: float) -> str:
    """Return the name of an arm's runs at a rate."""
    return f"{arm} at {rate:g}"


def start_of(overrides: Sequence[str]) -> str:
    """Return the arm whose run of the same seed trains the weights that these overrides' run starts
    from; empty where there is none."""
    starts = (given.removeprefix(FROM) for given in overrides if given.startswith(FROM))
    return next(starts, "")


class Claim(Section):
    """A claim as configured."""

    name: str
    statement: str
    source: str
    """A section, a page and its heading, or a reader's question."""
    whose: Literal["paper", "notes", "other", "ours"]
    """Who says it: the paper, a reader's notes on it, another paper, or we."""
    lesson: str = ""
    """What a run on digits teaches: a sentence of a reader's notes. A lesson is judged like any
    claim, stands in docs/lessons.md, and is not counted as evidence."""
    seeds: int = Field(default=0, ge=0)
    """How many; a test of fewer is no verdict."""
    first_seed: int = Field(default=0, ge=0)
    """A criterion that is changed after a run needs other seeds."""
    arms: Mapping[str, tuple[str, ...]] = Field(default={})
    """By name, what is given on the command line besides the experiment; `init.from_weights=<arm>`
    names the arm whose run of the same seed trained the weights."""
    tests: tuple[Test, ...] = Field(min_length=1)
    descriptions: tuple[Comparison, ...] = ()
    """What the runs that trained show besides, by no criterion; `<claim>/<arm>` is an arm of
    another claim."""
    search: Search | None = None
    arm_seeds: Mapping[str, tuple[Annotated[int, Field(ge=0)], ...]] = Field(default={})
    """The seeds of arms that only descriptions use, where these run for fewer."""
    neighbours: Mapping[str, tuple[str, ...]] = Field(default={})
    """By arm, the arms one step of the grid of learning rates to each side, for as many epochs. A
    difference that is smaller than what such a step changes is inconclusive, also in other claims
    that share the arms."""
    older: tuple[str, ...] = ()
    """Arms with runs of another claim that are older than this criterion. Each test needs an arm
    without such runs, so that its outcome was not known."""
    note: str = ""
    """What a reader must know of the setting, such as why it was changed."""
    is_check: bool = False
    """Whether it follows from theory: its runs test this program and are no evidence."""
    undecided: str = ""
    """Why its runs cannot decide, whatever their intervals: a choice beside the one that is
    compared, such as an arm's learning rate, may be what made the effect."""

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        used = [("test", arm) for test in self.tests for arm in test.arms()]
        if self.search:
            used += [("search", arm) for arm in (*self.search.others, *self.search.more_rates)]
        used += [("list of older arms", arm) for arm in self.older]
        used += [("arm_seeds", arm) for arm in self.arm_seeds]
        beside = [(arm, other) for arm, others in self.neighbours.items() for other in others]
        used += [("list of neighbours", arm) for pair in beside for arm in pair]
        used += [
            (FROM.rstrip("="), start_of(given)) for given in self.arms.values() if start_of(given)
        ]
        for kind, arm in used:
            if arm not in self.arms:
                raise ValueError(f"its {kind} names an arm {arm}, which it does not have")

        for arm, other in beside:
            if without_rate(self.arms[arm]) != without_rate(self.arms[other]):
                raise ValueError(
                    f"its arm {other} differs from {arm} in more than {RATE.rstrip('=')}, which a "
                    "neighbour may not"
                )

        if seen := [test.says for test in self.tests if set(test.arms()) <= set(self.older)]:
            raise ValueError(
                f"its test '{seen[0]}' has only arms that are older than the criterion"
            )

        tested = {arm for test in self.tests for arm in test.arms()}
        if fewer := sorted(tested & self.arm_seeds.keys()):
            raise ValueError(f"its tests need all seeds of {fewer[0]}; leave it out of arm_seeds")

        fewest = max(FEWEST[test.statistic] for test in self.tests)
        if self.seeds < fewest:
            raise ValueError(f"{self.seeds} seeds are too few for an interval; give {fewest}")
        return self

    def searched(self) -> dict[str, list[str]]:
        """Return the overrides of the runs that choose its arms' learning rates, by name."""
        return self.search.arms(self.main_arms()) if self.search else {}

    def main_arms(self) -> dict[str, Sequence[str]]:
        """Return the arms that run for all seeds, each at a rate that the search chooses."""
        return {arm: given for arm, given in self.arms.items() if arm not in self.arm_seeds}

    def all_seeds(self) -> range:
        """Return the seeds that it asks for."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def seeds_of(self, arm: str) -> Sequence[int]:
        """Return the seeds that it asks for of an arm."""
        return self.arm_seeds.get(arm, self.all_seeds())


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all claims in the order of their names."""
    files = sorted(PLACE.glob("*.yaml"))
    run = [parse(path.stem, load_yaml(path.read_text()).get("claim")) for path in files]
    arms = {f"{claim.name}/{arm}" for claim in run for arm in claim.arms}
    for claim in run:
        for arm in (arm for comparison in claim.descriptions for arm in comparison.arms()):
            if arm not in claim.arms and arm not in arms:
                raise InputError(
                    f"claim/{claim.name} describes an arm {arm}, which no claim has; give "
                    "<claim>/<arm>"
                )
    return tuple(run)


def parse(name: str, claim: object) -> Claim:
    """Return the claim that the key `claim` of a file describes."""
    if not isinstance(claim, dict):
        raise InputError(f"claim/{name} has no key claim; say there what it claims")
    return checked(Claim, {"name": name, **claim}, f"claim/{name}: ")
