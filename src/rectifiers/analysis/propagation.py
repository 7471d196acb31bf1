"""The variance of responses and gradients through a network as it is initialised, measured beside the theory."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.nn.initializers import Site
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import Row
from rectifiers.results.statistics import mean_of
from rectifiers.runtime.errors import InputError
from rectifiers.theory.propagation import Step, log, predict


@dataclass(frozen=True)
class Heard:
    """Of one layer with weights, over images, channels and places, in double precision.

    mean, second: E[y] and E[y^2] of its responses. gradient_second: E[dy^2]. input_second: E[x^2] of what it got.
    answered_second: E[f(y)^2], None for the last layer. border: the mean power in the windows of its responses over
    that of x. Zero padding takes from it; the next unpadded layer, whose windows are more often in the middle of a map
    with poor edges, gives some back.
    """

    mean: float
    second: float
    gradient_second: float
    input_second: float
    answered_second: float | None
    border: float

    @property
    def variance(self) -> float:
        return max(0.0, self.second - self.mean**2)


def listen(network: Network, inputs: Tensor, gradient: Tensor) -> list[Heard]:
    """Run `inputs` forward and `gradient`, that of the scores [N, classes], backward; return what each layer had.

    Both in double precision: a std of 0.01 leaves 1e-93 of E[y^2] after 50 layers of 256, which float32 calls 0.
    Dropout is off. Normalisation uses the statistics of these inputs, as it does in training.
    """
    sites, rows = network.sites(), [shape.row for shape in network.shapes if shape.row.weighted]
    heard: list[dict[str, Any]] = [{} for _ in sites]
    exact = network.double().train()
    for module in exact.modules():
        if isinstance(module, nn.Dropout):
            module.eval()

    def before(place: int) -> Callable[..., None]:
        def take(_: nn.Module, given: tuple[Tensor]) -> None:
            heard[place]["input_second"] = float(given[0].detach().square().mean())
            heard[place]["border"] = _border(rows[place], given[0].detach())

        return take

    def after(place: int) -> Callable[..., None]:
        def take(_: nn.Module, __: Any, response: Tensor) -> None:
            y = response.detach()
            heard[place] |= {"mean": float(y.mean()), "second": float(y.square().mean()), "answered_second": None}
            response.register_hook(lambda g: heard[place].update(gradient_second=float(g.square().mean())))

        return take

    def answered(place: int) -> Callable[..., None]:
        return lambda _, __, x: heard[place].update(answered_second=float(x.detach().square().mean()))

    with ExitStack() as hooks, torch.enable_grad():
        for place, site in enumerate(sites):
            hooks.enter_context(site.module.register_forward_pre_hook(before(place)))
            hooks.enter_context(site.module.register_forward_hook(after(place)))
            if site.after is not None:
                hooks.enter_context(site.after.register_forward_hook(answered(place)))
        exact(inputs.double()).backward(gradient.double())
    exact.zero_grad(set_to_none=True)
    return [Heard(**each) for each in heard]


def _border(row: Row, x: Tensor) -> float:
    """The mean over responses of the power in their windows, over that of all of x."""
    if row.kind == "linear" or row.kernel == 1:
        return 1.0
    power = x.square().mean((0, 1), keepdim=True)
    whole = float(power.mean())
    window = torch.full((1, 1, row.kernel, row.kernel), 1 / row.kernel**2, dtype=x.dtype)
    reached = F.conv2d(power, window, stride=row.stride, padding=row.padding)
    return float(reached.mean()) / whole if whole else math.nan


@dataclass(frozen=True)
class Effects:
    """Where ln E[y^2] of a layer comes from, as seen from the layer before; the five add up to the difference.

    weights: ln(n Var[w]), the initialiser's. activation: ln(E[f(y)^2] / E[y^2]), on average what its moments say.
    pooling: what the maximum over windows adds. border: what zero padding takes (`Heard.border`). draw: what this draw
    of finitely many weights does beside its variance (and what biases add). NaN where nothing arrived, which has no
    logarithm.
    """

    weights: float
    activation: float
    pooling: float
    border: float
    draw: float


def effects(sites: Sequence[Site], stds: Sequence[float], heard: Sequence[Heard]) -> list[Effects]:
    """Return the Effects of every layer but the first."""

    def ratio(one: float, other: float) -> float:
        return math.log(one / other) if one > 0 and other > 0 else math.nan

    found = []
    for site, std, before, own in zip(sites[1:], stds[1:], heard, heard[1:], strict=False):
        answered = before.answered_second or 0.0
        weights, border = log(site.fans[0] * std**2), ratio(own.border, 1.0)
        expected = site.fans[0] * std**2 * own.border * own.input_second
        found.append(
            Effects(
                weights=weights if math.isfinite(weights) else math.nan,
                activation=ratio(answered, before.second),
                pooling=ratio(own.input_second, answered),
                border=border,
                draw=ratio(own.second, expected),
            )
        )
    return found


def propagate(
    subject: AnalysisSetup, *, seeds: int, images: int, inputs: str, tell: Callable[[int], None]
) -> dict[str, Any]:
    """Return the numbers of the analysis: every layer's moments, measured and predicted, and what they come to.

    tell: is called with 1 after every network. Moments are log10, means over networks with 95 % intervals; None where
    one of them was zero, which has no logarithm, or more than a double holds.

    Raises:
        InputError: for one image and batch normalisation.
    """
    if images == 1 and subject.config["model"]["norm"] == "batch":
        raise InputError("images=1 leaves model.norm=batch nothing to normalise over; give images=2 or more")
    first, plain = subject.config["seed"], subject.config["model"]["norm"] == "none"
    measured, found, powers = [], [], []
    for seed in range(first, first + seeds):
        network, init_report = subject.network(seed)
        given = subject.inputs(inputs, images, seed)
        powers.append(_power(given))
        heard = listen(network, given, subject.score_gradient(len(given), seed))
        stds = [entry.std_asked for entry in init_report]
        measured.append(heard)
        found.append(effects(network.sites(), stds, heard))
        tell(1)
    sites = network.sites()
    steps = predict(sites, network.shapes, stds, torch.stack(powers).mean(0)) if plain else None
    layers = [
        {
            "layer": entry.layer,
            "fan_in": entry.fan_in,
            "fan_out": entry.fan_out,
            "map_px": shape.side or None,
            "std": entry.std_asked,
            "response_mean": _finite(fmean(heard[i].mean for heard in measured)),
            "response_second": _log10([heard[i].second for heard in measured]),
            "response_variance": _log10([heard[i].variance for heard in measured]),
            "gradient_second": _log10([heard[i].gradient_second for heard in measured]),
            "theory": None if steps is None else _theory(steps[i]),
            "effects": None if i == 0 else _mean_effects([each[i - 1] for each in found]),
        }
        for i, (entry, shape) in enumerate(zip(init_report, (s for s in network.shapes if s.row.weighted), strict=True))
    ]
    return {"layers": layers, "total": _total(measured, steps), "activation": init_report[0].activation_after}


def _power(inputs: Tensor) -> Tensor:
    """E[x^2] at every position, [H, W]; [1, 1] of vectors."""
    return inputs.square().mean((0, 1)) if inputs.dim() == 4 else inputs.square().mean().view(1, 1)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _log10(values: Sequence[float]) -> dict[str, Any] | None:
    usable = all(0 < value < math.inf for value in values)
    return asdict(mean_of([math.log10(value) for value in values])) if usable else None


def _in_log10(natural: float) -> float | None:
    return natural / math.log(10) if math.isfinite(natural) else None


def _theory(step: Step) -> dict[str, Any]:
    width = step.width
    return {
        "response": _in_log10(step.response),
        "response_on_maps": _in_log10(step.response_on_maps),
        "gradient": _in_log10(step.gradient),
        "gradient_on_maps": _in_log10(step.gradient_on_maps),
        "width_drift": width and _in_log10(width.drift),
        "width_spread": width and _in_log10(width.spread),
    }


def _mean_effects(found: Sequence[Effects]) -> dict[str, float | None]:
    return {key: _in_log10(fmean(getattr(each, key) for each in found)) for key in Effects.__dataclass_fields__}


def _total(measured: Sequence[Sequence[Heard]], steps: Sequence[Step] | None) -> dict[str, Any]:
    """From the first layer's responses to the last's, and from the last's gradients to the first's, in log10."""

    def change(ends: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
        return _log10([b / a if 0 < a < math.inf else 0.0 for a, b in ends])

    def predicted(key: str, first: int, last: int) -> float | None:
        return None if steps is None else _in_log10(getattr(steps[last], key) - getattr(steps[first], key))

    width = steps[-1].width if steps else None
    return {
        "steps": len(measured[0]) - 1,
        "forward": {
            "measured": change([(heard[0].second, heard[-1].second) for heard in measured]),
            "theory": predicted("response", 0, -1),
            "on_maps": predicted("response_on_maps", 0, -1),
            "width_drift": width and _in_log10(width.drift),
            "width_spread": width and _in_log10(width.spread),
        },
        "backward": {
            "measured": change([(heard[-1].gradient_second, heard[0].gradient_second) for heard in measured]),
            "theory": predicted("gradient", -1, 0),
            "on_maps": predicted("gradient_on_maps", -1, 0),
        },
    }
