"""Tables for the terminal, and what the analyses' figures share."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from rectifiers.runtime import console
from rectifiers.runtime.schema import value_at

ROUNDING = 1e-12  # smaller numbers are printed as 0
MEASURED, THEORY, MAPS = "#1b6ca8", "#444444", "#c8553d"

Row = Mapping[str, Any]


def table(title: str, rows: Sequence[Row], columns: Mapping[str, str] | None = None) -> Group:
    """Return `rows` as a table. columns: the key of each column by its head, dotted for a key
    within another; None: the keys of the first row."""
    heads = columns or {key: key for key in rows[0]}
    lines = [[cell(value_at(row, key)) for key in heads.values()] for row in rows]
    name = Text(title, style="bold")  # [y²] is no markup
    # not the table's own title, which breaks into lines where the table is narrower
    return Group(name, console.table(tuple(heads), lines))


def cell(value: object) -> str:
    """Return a value as it stands in a table; a mean stands with half of its interval."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        half = half_interval(value)
        mean = cell(value["mean"])
        return f"{mean} ± {cell(half)}" if half else mean
    if isinstance(value, float):
        has_few_digits = ROUNDING < abs(value) < 0.01 or abs(value) >= 1e5
        return f"{value:.2g}" if has_few_digits else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def half_interval(mean: Row) -> float:
    """Return half of the 95 % interval; 0 of a single run, which has none."""
    return 0.0 if mean["low"] is None else float(mean["high"] - mean["mean"])


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return an empty figure, sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def network_title(request: Mapping[str, Any]) -> str:
    """Return the network that a configuration asks for."""
    return f"{request['model']}, {request['activation']}, {request['init']} initialisation"
