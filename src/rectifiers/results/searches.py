"""The learning rate of each arm of a claim, searched on the validation images by the same grid and budget for all.

A claim asks for it by the key `search`:

    rates       the grid
    seed        of the runs that choose, which is none of the claim's own
    overrides   what makes these runs shorter, such as [optim.epochs=6]

`scripts/claims.py search <claim>` makes the runs and prints the best rates, which then stand in the claim's arms. They
are records like those of the claim's own runs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rectifiers.results.layout import Line, Table
from rectifiers.results.measures import has_diverged
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

RATE = "optim.lr="
CHOSEN_BY = "val/top1_error_pct"


@dataclass(frozen=True)
class Search:
    """A grid of learning rates for each arm."""

    rates: tuple[float, ...]
    seed: int
    overrides: tuple[str, ...] = ()

    @classmethod
    def of(cls, claim: str, given: Mapping[str, Any]) -> "Search":
        """Return the search that a claim's file describes.

        Raises:
            InputError: where it describes none.
        """
        try:
            settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
            found = cls(**settings)
            if len(found.rates) < 2 or not all(0 < rate < math.inf for rate in found.rates) or found.seed < 0:
                raise ValueError("rates are two or more positive numbers, and seed is a whole number")
        except (TypeError, ValueError) as error:
            raise InputError(f"claim/{claim}: search is not usable ({error}); see results/searches.py") from error
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


def name_of(arm: str, rate: float) -> str:
    """Return the name of an arm's run at a rate."""
    return f"{arm} at {rate:g}"


def rate_of(given: Sequence[str]) -> float | None:
    """Return the learning rate of an arm's overrides, or None where it has the experiment's."""
    return next((float(each.removeprefix(RATE)) for each in given if each.startswith(RATE)), None)


def val_error(record: TrainingRecord) -> float:
    """Return the error on the validation images after the last epoch, in percent; infinity of a run that diverged."""
    error = None if has_diverged(record) else record.history[-1][CHOSEN_BY]
    return math.inf if error is None else float(error)


def best(search: Search, arm: str, runs: Mapping[str, TrainingRecord]) -> float | None:
    """Return the rate with the lowest error, the lower one of equals; None while a run is missing.

    runs: by the names of `Search.arms`.
    """
    errors = {rate: val_error(runs[name]) for rate in search.rates if (name := name_of(arm, rate)) in runs}
    return min(sorted(errors), key=errors.__getitem__) if len(errors) == len(search.rates) else None


def check_rates(
    claim: str, search: Search, arms: Mapping[str, Sequence[str]], runs: Mapping[str, TrainingRecord]
) -> None:
    """Check that every arm has the rate that its search found best, as far as its runs are there.

    Raises:
        InputError: for the first arm that has another one.
    """
    for arm, given in arms.items():
        found = best(search, arm, runs)
        if found is not None and rate_of(given) != found:
            raise InputError(
                f"claim/{claim}: arm {arm} is to have {RATE}{found:g}, which its search found best, and has "
                f"{rate_of(given) or 'none of its own'}; give that, and run the claim again"
            )


def table(searches: Iterable[tuple[str, Search, Iterable[str], Mapping[str, TrainingRecord]]]) -> Table:
    """Return the table of (claim, search, arms, runs) each."""
    lines = []
    for claim, search, arms, runs in searches:
        for arm in arms:
            found = {rate: runs.get(name_of(arm, rate)) for rate in search.rates}
            errors = [f"{rate:g}: {_words(record)}" for rate, record in found.items()]
            chosen = best(search, arm, runs)
            own = [record.run for record in found.values() if record]
            lines.append(Line([claim, arm, ", ".join(errors), "-" if chosen is None else f"{chosen:g}"], own))
    head = ("claim", "arm", "val error by learning rate, %", "chosen")
    return Table("searches", "", "Searches of learning rates", 2, head, lines)


def _words(record: TrainingRecord | None) -> str:
    return "not run" if record is None else "diverged" if has_diverged(record) else f"{val_error(record):.1f}"
