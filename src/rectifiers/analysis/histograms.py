"""Activations and gradients along an ordinary training, as Glorot and Bengio (2010) drew them."""

import math
import tempfile
from dataclasses import asdict

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.console import Group

from rectifiers.analysis import output
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject
from rectifiers.training.diagnostics import Signals
from rectifiers.training.train import train

SNAPSHOTS = 5  # at logarithmically spaced steps, the first and the last included
PARTS = ("activations", "gradients")


def analyse(config: RunConfig) -> JsonObject:
    """Train `config` once more, in a folder of its own that is removed, and return its signals at a
    few steps."""
    batches = len(AnalysisSetup(config).data.batches)
    if limit := config.trainer.overfit_batches or config.trainer.limit_train_batches:
        batches = min(limit, batches) if isinstance(limit, int) else int(batches * limit)
    steps = config.trainer.max_epochs * batches

    signals = Signals([round(steps ** (i / (SNAPSHOTS - 1))) - 1 for i in range(SNAPSHOTS)])
    with tempfile.TemporaryDirectory() as place:
        config = config.replaced({"runs_dir": place, "rerun": False, "logger": {}})
        record = train(config, {}, callbacks=[signals]).record

    snapshots = []
    for step, layers in sorted(signals.found.items()):
        if any(len(pair) < 2 for pair in layers.values()):
            continue  # it diverged before the backward pass

        rows = [
            {"layer": layer, **dict(zip(PARTS, map(asdict, pair), strict=True))}
            for layer, pair in layers.items()
        ]
        snapshots.append({"step": step, "layers": rows})

    if not snapshots:
        raise InputError(
            "the training diverged in its first step, so there is nothing to draw; lower optim.lr"
        )
    return {
        "status": record.status,
        "error_pct": record.history[-1]["val/top1_error_pct"] if record.history else None,
        "snapshots": snapshots,
    }


def report(numbers: JsonObject) -> list[Group | str]:
    """Return the spread of activations and gradients, a column per step, and how it ended."""
    tables: list[Group | str] = []
    for part in PARTS:
        rows = [{"layer": layer["layer"]} for layer in numbers["snapshots"][0]["layers"]]
        for snapshot in numbers["snapshots"]:
            for row, layer in zip(rows, snapshot["layers"], strict=True):
                row[f"step {snapshot['step']}"] = layer[part]["std"]
        tables.append(output.table(f"std of {part}", rows))
    if numbers["status"] == "diverged":
        return [*tables, "the training diverged"]
    return [*tables, f"val top-1 error after the training: {numbers['error_pct']:.2f} %"]


def _density(histogram: JsonObject, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of the bins, divided by `scale`, and the density there, each [bins]; NaN,
    which leaves a gap in a line, for an empty bin."""
    counts = np.array(histogram["counts"])
    low, high = histogram["low"] / scale, histogram["high"] / scale
    width = (high - low) / len(counts)
    middles = low + width * (np.arange(len(counts)) + 0.5)
    density = counts / width / max(1, counts.sum())
    return middles, np.where(counts, density, math.nan)


def plot(numbers: JsonObject) -> Figure:
    """Draw the densities of activations and gradients by layer, a column per step."""
    snapshots, request = numbers["snapshots"], numbers["request"]
    title = f"{output.network_title(request)}, {request['data']}"
    figure = output.new_figure(2.7 * len(snapshots) + 1.6, 5.2, title)
    grid = figure.subplots(2, len(snapshots), squeeze=False, sharey="row")
    colors = colormaps["viridis"](np.linspace(0, 0.92, len(snapshots[0]["layers"])))
    for column, snapshot in zip(grid.T, snapshots, strict=True):
        for axes, part in zip(column, PARTS, strict=True):
            for layer, color in zip(snapshot["layers"], colors, strict=True):
                histogram = layer[part]
                # gradients of layers may differ by orders of magnitude
                scale = (histogram["std"] or 1.0) if part == "gradients" else 1.0
                middles, density = _density(histogram, scale)
                axes.plot(middles, density, label=layer["layer"], color=color, lw=1)
            axes.set_yscale("log")

        column[0].set(title=f"step {snapshot['step']:,}", xlabel="activation f(y)")
        column[1].set(xlabel="gradient / its std")

    for axes in grid[:, 0]:
        axes.set_ylabel("density")
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right upper", fontsize=7, title="layer")
    return figure
