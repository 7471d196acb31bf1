"""The gains of activations, how stable they are, and what that comes to after many layers, measured
beside it."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.figure import Figure
from pandas import DataFrame
from rich.console import Group
from torch import nn

from rectifiers.activations.modules import pieces
from rectifiers.analysis import output
from rectifiers.analysis.propagation import measure_signal
from rectifiers.analysis.setup import generator, log10_mean
from rectifiers.gains import moments
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.runs.config import RunConfig
from rectifiers.runs.sections import Target
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject, checked
from rectifiers.theory.stability import stability
from rectifiers.training.targets import import_function

Factory = Callable[[int], nn.Module]
UNITS, IMAGES = 256, 64  # of a chain that is measured, and its Gaussian inputs
COLUMNS = {
    "activation": "activation",
    "1/E[f²]": "forward_gain2",
    "1/E[f'²]": "backward_gain2",
    "χ": "chi",
    "map slope": "map_slope",
    "fixed point": "fixed_point",
    "E[y²] predicted": "predicted_drift",
    "std over draws": "predicted_spread",
    "E[y²]": "forward",
    "E[Δy²] predicted": "predicted_backward",
    "E[Δy²]": "backward",
}
STABILITY = {"attracts": "#3a7d44", "neutral": output.THEORY, "repels": output.MAPS}


def analyse(
    config: RunConfig, *, seeds: int, depth: int, beside: Sequence[str] | None = None
) -> JsonObject:
    """Return `gains` of the activation of `config`, and of those in conf/activation that `beside`
    names, or of all."""
    import_function("activation", config.activation)  # this one has to work; the others may fail
    chosen = config.activation.as_dict()
    paths = sorted((CONF / "activation").glob("*.yaml"))
    settings = {path.stem: load_yaml(path.read_text()) for path in paths}
    if unknown := sorted({*(beside or ())} - settings.keys()):
        known = ", ".join(settings)
        raise InputError(f"beside has {', '.join(unknown)}; give names from: {known}")
    if beside is not None:
        settings = {name: s for name, s in settings.items() if name in beside or s == chosen}
    if chosen not in settings.values():  # a function of the user's
        settings[f"{config.activation.target.rpartition('.')[2]} (yours)"] = chosen
    factories = {name: _imported_at_use(s, depth) for name, s in settings.items()}
    return gains(factories, seeds=seeds, depth=depth)


def _imported_at_use(settings: JsonObject, depth: int) -> Factory:
    """Return what builds an activation, which is imported once and at its first use: where that
    fails, the others are measured all the same."""

    @functools.cache
    def imported() -> Factory:
        target = checked(Target, settings, "activation.").at_depth(depth - 1)
        return import_function("activation", target)

    def build(units: int) -> nn.Module:
        return imported()(units)

    return build


def gains(
    activations: Mapping[str, Factory], *, seeds: int, depth: int, units: int = UNITS
) -> JsonObject:
    """Return a row for each of `activations`: its gains, its `Stability`, and a deep net's fate.

    forward_gain2 = 1 / E[f^2] and backward_gain2 = 1 / E[f'^2] stand on Var[w] of Eq. 10 and 14,
    and are None where a moment is 0 or infinite. After `depth` layers of `units` units with the
    forward gain: log10 E[y^2] and log10 of what is left of E[dy^2] at the first layer, predicted
    and measured over `seeds` draws. `failed` has the message of an activation that raises an
    error."""
    rows, failed = [], {}
    with progress_bar("measuring", seeds * len(activations), "networks") as advance:
        for name, factory in activations.items():
            try:
                rows.append({"activation": name, **_row(factory, seeds, depth, units)})
            except Exception as error:  # a user's unfinished activation may raise anything
                kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
                failed[name] = kind + " ".join(str(error).split())
            advance(seeds)
    return {"rows": rows, "failed": failed}


def _row(factory: Factory, seeds: int, depth: int, units: int) -> JsonObject:
    activation = factory(units)
    unit, fate = moments(activation), stability(activation, depth, units=units)
    ends: list[tuple[float, float]] = []
    if fate.gain:  # without one there is no chain to measure
        ends = [chain(factory, fate.gain, depth=depth, units=units, seed=s) for s in range(seeds)]

    predicted_backward = None
    if fate.chi:
        growth = (depth - 1) * math.log10(fate.chi)
        predicted_backward = growth - math.log10(pieces(activation))

    return {
        "forward_gain2": fate.gain and 1 / unit.second,
        "backward_gain2": fate.gain and 1 / unit.derivative_second,
        "chi": fate.chi,
        "map_slope": fate.map_slope,
        "fixed_point": fate.fixed_point,
        "predicted_drift": fate.width and fate.width.drift / math.log(10),
        "predicted_spread": fate.width and fate.width.spread / math.log(10),
        "predicted_backward": predicted_backward,
        "forward": log10_mean([forward for forward, _ in ends]),
        "backward": log10_mean([backward for _, backward in ends]),
    }


def chain(
    factory: Factory, gain: float, *, depth: int, units: int, seed: int
) -> tuple[float, float]:
    """Return E[y_L^2] and E[dy_1^2] / E[dy_L^2] in a chain of `depth` layers without biases, in
    double.

    Inputs and last gradients are N(0, 1); the first layer has Var[w] = 1/n, so that E[y_1^2] =
    1."""
    stream = generator("chain", seed)
    hidden = {"name": "fc", "linear": units, "repeat": depth - 1}
    rows = expand([hidden, {"name": "out", "linear": "classes"}], width=1, classes=units)
    network = Network(rows, factory, channels=1, input_px=1, flat_input=units)

    for layer, site in enumerate(network.sites()):
        std = (gain if layer else 1.0) / math.sqrt(site.fans[0])
        nn.init.normal_(site.module.weight, std=std, generator=stream)
        site.module.bias = None

    x, gradient = (torch.randn(IMAGES, units, generator=stream) for _ in range(2))
    first, *_, last = measure_signal(network, x, gradient)
    return last.second, first.gradient_second / last.gradient_second


def report(numbers: JsonObject) -> list[Group | str]:
    """Return a line per activation, and those that repel or cannot be used."""
    title = (
        f"gains; and log10 of what {numbers['request']['depth']} layers with 1/E[f²] make of a "
        "signal, mean ± half of the 95 % interval over draws"
    )
    lines = [f"{name} cannot be measured: {error}" for name, error in numbers["failed"].items()]
    rows = numbers["rows"]
    if repelling := [row["activation"] for row in rows if row["fixed_point"] == "repels"]:
        lines.append(
            f"the fixed point repels, so deep plain networks leave it: {', '.join(repelling)}; "
            "use few layers, normalisation, or a rectifier"
        )
    return [output.table(title, rows, COLUMNS), *lines]


def plot(numbers: JsonObject) -> Figure:
    """Draw the slope of each activation's variance map, and what is left of signals after many
    layers."""
    rows = DataFrame(numbers["rows"], columns=list(COLUMNS.values())).set_index("activation")
    rows = rows[rows.forward_gain2.notna()].sort_values("map_slope")
    figure = output.new_figure(10.5, 0.32 * len(rows) + 1.6)
    figure.suptitle("dots: draws; bars: predicted, ± 2 std for the width", fontsize=10)

    slopes, *signals = figure.subplots(1, 3, sharey=True)
    slopes.barh(rows.index, rows.map_slope, color=list(rows.fixed_point.map(STABILITY)))
    slopes.axvline(1, color="black", lw=0.8)
    slopes.set(xlabel="slope of the variance map: above 1 it repels")

    spreads = 2 * rows.predicted_spread.astype(float).fillna(0)
    response = f"log10 E[y²] after {numbers['request']['depth']} layers"
    gradient = "log10 E[Δy²] at the first, last = 1"
    style: JsonObject = {"fmt": "|", "ms": 10, "color": output.THEORY, "capsize": 3}
    for axes, moment, predicted, xerr, label in (
        (signals[0], "forward", "predicted_drift", spreads, response),
        (signals[1], "backward", "predicted_backward", None, gradient),
    ):
        for name, measured in rows[moment].dropna().items():
            places = [name] * len(measured["values"])
            axes.plot(measured["values"], places, "o", ms=4, color=output.MEASURED, alpha=0.6)
        axes.errorbar(rows[predicted].astype(float), rows.index, xerr=xerr, **style)
        axes.axvline(0, color="black", lw=0.8)
        axes.grid(axis="x", alpha=0.3)
        axes.set(xlabel=label)
    return figure
