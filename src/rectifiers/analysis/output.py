"""Tables for the terminal, and what the analyses' figures share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from rectifiers.runtime.schema import value_at

ROUNDING = 1e-12  # smaller numbers are printed as 0
MEASURED, THEORY, MAPS = "#1b6ca8", "#444444", "#c8553d"

Row = Mapping[str, Any]


def table(title: str, rows: Sequence[Row], columns: Mapping[str, str] | None = None) -> Table:
    """Return `rows` as a table. columns: the key of each column by its head, dotted for a key
    within another; None: the keys of the first row."""
    heads = columns or {key: key for key in rows[0]}
    lines = [
        [value_at(row, key) if columns else row.get(key) for key in heads.values()] for row in rows
    ]
    made = Table(title=Text(title, style="bold"), title_justify="left")  # Text: [y²] is no markup
    for head, values in zip(heads, zip(*lines, strict=True), strict=False):
        is_words = any(isinstance(value, str) for value in values)
        made.add_column(Text(head), justify="left" if is_words else "right")
    for line in lines:
        made.add_row(*(Text(cell(value)) for value in line))
    return made


def cell(value: object) -> str:
    """Return a value as it stands in a table; a mean stands with half of its interval."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return cell(value["mean"]) + (f" ± {cell(half)}" if (half := half_interval(value)) else "")
    if isinstance(value, float):
        is_small = ROUNDING < abs(value) < 0.01
        return f"{value:.2g}" if is_small or abs(value) >= 1e5 else f"{value:.3f}"
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


def label_axes(axes: Axes, layers: Sequence[str] = (), grid: str = "y", **labels: Any) -> None:
    """Set labels, a grid, and the names of the layers along the x-axis, not all of many."""
    axes.set(**labels)
    axes.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
    if layers:
        every = math.ceil(len(layers) / 32)
        axes.set_xticks(range(0, len(layers), every), layers[::every], rotation=90, fontsize=7)
        axes.set_xlim(-0.7, len(layers) - 0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def draw_intervals(
    axes: Axes, places: Iterable[float], means: Iterable[Row | None], **style: Any
) -> None:
    """Draw means with their 95 % intervals; nothing where there is no number."""
    for place, mean in zip(places, means, strict=True):
        if mean is not None:
            half = half_interval(mean)
            axes.errorbar(place, mean["mean"], half, capsize=2, fmt="o", ms=4, **style)
            style.pop("label", None)  # one line of the legend


def column(rows: Iterable[Row], key: str) -> list[float]:
    """Return one number of each row; matplotlib leaves a gap where there is none."""
    values = [value_at(row, key) for row in rows]
    return [math.nan if value is None else value for value in values]


def shade(place: int, count: int) -> tuple[float, ...]:
    """Return the color of one of `count` layers or steps, from dark to light."""
    return colormaps["viridis"](0.92 * place / max(1, count - 1))


def network_title(request: Mapping[str, Any]) -> str:
    """Return the network that a configuration asks for."""
    return f"{request['model']}, {request['activation']}, {request['init']} initialisation"
