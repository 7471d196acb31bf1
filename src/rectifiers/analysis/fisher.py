"""Fisher information for several slopes of the negative side, at the start and along ordinary
trainings."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame, Series
from rich.table import Table
from torch import Tensor

from rectifiers.analysis import output
from rectifiers.analysis.setup import (
    AnalysisSetup,
    log_spaced,
    mean_and_interval,
    observe_training,
)
from rectifiers.models.network import Network
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.schema import JsonObject, value_at
from rectifiers.theory.fisher import MEASURES, check_two_layers, measure
from rectifiers.training.diagnostics import Weights

LEARNED = 0.25  # where the arm of learned slopes starts
IMAGES = 1000  # over which the information is taken
SHOWN = {  # of the measures
    "output_units": "off-diagonal: hidden units, one class",
    "first": "off-diagonal: first layer",
    "output": "off-diagonal: output layer",
    "cross": "off-diagonal: between layers",
    "off_over_diagonal": "‖F - diag F‖ / ‖diag F‖",
    "largest_over_mean": "largest / mean eigenvalue",
    "effective_rank": "effective rank / weights",
    "natural_angle": "gradient to natural gradient, degrees",
}


def arms(slopes: Sequence[float]) -> dict[str, JsonObject]:
    """Return each arm's activation: fixed slopes, and PReLU's learned ones."""
    leaky, prelu = (f"rectifiers.activations.{name}" for name in ("leaky_relu", "prelu"))
    activations: dict[str, JsonObject] = {}
    for slope in slopes:
        name = f"fixed {slope:g}" if slope else "ReLU"
        activations[name] = {"_target_": leaky, "slope": float(slope)}
    learned = {"_target_": prelu, "initial_slope": LEARNED}
    return {**activations, f"PReLU from {LEARNED:g}": learned}


def ideal(slope: float) -> float:
    """Return E[f]^2 / E[f^2] = (1 - a)^2 / (pi (1 + a^2)), y Gaussian: the `output_units` of
    independent units."""
    return (1 - slope) ** 2 / (math.pi * (1 + slope**2))


def analyse(
    config: RunConfig, *, slopes: Sequence[float], seeds: int, snapshots: int
) -> JsonObject:
    """Return for every arm and step each measure's mean over seeds with its interval, and the
    eigenvalues of one seed."""
    first = AnalysisSetup(config)
    check_two_layers(first.network(config.seed)[0])
    steps, activations = log_spaced(first.steps, snapshots), arms(slopes)
    rows = []
    with progress_bar("measuring", len(activations) * seeds, "networks") as advance:
        for (name, activation), seed in product(activations.items(), range(seeds)):
            arm = config.replaced({"seed": config.seed + seed, "activation": activation})
            for step, network, x, labels in _networks(arm, steps):
                measures, eigenvalues = measure(network, x, labels)
                row = {"arm": name, "step": step, "eigenvalues": eigenvalues.tolist()}
                rows.append(row | measures)
            advance(1)
    found = []
    for name, of_arm in DataFrame(rows).groupby("arm", sort=False):
        of_steps = [
            {
                "step": step,
                "measures": {key: _mean(runs[key]) for key in MEASURES},
                "eigenvalues": runs.eigenvalues.iloc[0],
            }
            for step, runs in of_arm.groupby("step")
        ]
        slope = activations[name].get("slope", LEARNED)
        found.append({"arm": name, "ideal": ideal(slope), "steps": of_steps})
    return {"weights": len(found[0]["steps"][0]["eigenvalues"]), "arms": found}


def _networks(
    config: RunConfig, steps: Sequence[int]
) -> Iterator[tuple[int, Network, Tensor, Tensor]]:
    """Yield (step, the network as it was, inputs, labels); a training that diverged has fewer."""
    setup, seed = AnalysisSetup(config), config.seed
    network, _ = setup.network(seed)
    pictures, labels = setup.images(IMAGES, seed)
    x = setup.preprocess(pictures)
    if len(steps) == 1:
        yield 0, network, x, labels
        return
    weights = Weights(steps)
    observe_training(config, weights)
    for step, state in sorted(weights.found.items()):
        network.load_state_dict(state)
        yield step, network, x, labels


def _mean(values: Series) -> JsonObject | None:
    finite = values[np.isfinite(values)]
    return mean_and_interval(finite.tolist()) if len(finite) else None


def report(numbers: JsonObject) -> list[Table]:
    """Return every measure by arm, a table per step; an arm that diverged has no column."""
    columns = {label: f"measures.{key}" for key, label in SHOWN.items()}
    tables = []
    for step in _steps(numbers):
        rows = [{"": label} for label in (*columns, "hidden units, were they independent")]
        for arm in numbers["arms"]:
            for snapshot in (row for row in arm["steps"] if row["step"] == step):
                values = [value_at(snapshot, key) for key in columns.values()]
                for row, value in zip(rows, [*values, arm["ideal"]], strict=True):
                    row[arm["arm"]] = value
        tables.append(output.table(f"step {step}: mean ± half of the 95 % interval", rows))
    return tables


def plot(numbers: JsonObject) -> Figure:
    """Draw off-diagonal masses, the spread of eigenvalues and the angle by arm and step."""
    arms, steps = numbers["arms"], _steps(numbers)
    names, places = [arm["arm"] for arm in arms], range(len(arms))
    title = f"Fisher information of {numbers['weights']} weights; means and 95 %"
    figure = output.new_figure(12.0, 6.2, title)
    by_arm = [{row["step"]: row["measures"] for row in arm["steps"]} for arm in arms]
    for axes, (key, name) in zip(figure.subplots(2, 4).flat, SHOWN.items(), strict=True):
        for i, step in enumerate(steps):
            means = [measures[step][key] if step in measures else None for measures in by_arm]
            shifted = [place + (i - (len(steps) - 1) / 2) * 0.2 for place in places]
            color = output.shade(i, max(2, len(steps)))
            output.draw_intervals(axes, shifted, means, color=color, label=f"step {step}")
        if key == "output_units":
            ideal = output.column(arms, "ideal")
            axes.plot(places, ideal, "_", ms=16, color=output.MAPS, label="independent units")
        axes.set_title(name, fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(places, names, rotation=60, fontsize=7, ha="right")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _steps(numbers: JsonObject) -> list[int]:
    return sorted({measured["step"] for arm in numbers["arms"] for measured in arm["steps"]})
