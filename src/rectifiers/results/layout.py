"""Tables as data, and the same as Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rectifiers.results.statistics import mean_of

BORDERING = re.compile(r"(?<!\w)_|_(?!\w)")  # an underscore that begins or ends an emphasis


def estimate(values: Sequence[float], digits: int = 2, sign: str = "", absent: str = "-") -> str:
    """Return the mean of values over runs with its interval and n, as in `34.00 (31.52 to 36.48,
    n = 3)`; `absent` where there are none."""
    if not values:
        return absent
    mean, style = mean_of(values), f"{sign}.{digits}f"
    spread = "" if mean.low is None else f"{mean.low:{style}} to {mean.high:{style}}, "
    return f"{mean.mean:{style}} ({spread}n = {mean.n})"


@dataclass(frozen=True)
class Table:
    """A titled table; `level` is that of its heading. Without a head it is its note alone."""

    title: str
    level: int
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""

    def markdown(self) -> str:
        """Return heading, table and note."""
        parts = [f"{'#' * self.level} {self.title}\n"]
        if self.head:
            parts.append(markdown(self.head, self.rows))
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
