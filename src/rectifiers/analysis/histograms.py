"""Activations and gradients along an ordinary training, as Glorot and Bengio (2010) drew them."""

import math
from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from rectifiers.analysis import plots
from rectifiers.analysis.setup import AnalysisSetup, observe_training
from rectifiers.analysis.tables import table
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.errors import InputError
from rectifiers.training.diagnostics import QUANTILES, Signals

SNAPSHOTS = 5  # at logarithmically spaced steps, the first and the last included
PARTS = ("activations", "gradients")


def log_spaced(last: int, count: int) -> list[int]:
    """Return at most `count` whole numbers from 0 to `last`, the ends included, between them evenly
    on a log scale."""
    between = (
        [round((last + 1) ** (i / (count - 1))) - 1 for i in range(count)] if count > 1 else [0]
    )
    return sorted({max(0, min(last, step)) for step in between})


def analyse(config: RunConfig) -> dict[str, Any]:
    """Train `config` once more, in a folder of its own that is removed, and return its signals at a
    few steps.

    Raises:
        InputError: where the training diverged before its first step.
    """
    signals = Signals(log_spaced(AnalysisSetup(config).steps - 1, SNAPSHOTS))
    record = observe_training(config, signals)
    whole = {
        step: layers
        for step, layers in signals.found.items()
        if all(len(pair) == 2 for pair in layers.values())
    }
    if not whole:
        raise InputError(
            "the training diverged in its first step, so there is nothing to draw; lower optim.lr"
        )
    return {
        "status": record.status,
        "quantiles": QUANTILES,
        "error_pct": record.history[-1]["val/top1_error_pct"] if record.history else None,
        "snapshots": [
            {
                "step": step,
                "layers": [
                    {"layer": layer, "activations": asdict(outputs), "gradients": asdict(gradients)}
                    for layer, (outputs, gradients) in layers.items()
                ],
            }
            for step, layers in sorted(whole.items())
        ],
    }


def report(numbers: dict[str, Any]) -> list[Table | str]:
    """Return the spread of activations and gradients, a column per step, and how it ended."""
    tables: list[Table | str] = []
    for part in PARTS:
        rows = []
        for i, layer in enumerate(numbers["snapshots"][0]["layers"]):
            row = {"layer": layer["layer"]}
            for snapshot in numbers["snapshots"]:
                row[f"step {snapshot['step']}"] = snapshot["layers"][i][part]["std"]
            rows.append(row)
        tables.append(table(f"std of {part}", rows))
    if numbers["status"] == "diverged":
        return [*tables, "the training diverged"]
    return [*tables, f"val top-1 error after the training: {numbers['error_pct']:.2f} %"]


def plot(numbers: dict[str, Any]) -> Figure:
    """Draw the densities of activations and gradients by layer, a column per step."""
    snapshots, asked = numbers["snapshots"], numbers["asked"]
    title = f"{plots.network_title(asked)}, {asked['data']}"
    figure = plots.new_figure(2.7 * len(snapshots) + 1.6, 5.2, title)
    grid = figure.subplots(2, len(snapshots), squeeze=False, sharey="row")
    for column, snapshot in zip(grid.T, snapshots, strict=True):
        for axes, part in zip(column, PARTS, strict=True):
            for place, layer in enumerate(snapshot["layers"]):
                scale = (layer[part]["std"] or 1.0) if part == "gradients" else 1.0
                style = {"color": plots.shade(place, len(snapshot["layers"])), "lw": 1}
                axes.plot(*_density(layer[part], scale), label=layer["layer"], **style)
            axes.set_yscale("log")
        column[0].set(title=f"step {snapshot['step']:,}", xlabel="activation f(y)")
        column[1].set(xlabel="gradient / its std")
    for axes in grid[:, 0]:
        axes.set_ylabel("density")
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right upper", fontsize=7, title="layer")
    return figure


def _density(distribution: dict[str, Any], scale: float) -> tuple[list[float], list[float]]:
    """Return (the middles of the bins, the density there), of the numbers divided by `scale`."""
    low, counts = distribution["low"], distribution["counts"]
    width, total = (distribution["high"] - low) / len(counts), sum(counts) or 1
    middles = [(low + (i + 0.5) * width) / scale for i in range(len(counts))]
    return middles, [count / total / width * scale or math.nan for count in counts]
