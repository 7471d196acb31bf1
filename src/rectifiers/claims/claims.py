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
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rectifiers.claims.comparisons import FEWEST, Comparison, Measured, Test
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject, Section, checked

PLACE = CONF / "claim"
RATE = "optim.lr="
FROM = "init.from_weights="  # of an arm, with the arm whose run of the same seed it starts from
VAL_ERROR = {"key": "val/top1_error_pct"}


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
    ends: Mapping[str, str] = Field(default={})
    """By arm, why its best rate may be an end of its grid, as where it trains at no rate."""
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

    def named_arms(self) -> list[str]:
        """Return the arms of which it says more than of others."""
        return [*self.others, *self.more_rates, *self.ends]

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
            used += [("search", arm) for arm in self.search.named_arms()]
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
