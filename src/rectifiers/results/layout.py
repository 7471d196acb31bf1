"""Tables as data, whose cells know their numbers and whose lines their runs, and the same as
Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rectifiers.results.statistics import Mean, mean_of

BORDERING = re.compile(
    r"(?<!\w)_|_(?!\w)"
)  # an underscore where Markdown begins or ends an emphasis


@dataclass(frozen=True)
class Estimate:
    """A measured number as a table shows it: a mean over runs to `digits` decimals; `lost` runs
    diverged."""

    mean: Mean
    digits: int = 2
    sign: str = ""
    lost: int = 0

    def value(self) -> str:
        """Return the mean alone."""
        return f"{self.mean.mean:{self.sign}.{self.digits}f}"

    def spread(self) -> str:
        """Return the interval, or nothing for a single run."""
        low, high = self.mean.low, self.mean.high
        if low is None or high is None:
            return ""
        return f"{low:{self.sign}.{self.digits}f} to {high:{self.sign}.{self.digits}f}"

    def __str__(self) -> str:
        spread = ", ".join(part for part in (self.spread(), f"n = {self.mean.n}") if part)
        return f"{self.value()} ({spread})" + (f" ({self.lost} diverged)" if self.lost else "")


def estimate(
    values: Sequence[float], digits: int = 2, sign: str = "", absent: str = "-"
) -> "str | Estimate":
    """Return the estimate of measured values, or `absent` where there are none."""
    return Estimate(mean_of(values), digits, sign) if values else absent


@dataclass(frozen=True)
class Line:
    """A row of a table, and the runs that its numbers were measured by."""

    cells: Sequence[str | Estimate]
    runs: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """A titled table; `level` is its heading's in TABLES.md. Without lines it says `note` alone.

    kind, setting: what a reader of many tables sorts them by, such as `slopes` on the paper's
    setting."""

    kind: str
    setting: str
    title: str
    level: int
    head: Sequence[str] = ()
    lines: Sequence[Line] = ()
    note: str = ""

    def markdown(self) -> str:
        """Return heading, table and note."""
        parts = [f"{'#' * self.level} {self.title}\n"]
        if self.head:
            parts.append(
                markdown(self.head, ([str(cell) for cell in line.cells] for line in self.lines))
            )
        if self.note:
            parts.append(f"{self.note}\n")
        return "\n".join(parts)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_plain, row))} |" for row in rows)]) + "\n"


def _plain(cell: str) -> str:
    """Return a cell whose underscores at the borders of words, as in `_target_`, do not begin an
    emphasis."""
    parts = cell.split("`")  # every second one is code
    return "`".join(part if i % 2 else BORDERING.sub(r"\_", part) for i, part in enumerate(parts))
