"""How far a result moves under what a run's name leaves out, and how large an effect has to be
beside it.

`scripts/numerical_floor.py` measures it: one configuration per data set and several seeds, run with
other `compute.fused`, `compute.channels_last` and `compute.threads` and with the instruction sets
of other processors. Rounding differs, a training amplifies it, and the errors of a seed are as many
draws of one number. Over n pairs of runs the mean difference then has a standard error of sd
sqrt(2/n), and `half_width` is its 95 % interval's."""

import csv
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rectifiers.results.statistics import Spread, spread_of, t_quantile

FILE = "numerical_floor.csv"  # below results/
SUFFIX = "_error_pct"
DIVERGED = "diverged"  # in place of the training loss; such a run has no errors
Spreads = Mapping[str, Spread]  # by protocol


@dataclass(frozen=True)
class NumericalFloor:
    """The spread of top-1 errors in percent, by the data's option and protocol.

    diverged: by data, how many runs diverged where another of their seed trained; they are in no
    spread."""

    spreads: Mapping[str, Spreads]
    diverged: Mapping[str, int] = field(default_factory=dict)

    def half_width(self, data: str, protocol: str, n: int, arms: int = 2) -> float:
        """Return how far the mean over `n` seeds of an error (one arm) or a difference (two) moves
        by rounding, points.

        95 %, by Student's t, since sd is an estimate. A protocol that was not measured takes the
        widest one of its data, data that were not measured the widest one of all."""
        width, _ = self._widest(data, protocol)
        return width * math.sqrt(arms / n)

    def source(self, data: str, protocol: str) -> str:
        """Return the data that the floor of `data` was measured on: its own, or others."""
        return self._widest(data, protocol)[1]

    def _widest(self, data: str, protocol: str) -> tuple[float, str]:
        """The half width of one run, and the data that it is of."""
        measured = {data: self.spreads[data]} if data in self.spreads else self.spreads
        named = [(of[protocol], where) for where, of in measured.items() if protocol in of]
        every = [(spread, where) for where, of in measured.items() for spread in of.values()]
        return max(
            (t_quantile(spread.n - spread.groups, 0.95) * spread.sd, where)
            for spread, where in named or every
        )

    def __str__(self) -> str:
        return (
            "A run's name leaves out `compute.fused`, `compute.channels_last`, "
            "`compute.threads` and the processor, "
            "which change only the rounding. "
            f"{' '.join(self._of(data) for data in self.spreads)} This is the floor "
            "under which nothing is claimed; data that are not named here take the widest."
        )

    def _of(self, data: str) -> str:
        spreads = self.spreads[data]
        errors = " and ".join(
            f"{spread.sd:.2f} points by `{name}`" for name, spread in spreads.items()
        )
        made = next(iter(spreads.values()))
        paired = ", ".join(
            f"{self.half_width(data, 'center', n):.2f} for n = {n}" for n in (1, 5, 10, 20)
        )
        lost = self.diverged.get(data, 0)
        also = (
            f" {lost} more diverged, at a rate where others of "
            f"{'its' if lost == 1 else 'their'} seed trained."
        )
        return (
            f"One configuration on {data}, run {made.n} times with {made.groups} seeds and "
            "these changed, has errors "
            f"with a standard deviation, within a seed, of {errors}: where all runs train, "
            "rounding alone moves the "
            f"mean difference over n pairs of runs by up to {paired} (95 %, points by "
            f"`center`).{also if lost else ''}"
        )


def load_floor(results: Path) -> NumericalFloor | None:
    """Return the floor that was measured, or None where `results` has none."""
    path = results / FILE
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    errors: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        for key in (key for key in row if key.endswith(SUFFIX) and row[key]):
            by_seed = errors.setdefault(row["data"], {}).setdefault(key.removesuffix(SUFFIX), {})
            by_seed.setdefault(row["seed"], []).append(float(row[key]))
    return NumericalFloor(
        {
            data: {name: spread_of([*seeds.values()]) for name, seeds in of.items()}
            for data, of in errors.items()
        },
        Counter(row["data"] for row in rows if row["train_loss"] == DIVERGED),
    )
