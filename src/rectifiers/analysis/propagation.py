"""The variance of responses and gradients through a network as it is initialised, measured beside
the theory."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import torch
from matplotlib.figure import Figure
from rich.console import Group
from torch import Tensor, nn

from rectifiers.analysis import output
from rectifiers.analysis.setup import AnalysisSetup, generator, log10_mean
from rectifiers.models.network import Network
from rectifiers.models.rows import Row
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import finite
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject
from rectifiers.theory.variance import Step, WidthEffect, predict, window_means

IMAGES = 64  # per network
MOMENTS = {  # the columns of the first table
    "layer": "layer",
    "n": "fan_in",
    "n̂": "fan_out",
    "std": "std",
    "map": "map_px",
    "E[y²]": "response_second",
    "Eq. 9": "theory.response",
    "9 on maps": "theory.response_on_maps",
    "E[Δy²]": "gradient_second",
    "Eq. 13": "theory.gradient",
    "13 on maps": "theory.gradient_on_maps",
}
CHANGES = {  # and of the second
    "direction": "direction",
    "measured": "measured",
    "Eq. 9, 13": "theory",
    "on maps": "on_maps",
    "width": "width_drift",
    "std for width": "width_spread",
    "borders": "border",
    "pooling": "pooling",
}


@dataclass(frozen=True)
class LayerSignal:
    """What one layer with weights receives and emits, means over images, channels and places.

    second: E[y^2] of its responses. gradient_second: E[dy^2]. input_second: E[x^2] of its input.
    activated_second: E[f(y)^2], None for the last layer. border: the mean power in the windows of
    its responses over that of x: zero padding takes, and windows amid a map with poor edges give
    back."""

    second: float
    gradient_second: float
    input_second: float
    activated_second: float | None
    border: float


def measure_signal(network: Network, inputs: Tensor, gradient: Tensor) -> list[LayerSignal]:
    """Run `inputs` forward and `gradient`, that of the scores [N, classes], backward; return every
    layer's signal.

    Both in double precision: a std of 0.01 leaves 1e-93 of E[y^2] after 50 layers of 256, which
    float32 calls 0. Dropout is off. Normalisation uses the statistics of these inputs, as it does
    in training."""
    sites, rows = network.sites(), [shape.row for shape in network.shapes if shape.row.weighted]
    parts: list[JsonObject] = [{"activated_second": None} for _ in sites]
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
            parts[layer]["second"] = power(y)
            y.register_hook(lambda g: parts[layer].update(gradient_second=power(g)))

        return hook

    def at_activation(layer: int) -> Callable[..., None]:
        return lambda _, __, activated: parts[layer].update(activated_second=power(activated))

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


def effects(signals: Sequence[LayerSignal]) -> dict[str, float]:
    """Return what borders and maximum pooling add to ln E[y^2] from the first layer to the last:
    padding takes, a maximum gives. NaN where nothing arrived."""

    def log(one: float, other: float | None) -> float:
        return math.log(one / other) if other and one > 0 else math.nan

    return {
        "border": sum(log(layer.border, 1.0) for layer in signals[1:]),
        "pooling": sum(
            log(layer.input_second, before.activated_second) for before, layer in pairwise(signals)
        ),
    }


def analyse(config: RunConfig, *, seeds: int, inputs: str) -> JsonObject:
    """Return every layer's moments, measured and predicted, and what they come to: log10, means
    over networks with 95 % intervals; None where one was zero, or more than a double holds.

    Raises:
        InputError: for signals of 1 x n, whose maps the prediction does not know.
    """
    if config.data.signal:
        raise InputError("propagation is of images, and data.signal=true; choose data=digits")
    setup = AnalysisSetup(config)
    measured, causes, powers = [], [], []
    with progress_bar("measuring", seeds, "networks") as advance:
        for seed in range(config.seed, config.seed + seeds):
            network, report = setup.network(seed)
            x = _network_inputs(setup, inputs, seed)
            powers.append(x.square().mean((0, 1)) if x.dim() == 4 else x.square().mean().view(1, 1))
            signals = measure_signal(network, x, _last_gradient(setup, len(x), seed))
            measured.append(signals)
            causes.append(effects(signals))
            advance(1)

    steps = None
    if config.model.norm == "none":  # the prediction knows no normalisation
        stds = [layer.std_asked for layer in report]
        steps = predict(network.sites(), network.shapes, stds, torch.stack(powers).mean(0))

    shapes = [shape for shape in network.shapes if shape.row.weighted]
    layers = []
    for i, layer in enumerate(report):
        row = {
            "layer": layer.layer,
            "fan_in": layer.fan_in,
            "fan_out": layer.fan_out,
            "map_px": shapes[i].side or None,
            "std": layer.std_asked,
            "response_second": log10_mean([signals[i].second for signals in measured]),
            "gradient_second": log10_mean([signals[i].gradient_second for signals in measured]),
            "theory": steps and _theory(steps[i]),
        }
        layers.append(row)

    forward = _change(measured, steps, "response", 0, -1)
    forward |= _width(steps[-1].width if steps else None)
    forward |= {key: _to_log10(fmean(cause[key] for cause in causes)) for key in causes[0]}
    backward = _change(measured, steps, "gradient", -1, 0)
    total = {"steps": len(layers) - 1, "forward": forward, "backward": backward}
    return {"layers": layers, "total": total, "activation": report[0].activation_after}


def _network_inputs(setup: AnalysisSetup, kind: str, seed: int) -> Tensor:
    """Return IMAGES inputs of the network, float64: preprocessed training images, or N(0, 1) in
    their shape."""
    if kind == "data":
        return setup.preprocess(setup.images(IMAGES, seed)[0]).double()
    flat, side = setup.preprocess.flat_output, setup.config.data.crop_px
    shape = (setup.source.channels, side, side) if flat is None else (flat,)
    return torch.randn(IMAGES, *shape, dtype=torch.float64, generator=generator("inputs", seed))


def _last_gradient(setup: AnalysisSetup, images: int, seed: int) -> Tensor:
    """Return a gradient N(0, 1) of the scores, [images, classes], float64. That of a loss would
    depend on the weights, and vanish where large scores saturate the softmax."""
    shape = (images, len(setup.source.classes))
    return torch.randn(shape, dtype=torch.float64, generator=generator("gradient", seed))


def _to_log10(natural: float) -> float | None:
    return finite(natural / math.log(10))


def _width(effect: WidthEffect | None) -> dict[str, float | None]:
    drift, spread = (effect.drift, effect.spread) if effect else (math.nan, math.nan)
    return {"width_drift": _to_log10(drift), "width_spread": _to_log10(spread)}


def _theory(step: Step) -> dict[str, float | None]:
    moments = {key: _to_log10(value) for key, value in vars(step).items() if key != "width"}
    return moments | _width(step.width)


def _change(
    measured: Sequence[Sequence[LayerSignal]],
    steps: Sequence[Step] | None,
    moment: str,
    start: int,
    end: int,
) -> JsonObject:
    """Return the change of a moment, "response" or "gradient", from one layer to another, log10."""
    name = "second" if moment == "response" else "gradient_second"
    ends = [(getattr(layers[start], name), getattr(layers[end], name)) for layers in measured]
    growth = [last / first if 0 < first < math.inf else 0.0 for first, last in ends]
    change: JsonObject = {"measured": log10_mean(growth)}
    for label, key in (("theory", moment), ("on_maps", f"{moment}_on_maps")):
        change[label] = steps and _to_log10(getattr(steps[end], key) - getattr(steps[start], key))
    return change


def report(numbers: JsonObject) -> list[Group]:
    """Return every layer's second moments beside the theory's, and their change from end to end."""
    layers, total = numbers["layers"], numbers["total"]
    changes = [{"direction": name, **total[name]} for name in ("forward", "backward")]
    moments = "log10 of E[y²] and E[Δy²]: mean ± half of its 95 % interval"
    ends = f"{total['steps']} layers, and what width, borders and maximum pooling add"
    return [
        output.table(moments, layers, MOMENTS),
        output.table(f"log10 of the change over {ends}", changes, CHANGES),
    ]


def plot(numbers: JsonObject) -> Figure:
    """Draw E[y²] and E[Δy²] of every layer: measured, Eq. 9 and 13, and on maps with borders."""
    layers, request = numbers["layers"], numbers["request"]
    names, places = [layer["layer"] for layer in layers], range(len(layers))
    inputs = "Gaussian input" if request["inputs"] == "gaussian" else f"images of {request['data']}"

    width = max(8.0, 2 + 0.32 * len(layers))
    figure = output.new_figure(width, 4.6, f"{output.network_title(request)}, {inputs}")
    sides = (
        ("responses, forward (Eq. 9)", "response", "log10 E[y²]"),
        ("gradients, backward (Eq. 13)", "gradient", "log10 E[Δy²], last layer = 1"),
    )

    every = math.ceil(len(layers) / 32)  # at most 32 names fit side by side
    for axes, (title, moment, label) in zip(figure.subplots(1, 2), sides, strict=True):
        if layers[0]["theory"] is not None:
            theory = [layer["theory"] for layer in layers]
            values = [step[moment] for step in theory]
            axes.plot(places, values, color=output.THEORY, label="theory")
            on_maps = [step[f"{moment}_on_maps"] for step in theory]
            label_on_maps = "theory with borders, strides, pooling"
            axes.plot(places, on_maps, "--", color=output.MAPS, label=label_on_maps)

        means = [(place, layer[f"{moment}_second"]) for place, layer in enumerate(layers)]
        if known := [(x, m["mean"], output.half_interval(m)) for x, m in means if m]:
            style: JsonObject = {"capsize": 2, "fmt": "o", "ms": 4, "color": output.MEASURED}
            axes.errorbar(*zip(*known, strict=True), label="measured, mean and 95 %", **style)

        axes.set(title=title, ylabel=label, xlim=(-0.7, len(layers) - 0.3))
        axes.set_xticks(places[::every], names[::every], rotation=90, fontsize=7)
        axes.grid(axis="y", alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    return figure
