"""How far a result moves under what a run's name leaves out, and how large an effect has to be beside it.

`scripts/numerical_floor.py` measures it: one configuration and seed, run with other `compute.fused`,
`compute.channels_last` and `compute.threads` and with the instruction sets of other processors. Rounding differs, a
training amplifies it, and the errors are as many draws of one number. Over n pairs of runs the mean difference then has
a standard error of sd sqrt(2/n), and `half_width` is its 95 % interval's.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rectifiers.results.statistics import Spread, spread_of, t_quantile

FILE = "numerical_floor.csv"  # below results/
SUFFIX = "_error_pct"


@dataclass(frozen=True)
class NumericalFloor:
    """The spread of top-1 errors in percent, by protocol."""

    spreads: Mapping[str, Spread]

    def half_width(self, protocol: str, n: int, arms: int = 2) -> float:
        """Return how far the mean over `n` seeds of an error (one arm) or a difference (two) moves by rounding, points.

        95 %, by Student's t, since sd is an estimate. A protocol that was not measured takes the largest spread.
        """
        widest = max(self.spreads.values(), key=lambda spread: spread.sd)
        spread = self.spreads.get(protocol, widest)
        return t_quantile(spread.n - 1, 0.95) * spread.sd * math.sqrt(arms / n)

    def __str__(self) -> str:
        errors = " and ".join(
            f"{spread.low:.2f} to {spread.high:.2f} % by `{name}` (sd {spread.sd:.2f})"
            for name, spread in self.spreads.items()
        )
        runs = next(iter(self.spreads.values())).n
        paired = ", ".join(f"{self.half_width('center', n):.2f} for n = {n}" for n in (1, 5, 10, 20))
        return (
            "A run's name leaves out `compute.fused`, `compute.channels_last`, `compute.threads` and the processor, "
            f"which change only the rounding. One run on digits, made {runs} times with one seed and these changed, "
            f"has errors of {errors}. So rounding alone moves the mean difference over n pairs of runs by up to "
            f"{paired} (95 %, points by `center`): this is the floor under which nothing is claimed."
        )


def load_floor(results: Path) -> NumericalFloor | None:
    """Return the floor that was measured, or None where `results` has none."""
    path = results / FILE
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [key.removesuffix(SUFFIX) for key in rows[0] if key.endswith(SUFFIX)]
    return NumericalFloor({name: spread_of([float(row[name + SUFFIX]) for row in rows]) for name in names})
