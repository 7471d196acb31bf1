"""The phase diagram of an activation: where wide chains are ordered, critical or chaotic, and He's
point in it."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from rectifiers.analysis import output
from rectifiers.gains import describe, gain
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import finite
from rectifiers.runtime.console import progress_bar
from rectifiers.theory.mean_field import (
    chi_1,
    depth_scales,
    edge_of_chaos,
    phase,
    variance_map,
    variance_slope,
)
from rectifiers.training.functions import import_function

VARIANCES = np.logspace(-3, 3, 97)  # of responses, at which the maps are computed; 1 is among them
START = 48  # its place
POINTS = 60  # of each axis
WEIGHTS, BIASES = 2.5, 0.5  # the diagram's ends: weight variance by He's, bias variance


def analyse(config: RunConfig) -> dict[str, Any]:
    """Return chi_1 at the fixed point over weight and bias variance, the edge of chaos, and what
    He's point is.

    chi: rows by bias variance, columns by weight variance; None where the variance grows for ever,
    and its limit for small responses where they vanish. edge: (weight variance, bias variance, q)
    by growing q, as far as the diagram goes. he: its weight variance 1 / E[f^2], the slopes of both
    maps at q = 1 there, the depth scales, and the (weight, bias) variance of the edge at the same
    q, None where that of the biases would be negative.

    Raises:
        InputError: for an activation that has no gain, or none of whose moments but those for q = 1
        are known.
    """
    activation = import_function("activation", config.activation_at_depth())(1)
    he = gain(activation) ** 2
    weights = np.linspace(0, WEIGHTS * he, POINTS + 1)[1:]
    biases = np.linspace(0, BIASES, POINTS)
    second, derivative, edge = [], [], []
    with progress_bar("computing", len(VARIANCES), "variances") as advance:
        for q in VARIANCES:
            second.append(variance_map(activation, q, weight_variance=1))
            derivative.append(chi_1(activation, q, weight_variance=1))
            point = edge_of_chaos(activation, q)
            if point and point[0] <= weights[-1] and point[1] <= BIASES:
                edge.append([*point, float(q)])
            advance(1)
    maps = np.array(second), np.array(derivative)
    chi = chi_1(activation, 1.0, weight_variance=he)
    scales = depth_scales(activation, 1.0, weight_variance=he)
    return {
        "activation": describe(activation),
        "weight_variances": weights.tolist(),
        "bias_variances": biases.tolist(),
        "chi": [[finite(_chi(*maps, weight, bias)) for weight in weights] for bias in biases],
        "edge": edge,
        "he": {
            "weight_variance": he,
            "chi_1": chi,
            "phase": phase(chi),
            "variance_slope": variance_slope(activation, 1.0, weight_variance=he),
            "variance_scale": finite(scales.variance),
            "correlation_scale": finite(scales.correlation),
            "edge": edge_of_chaos(activation, 1.0),
        },
    }


def _chi(second: np.ndarray, derivative: np.ndarray, weight: float, bias: float) -> float:
    """Return chi_1 where the variance map comes to from 1, between the VARIANCES; infinite where it
    never stops."""
    excess = weight * second + bias - VARIANCES
    if abs(excess[START]) < 1e-9:
        return float(weight * derivative[START])
    grows = excess[START] > 0
    places = range(START, len(VARIANCES)) if grows else range(START, -1, -1)
    i = next((i for i in places if excess[i] * excess[START] <= 0), None)
    if i is None:
        return math.inf if grows else float(weight * derivative[0])
    before = i - 1 if grows else i + 1
    share = excess[before] / (excess[before] - excess[i])
    return float(weight * (derivative[before] + share * (derivative[i] - derivative[before])))


def report(numbers: dict[str, Any]) -> list[Table]:
    """Return what He's point is, and how far from the edge of chaos; depths that are infinite have
    no number."""
    he = numbers["he"]
    weight, bias = he["edge"] or (None, None)
    values = {
        "weight variance n Var[w] = 1/E[f²]": he["weight_variance"],
        "χ₁, slope of the correlation map at 1": he["chi_1"],
        "slope of the variance map": he["variance_slope"],
        "depth scale of the variance": he["variance_scale"],
        "depth scale of the correlation": he["correlation_scale"],
        "edge of chaos at the same E[y²]: n Var[w]": weight,
        "edge of chaos at the same E[y²]: Var[b]": bias,
    }
    rows = [{"": name, "value": value} for name, value in values.items()]
    title = f"{numbers['activation']}: He's point (biases 0, E[y²] = 1) is {he['phase']}"
    return [output.table(title, rows)]


def plot(numbers: dict[str, Any]) -> Figure:
    """Draw chi_1 over weight and bias variance, the edge of chaos and He's point."""
    weights, biases, he = numbers["weight_variances"], numbers["bias_variances"], numbers["he"]
    figure = output.new_figure(6.6, 4.6)
    axes = figure.subplots()
    chi = np.array(numbers["chi"], dtype=float)  # None: NaN, drawn as the grey behind
    style: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -0.5, "vmax": 0.5, "shading": "nearest"}
    mesh = axes.pcolormesh(weights, biases, np.log10(np.maximum(chi, 1e-9)), **style)
    axes.set_facecolor("#cccccc")
    figure.colorbar(mesh, label="log10 χ₁: below 0 ordered, above 0 chaotic", extend="both")
    if numbers["edge"]:
        edge = np.array(numbers["edge"])
        axes.plot(edge[:, 0], edge[:, 1], ".-", ms=3, color="black", label="edge of chaos, χ₁ = 1")
    mark: dict[str, Any] = {"ms": 14, "color": output.MAPS, "mec": "black", "clip_on": False}
    label = f"He's point, χ₁ = {he['chi_1']:.3f}"
    axes.plot([he["weight_variance"]], [0], "*", label=label, **mark)
    axes.set_title(f"{numbers['activation']}; grey: the signal grows for ever", fontsize=8)
    output.label_axes(axes, grid="both", xlabel="n Var[w]", ylabel="Var[b]")
    return figure
