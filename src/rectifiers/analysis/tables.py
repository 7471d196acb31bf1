"""One way to print an analysis: rows of numbers as a table for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

ROUNDING = 1e-12  # smaller numbers are printed as 0
Rows = Sequence[Mapping[str, Any]]


def table(title: str, rows: Rows) -> Table:
    """Return `rows`, of the same keys each, as a table: words to the left, numbers to the right."""
    made = Table(title=Text(title, style="bold"), title_justify="left")  # Text: [y²] is no markup
    for column in rows[0] if rows else ():
        is_words = any(isinstance(row[column], str) for row in rows)
        made.add_column(Text(column), justify="left" if is_words else "right")
    for row in rows:
        made.add_row(*(Text(cell(value)) for value in row.values()))
    return made


def cell(value: Any) -> str:
    """Return a value as it stands in a table; a tuple is (mean, half of its interval, or None)."""
    if value is None:
        return "-"
    if isinstance(value, tuple):
        mean, half = value
        return cell(mean) + (f" ± {cell(half)}" if half is not None else "")
    if isinstance(value, float):
        is_small = ROUNDING < abs(value) < 0.01
        return f"{value:.2g}" if is_small or abs(value) >= 1e5 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def interval(mean: Mapping[str, Any] | None) -> tuple[float, float | None] | None:
    """Return (mean, half of its 95 % interval), None where there is no number."""
    if mean is None:
        return None
    return mean["mean"], None if mean["low"] is None else mean["high"] - mean["mean"]
