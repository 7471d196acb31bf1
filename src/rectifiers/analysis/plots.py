"""What the analyses' figures share, by matplotlib without its global state."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MEASURED, THEORY, MAPS = "#1b6ca8", "#444444", "#c8553d"


def new_figure(width: float, height: float, title: str = "") -> Figure:
    """Return an empty figure, sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def label_axes(axes: Axes, layers: Sequence[str] = (), grid: str = "y", **labels: Any) -> None:
    """Set title and labels, a grid, and the names of the layers along the x-axis, thinned out where
    there are many."""
    axes.set(**labels)
    axes.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
    if layers:
        every = math.ceil(len(layers) / 32)
        axes.set_xticks(range(0, len(layers), every), layers[::every], rotation=90, fontsize=7)
        axes.set_xlim(-0.7, len(layers) - 0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def draw_intervals(
    axes: Axes, places: Iterable[float], means: Iterable[Mapping[str, Any] | None], **style: Any
) -> None:
    """Draw means with their 95 % intervals; nothing where there is no number."""
    for place, mean in zip(places, means, strict=True):
        if mean is None:
            continue
        half = 0.0 if mean["low"] is None else mean["high"] - mean["mean"]
        axes.errorbar(place, mean["mean"], half, capsize=2, fmt="o", ms=4, **style)
        style.pop("label", None)  # one line of the legend


def column(rows: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    """Return one number of each row; matplotlib leaves a gap where there is none."""
    return [math.nan if row[key] is None else row[key] for row in rows]


def shade(place: int, count: int) -> Any:
    """Return the color of one of `count` layers or steps, from dark to light."""
    return colormaps["viridis"](0.92 * place / max(1, count - 1))


def network_title(asked: Mapping[str, Any]) -> str:
    """Return the network that a configuration asks for."""
    return f"{asked['model']}, {asked['activation']}, {asked['init']} initialisation"
