"""Figures from records, by matplotlib without its global state; the same record gives the same
bytes."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rectifiers.results.paper import table_1_slopes
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _figure(record: Record) -> Any:
    from matplotlib.figure import Figure  # here and not above: a record is read without

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"run {record.run}")
    return figure, axes


def error_against_cost(record: Record) -> "Figure | None":
    """Draw what each protocol costs an image, in multiply-adds, and the top-1 error that it buys.

    The bars are the intervals over test images (Wilson, 95 %) of this one run. None for fewer than
    two protocols."""
    if len(record.protocols) < 2:
        return None
    figure, axes = _figure(record)
    for name, result in sorted(record.protocols.items()):
        error = result.top1_error_pct
        low, high = error_interval_pct(result.top1_errors, result.num_images)
        axes.errorbar(
            result.multiply_adds,
            error,
            [[error - low], [high - error]],
            fmt="o",
            capsize=3,
            label=name,
        )
    axes.set(xscale="log", xlabel="multiply-adds an image", ylabel="top-1 error, %")
    axes.legend(title="protocol")
    return figure


def slopes_against_depth(record: TrainingRecord) -> "Figure | None":
    """Draw the learned slope of every layer, with its spread over channels, beside Table 1's. None
    without PReLU."""
    slopes = record.slopes
    if not slopes:
        return None
    shared = all(slope.channels == 1 for slope in slopes.values())
    paper, layers = table_1_slopes(shared), list(slopes)
    figure, axes = _figure(record)
    means = [slopes[layer].mean for layer in layers]
    spread = [slopes[layer].std for layer in layers]
    axes.errorbar(layers, means, None if shared else spread, fmt="o-", capsize=3, label="this run")
    printed = [(layer, paper[layer]) for layer in layers if layer in paper]
    if printed:
        axes.plot(
            *zip(*printed, strict=True), "s", mfc="none", label="the paper's Table 1 (ImageNet)"
        )
    what = "slope, shared by the channels" if shared else "slope: mean and std over channels"
    axes.set(xlabel="layer, from the image on", ylabel=what)
    axes.tick_params(axis="x", labelrotation=60)
    axes.legend()
    return figure


FIGURES: dict[str, Callable[[TrainingRecord], "Figure | None"]] = {
    "error_against_cost": error_against_cost,
    "slopes_against_depth": slopes_against_depth,
}


def write_svg(figure: "Figure", path: Path, name: str, description: str | None = None) -> None:
    """Write a figure as an SVG, the same bytes for the same figure and name."""
    import matplotlib as mpl

    # the ids of an SVG are made when it is written
    with atomic_file(path) as file, mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(
            file, format="svg", metadata={"Date": None, "Creator": None, "Description": description}
        )


def png(figure: "Figure") -> bytes:
    """Return the figure as a PNG."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    return drawn.getvalue()
