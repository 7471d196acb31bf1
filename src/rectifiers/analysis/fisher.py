"""Fisher information for several slopes of the negative side, at the start and along ordinary
trainings."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from rectifiers.analysis import plots
from rectifiers.analysis.histograms import log_spaced
from rectifiers.analysis.setup import AnalysisSetup, mean_and_interval, observe_training
from rectifiers.analysis.tables import interval, table
from rectifiers.models.network import Network
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import stderr
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


def arms(slopes: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return each arm's activation: fixed slopes, and PReLU's learned ones."""
    target = "rectifiers.activations."
    fixed = {
        "ReLU" if slope == 0 else f"fixed {slope:g}": {
            "_target_": f"{target}leaky_relu",
            "slope": float(slope),
        }
        for slope in slopes
    }
    return {
        **fixed,
        f"PReLU from {LEARNED:g}": {"_target_": f"{target}prelu", "initial_slope": LEARNED},
    }


def ideal(slope: float) -> float:
    """Return E[f]^2 / E[f^2] = (1 - a)^2 / (pi (1 + a^2)), y Gaussian: the `output_units` of
    independent units."""
    return (1 - slope) ** 2 / (math.pi * (1 + slope**2))


def analyse(
    config: RunConfig, *, slopes: Sequence[float], seeds: int, snapshots: int
) -> dict[str, Any]:
    """Return for every arm and step each measure's mean over seeds with its interval, and its
    difference from the first arm, paired by seed; and the eigenvalues of the first seed.

    Raises:
        InputError: where the network has not two layers, or is too large.
    """
    first = AnalysisSetup(config)
    check_two_layers(first.network(config.seed)[0])
    steps = log_spaced(first.steps, snapshots)
    activations = arms(slopes)
    measured: dict[str, dict[int, list[dict[str, float]]]] = {name: {} for name in activations}
    spectra: dict[str, dict[int, list[float]]] = {name: {} for name in activations}
    for i, (name, activation) in enumerate(activations.items()):
        for j, seed in enumerate(range(config.seed, config.seed + seeds)):
            arm = config.replaced({"seed": seed, "activation": activation})
            for step, network, x, labels in _networks(arm, steps):
                measures, eigenvalues = measure(network, x, labels)
                measured[name].setdefault(step, []).append(measures)
                if j == 0:
                    spectra[name][step] = eigenvalues.tolist()
            stderr.print(
                f"network {i * seeds + j + 1} of {len(activations) * seeds}", highlight=False
            )
    base = next(iter(measured))
    return {
        "weights": len(spectra[base][0]),
        "arms": [
            {
                "arm": name,
                "ideal": ideal(activation.get("slope", LEARNED)),
                "steps": [
                    {
                        "step": step,
                        "measures": {key: _mean([run[key] for run in runs]) for key in MEASURES},
                        "against_first": None
                        if name == base
                        else {
                            key: _paired(runs, measured[base].get(step, []), key)
                            for key in MEASURES
                        },
                        "eigenvalues": spectra[name].get(step),
                    }
                    for step, runs in sorted(measured[name].items())
                ],
            }
            for name, activation in activations.items()
        ],
    }


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


def _mean(values: Sequence[float]) -> dict[str, Any] | None:
    kept = [value for value in values if math.isfinite(value)]
    return mean_and_interval(kept) if kept else None


def _paired(
    own: Sequence[dict[str, float]], base: Sequence[dict[str, float]], key: str
) -> dict[str, Any] | None:
    """The mean difference over seeds; None where an arm has lost some."""
    return (
        _mean([a[key] - b[key] for a, b in zip(own, base, strict=True)])
        if len(own) == len(base)
        else None
    )


def report(numbers: dict[str, Any]) -> list[Table]:
    """Return every measure by arm, a table per step, with the difference from the first arm, by
    seed. An arm that diverged has no column."""
    difference, ideal = "hidden units, minus the first arm's", "hidden units, were they independent"
    labels = (*SHOWN.values(), difference, ideal)
    tables = []
    for step in _steps(numbers):
        rows: list[dict[str, Any]] = [{"": label} for label in labels]
        for arm in numbers["arms"]:
            for measured in arm["steps"]:
                if measured["step"] == step:
                    means = [measured["measures"][key] for key in SHOWN]
                    means.append((measured["against_first"] or {}).get("output_units"))
                    values = [*map(interval, means), arm["ideal"]]
                    for row, value in zip(rows, values, strict=True):
                        row[arm["arm"]] = value
        tables.append(table(f"step {step}: mean ± half of the 95 % interval", rows))
    return tables


def plot(numbers: dict[str, Any]) -> Figure:
    """Draw off-diagonal masses, the spread of eigenvalues and the angle by arm and step."""
    arms, steps = numbers["arms"], _steps(numbers)
    names, places = [arm["arm"] for arm in arms], range(len(arms))
    title = f"Fisher information of {numbers['weights']} weights; means and 95 %"
    figure = plots.new_figure(12.0, 6.2, title)
    for axes, (key, name) in zip(figure.subplots(2, 4).flat, SHOWN.items(), strict=True):
        for i, step in enumerate(steps):
            means = []
            for arm in arms:
                measured = {other["step"]: other["measures"] for other in arm["steps"]}
                means.append(measured[step][key] if step in measured else None)
            shifted = [place + (i - (len(steps) - 1) / 2) * 0.2 for place in places]
            color = plots.shade(i, max(2, len(steps)))
            plots.draw_intervals(axes, shifted, means, color=color, label=f"step {step}")
        if key == "output_units":
            ideal = plots.column(arms, "ideal")
            axes.plot(places, ideal, "_", ms=16, color=plots.MAPS, label="independent units")
        axes.set_title(name, fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(places, names, rotation=60, fontsize=7, ha="right")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return figure


def _steps(numbers: dict[str, Any]) -> list[int]:
    return sorted({measured["step"] for arm in numbers["arms"] for measured in arm["steps"]})
