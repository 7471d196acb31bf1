"""The learning rate of each arm of a claim, searched on the validation images by the same grid and
budget for all.

A claim asks for it by the key `search`:

    rates          the grid
    seeds          of the runs that choose, none of which is one of the claim's own
    overrides      what makes these runs shorter, such as [optim.epochs=6]
    measure, with  what the lowest mean of is best, as in a claim's tests: what the claim itself is
                   judged by, where that is no error. Without it: the error on the
                   validation images after the last epoch.

`scripts/claims.py search <claim>` makes the runs, `report.py collect` takes their records in, and
`report.py claims` says which rate an arm is to have.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rectifiers.results.layout import Line, Table
from rectifiers.results.measures import MEASURES, check, has_diverged, named
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

RATE = "optim.lr="
VAL_ERROR = {"key": "val/top1_error_pct"}

Found = Mapping[str, Mapping[int, TrainingRecord]]  # by the names of `Search.arms` and seed


@dataclass(frozen=True)
class Search:
    """A grid of learning rates for each arm."""

    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    measure: str = "final"
    settings: Mapping[str, Any] = field(default_factory=lambda: VAL_ERROR)

    @classmethod
    def of(cls, claim: str, given: Mapping[str, Any]) -> "Search":
        """Return the search that a claim's file describes.

        Raises:
            InputError: where it describes none.
        """
        try:
            settings: dict[str, Any] = {
                "settings" if k == "with" else k: tuple(v) if isinstance(v, list) else v
                for k, v in given.items()
            }
            found = cls(**settings)
            if len(found.rates) < 2 or not all(0 < rate < math.inf for rate in found.rates):
                raise ValueError("rates are two or more positive numbers")
            if not found.seeds or min(found.seeds) < 0 or len(set(found.seeds)) < len(found.seeds):
                raise ValueError("seeds are one or more whole numbers, each once")
            check(found.measure, found.settings)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"claim/{claim}: search is not usable ({error}); see results/searches.py"
            ) from error
        return found

    def arms(self, arms: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return the runs' overrides by name: each of a claim's `arms` at each rate."""
        return {
            name_of(arm, rate): [
                *(each for each in given if not each.startswith(RATE)),
                f"{RATE}{rate:g}",
                *self.overrides,
            ]
            for arm, given in arms.items()
            for rate in self.rates
        }

    def measured(self, runs: Mapping[int, TrainingRecord]) -> float | None:
        """Return the mean over its seeds of what it chooses by; infinity where a run diverged, None
        where one lacks."""
        if not set(self.seeds) <= runs.keys():
            return None
        records = [runs[seed] for seed in self.seeds]
        values = [MEASURES[self.measure](record, **self.settings) for record in records]
        if any(map(has_diverged, records)) or None in values:
            return math.inf
        return fmean(value for value in values if value is not None)

    def words(self) -> str:
        """Return what it chooses by, in words."""
        return "val error, %" if self.settings == VAL_ERROR else named(self.measure, self.settings)


def name_of(arm: str, rate: float) -> str:
    """Return the name of an arm's runs at a rate."""
    return f"{arm} at {rate:g}"


def rate_of(given: Sequence[str]) -> float | None:
    """Return the learning rate of an arm's overrides, or None where it has the experiment's."""
    return next((float(each.removeprefix(RATE)) for each in given if each.startswith(RATE)), None)


def best(search: Search, arm: str, runs: Found) -> float | None:
    """Return the rate with the lowest mean, the lower one of equals; None while a run is
    missing."""
    means = {rate: search.measured(runs.get(name_of(arm, rate), {})) for rate in search.rates}
    known = {rate: mean for rate, mean in sorted(means.items()) if mean is not None}
    return min(known, key=known.__getitem__) if len(known) == len(means) else None


def check_rates(claim: str, search: Search, arms: Mapping[str, Sequence[str]], runs: Found) -> None:
    """Check that every arm has the rate that its search found best, as far as its runs are there.

    Raises:
        InputError: for the first arm that has another one.
    """
    for arm, given in arms.items():
        found = best(search, arm, runs)
        if found is not None and rate_of(given) != found:
            raise InputError(
                f"claim/{claim}: arm {arm} is to have {RATE}{found:g}, which its search found "
                "best, and has "
                f"{rate_of(given) or 'none of its own'}; give that, and run the claim again"
            )


def table(searches: Iterable[tuple[str, Search, Iterable[str], Found]]) -> Table:
    """Return the table of (claim, search, arms, runs) each."""
    lines = []
    for claim, search, arms, found in searches:
        for arm in arms:
            by_rate = {rate: found.get(name_of(arm, rate), {}) for rate in search.rates}
            means = [f"{rate:g}: {_words(search.measured(runs))}" for rate, runs in by_rate.items()]
            chosen = best(search, arm, found)
            own = [record.run for runs in by_rate.values() for record in runs.values()]
            words = [
                claim,
                arm,
                search.words(),
                str(len(search.seeds)),
                ", ".join(means),
                "-" if chosen is None else f"{chosen:g}",
            ]
            lines.append(Line(words, own))
    head = ("claim", "arm", "chosen by", "seeds", "mean by learning rate", "chosen")
    return Table("searches", "", "Searches of learning rates", 2, head, lines)


def _words(mean: float | None) -> str:
    return "not run" if mean is None else "diverged" if mean == math.inf else f"{mean:.3g}"
