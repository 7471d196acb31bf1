"""The variance of responses and gradients through a network as it is initialised, measured beside
the theory."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor, nn

from rectifiers.analysis import plots
from rectifiers.analysis.setup import AnalysisSetup, generator, mean_and_interval
from rectifiers.analysis.tables import interval, table
from rectifiers.chains import Site
from rectifiers.models.network import Network
from rectifiers.models.rows import Row
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import finite
from rectifiers.runtime.console import progress_bar
from rectifiers.theory.propagation import Step, WidthEffect, predict, window_means

IMAGES = 64  # per network


@dataclass(frozen=True)
class LayerSignal:
    """What one layer with weights receives and emits, over images, channels and places, in double
    precision.

    mean, second: E[y] and E[y^2] of its responses. gradient_second: E[dy^2]. input_second: E[x^2]
    of its input.
    activated_second: E[f(y)^2], None for the last layer. border: the mean power in the windows of
    its responses over that of x. Zero padding takes from it; the next unpadded layer, whose windows
    are more often in the middle of a map with poor edges, gives some back."""

    mean: float
    second: float
    gradient_second: float
    input_second: float
    activated_second: float | None
    border: float

    @property
    def variance(self) -> float:
        return max(0.0, self.second - self.mean**2)


def measure_signal(network: Network, inputs: Tensor, gradient: Tensor) -> list[LayerSignal]:
    """Run `inputs` forward and `gradient`, that of the scores [N, classes], backward; return every
    layer's signal.

    Both in double precision: a std of 0.01 leaves 1e-93 of E[y^2] after 50 layers of 256, which
    float32 calls 0. Dropout is off. Normalisation uses the statistics of these inputs, as it does
    in training."""
    sites, rows = network.sites(), [shape.row for shape in network.shapes if shape.row.weighted]
    parts: list[dict[str, Any]] = [{"activated_second": None} for _ in sites]
    exact = network.double().train()
    for module in exact.modules():
        if isinstance(module, nn.Dropout):
            module.eval()

    def power(x: Tensor) -> float:
        return float(x.detach().square().mean())

    def at_weights(layer: int) -> Callable[..., None]:
        def hook(_: nn.Module, inputs: tuple[Tensor], y: Tensor) -> None:
            (x,) = inputs
            parts[layer] |= {"input_second": power(x), "border": _border(rows[layer], x.detach())}
            parts[layer] |= {"mean": float(y.detach().mean()), "second": power(y)}
            y.register_hook(lambda g: parts[layer].update(gradient_second=power(g)))

        return hook

    def at_activation(layer: int) -> Callable[..., None]:
        return lambda _, __, output: parts[layer].update(activated_second=power(output))

    with ExitStack() as hooks, torch.enable_grad():
        for layer, site in enumerate(sites):
            hooks.enter_context(site.module.register_forward_hook(at_weights(layer)))
            if site.after is not None:
                hooks.enter_context(site.after.register_forward_hook(at_activation(layer)))
        exact(inputs.double()).backward(gradient.double())
    exact.zero_grad(set_to_none=True)
    return [LayerSignal(**part) for part in parts]


def _border(row: Row, x: Tensor) -> float:
    """Return the mean over responses of the power in their windows, over that of all of x."""
    if row.kind == "linear" or row.kernel == 1:
        return 1.0
    power = x.square().mean((0, 1))
    total = float(power.mean())
    return float(window_means(row, power).mean()) / total if total else math.nan


def effects(
    sites: Sequence[Site], stds: Sequence[float], signals: Sequence[LayerSignal]
) -> list[dict[str, float]]:
    """Return where ln E[y^2] of every layer but the first comes from, as seen from the layer
    before.

    Five terms add up to the difference. weights: ln(n Var[w]), the initialiser's. activation:
    ln(E[f(y)^2] / E[y^2]), on average what its moments say. pooling: what the maximum over windows
    adds. border: what zero padding takes (`LayerSignal.border`). draw: what this draw of finitely
    many weights does beside its variance (and what biases add). NaN where nothing arrived, which
    has no logarithm."""

    def ratio(one: float, other: float) -> float:
        return math.log(one / other) if one > 0 and other > 0 else math.nan

    of_layers = []
    for site, std, before, own in zip(sites[1:], stds[1:], signals, signals[1:], strict=False):
        activated = before.activated_second or 0.0
        factor = site.fans[0] * std**2
        terms = {
            "weights": ratio(factor, 1.0),
            "activation": ratio(activated, before.second),
            "pooling": ratio(own.input_second, activated),
            "border": ratio(own.border, 1.0),
            "draw": ratio(own.second, factor * own.border * own.input_second),
        }
        of_layers.append(terms)
    return of_layers


def analyse(config: RunConfig, *, seeds: int, inputs: str) -> dict[str, Any]:
    """Return every layer's moments, measured and predicted, and what they come to.

    Moments are log10, means over networks with 95 % intervals; None where one of them was zero,
    which has no logarithm, or more than a double holds."""
    setup = AnalysisSetup(config)
    measured, causes, powers = [], [], []
    with progress_bar("measuring", seeds, "networks") as advance:
        for seed in range(config.seed, config.seed + seeds):
            network, report = setup.network(seed)
            x = network_inputs(setup, inputs, seed)
            powers.append(_power(x))
            gradient = score_gradient(len(x), len(setup.source.classes), seed)
            measured.append(measure_signal(network, x, gradient))
            stds = [layer.std_asked for layer in report]
            causes.append(effects(network.sites(), stds, measured[-1]))
            advance(1)
    steps = (
        predict(network.sites(), network.shapes, stds, torch.stack(powers).mean(0))
        if config.model.norm == "none"
        else None
    )
    shapes = [shape for shape in network.shapes if shape.row.weighted]
    layers = [
        {
            "layer": layer.layer,
            "fan_in": layer.fan_in,
            "fan_out": layer.fan_out,
            "map_px": shapes[i].side or None,
            "std": layer.std_asked,
            "response_mean": finite(fmean(signals[i].mean for signals in measured)),
            "response_second": _log10([signals[i].second for signals in measured]),
            "response_variance": _log10([signals[i].variance for signals in measured]),
            "gradient_second": _log10([signals[i].gradient_second for signals in measured]),
            "theory": steps and _theory(steps[i]),
            "effects": None
            if i == 0
            else _mean_effects([of_layers[i - 1] for of_layers in causes]),
        }
        for i, layer in enumerate(report)
    ]
    return {
        "layers": layers,
        "total": _total(measured, steps),
        "activation": report[0].activation_after,
    }


def network_inputs(setup: AnalysisSetup, kind: str, seed: int) -> Tensor:
    """Return IMAGES inputs of the network, float64: preprocessed training images, or N(0, 1) in
    their shape."""
    if kind == "data":
        return setup.preprocess(setup.images(IMAGES, seed)[0]).double()
    flat, side = setup.preprocess.flat_output, setup.config.data.crop_px
    shape = (setup.source.channels, side, side) if flat is None else (flat,)
    return torch.randn(IMAGES, *shape, dtype=torch.float64, generator=generator("inputs", seed))


def score_gradient(count: int, classes: int, seed: int) -> Tensor:
    """Return N(0, 1) as the gradient of the scores, float64 [count, classes].

    The gradient of a loss would depend on the weights, and vanish where large scores saturate the
    softmax. Eq. 13 is about neither, and says the same for gradients of any size."""
    return torch.randn(count, classes, dtype=torch.float64, generator=generator("gradient", seed))


def _power(inputs: Tensor) -> Tensor:
    """E[x^2] at every position, [H, W]; [1, 1] of vectors."""
    return inputs.square().mean((0, 1)) if inputs.dim() == 4 else inputs.square().mean().view(1, 1)


def _log10(values: Sequence[float]) -> dict[str, Any] | None:
    usable = all(0 < value < math.inf for value in values)
    return mean_and_interval([math.log10(value) for value in values]) if usable else None


def _in_log10(natural: float) -> float | None:
    return finite(natural / math.log(10))


def _width(effect: WidthEffect | None) -> dict[str, float | None]:
    return {
        f"width_{key}": _in_log10(getattr(effect, key)) if effect else None
        for key in ("drift", "spread")
    }


def _theory(step: Step) -> dict[str, float | None]:
    keys = ("response", "response_on_maps", "gradient", "gradient_on_maps")
    return {key: _in_log10(getattr(step, key)) for key in keys} | _width(step.width)


def _mean_effects(draws: Sequence[dict[str, float]]) -> dict[str, float | None]:
    return {key: _in_log10(fmean(draw[key] for draw in draws)) for key in draws[0]}


def _total(
    measured: Sequence[Sequence[LayerSignal]], steps: Sequence[Step] | None
) -> dict[str, Any]:
    """From the first layer's responses to the last's, and from the last's gradients to the first's,
    in log10."""

    def change(moment: str, theory: str, start: int, end: int) -> dict[str, Any]:
        ends = [
            (getattr(signals[start], moment), getattr(signals[end], moment)) for signals in measured
        ]
        predicted = {
            name: steps and _in_log10(getattr(steps[end], key) - getattr(steps[start], key))
            for name, key in (("theory", theory), ("on_maps", f"{theory}_on_maps"))
        }
        return {
            "measured": _log10([b / a if 0 < a < math.inf else 0.0 for a, b in ends]),
            **predicted,
        }

    return {
        "steps": len(measured[0]) - 1,
        "forward": change("second", "response", 0, -1) | _width(steps[-1].width if steps else None),
        "backward": change("gradient_second", "gradient", -1, 0),
    }


def report(numbers: dict[str, Any]) -> list[Table]:
    """Return every layer's second moments beside the theory's, and what changes from end to
    end."""
    rows = []
    for layer in numbers["layers"]:
        theory = layer["theory"] or {}
        rows.append(
            {
                "layer": layer["layer"],
                "n": layer["fan_in"],
                "n̂": layer["fan_out"],
                "std": layer["std"],
                "map": layer["map_px"],
                "E[y²]": interval(layer["response_second"]),
                "Eq. 9": theory.get("response"),
                "9 on maps": theory.get("response_on_maps"),
                "E[Δy²]": interval(layer["gradient_second"]),
                "Eq. 13": theory.get("gradient"),
                "13 on maps": theory.get("gradient_on_maps"),
            }
        )
    total = numbers["total"]
    changes = []
    for direction in ("forward", "backward"):
        change = total[direction]
        row = {
            "direction": direction,
            "measured": interval(change["measured"]),
            "Eq. 9, 13": change["theory"],
            "on maps": change["on_maps"],
            "width": None,
            "borders": None,
            "pooling": None,
        }
        if direction == "forward":
            if change["width_drift"] is not None:
                row["width"] = (change["width_drift"], change["width_spread"])
            for name, key in (("borders", "border"), ("pooling", "pooling")):
                row[name] = float(
                    sum(layer["effects"][key] or 0 for layer in numbers["layers"][1:])
                )
        changes.append(row)
    return [
        table("log10 of E[y²] and E[Δy²]: mean ± half of its 95 % interval", rows),
        table(
            f"log10 of the change over {total['steps']} layers, and what width, borders and "
            "maximum pooling add",
            changes,
        ),
    ]


def plot(numbers: dict[str, Any]) -> Figure:
    """Draw E[y²] and E[Δy²] of every layer: measured, Eq. 9 and 13, and the same on maps with
    borders."""
    layers, asked = numbers["layers"], numbers["asked"]
    names, places = [layer["layer"] for layer in layers], range(len(layers))
    inputs = "Gaussian input" if asked["inputs"] == "gaussian" else f"images of {asked['data']}"
    width = max(8.0, 2 + 0.32 * len(layers))
    figure = plots.new_figure(width, 4.6, f"{plots.network_title(asked)}, {inputs}")
    sides = (
        ("responses, forward (Eq. 9)", "response", "log10 E[y²]"),
        ("gradients, backward (Eq. 13)", "gradient", "log10 E[Δy²], last layer = 1"),
    )
    for axes, (title, moment, label) in zip(figure.subplots(1, 2), sides, strict=True):
        if layers[0]["theory"] is not None:
            theory = [layer["theory"] for layer in layers]
            axes.plot(places, plots.column(theory, moment), color=plots.THEORY, label="theory")
            on_maps = plots.column(theory, f"{moment}_on_maps")
            known = "theory with borders, strides, pooling"
            axes.plot(places, on_maps, "--", color=plots.MAPS, label=known)
        means = [layer[f"{moment}_second"] for layer in layers]
        plots.draw_intervals(
            axes, places, means, color=plots.MEASURED, label="measured, mean and 95 %"
        )
        plots.label_axes(axes, names, title=title, ylabel=label)
    return figure
