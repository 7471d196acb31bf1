"""An activation on paper: its curve, moments and gain, the maps of variance and correlation, and
deep signals."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rectifiers.activation_modules import outputs, pieces
from rectifiers.gains import normal_mean
from rectifiers.runs.record import finite
from rectifiers.runtime.errors import InputError
from rectifiers.theory import mean_field
from rectifiers.theory.stability import stability

DEPTHS = (10, 30, 100, 300, 1000)
OFF = 1.1  # of the fixed point's variance, where a signal starts that is 10 % too strong
CONVERGED = 1e-9  # relative change of a variance per layer
SMALLEST, LARGEST = (
    2 * mean_field.SMALLEST,
    mean_field.LARGEST / 2,
)  # of a variance that is followed
FLAT = 0.05  # of |f'|, below which a response counts as saturated
CURVE = 81  # points from -4 to 4
CORRELATION_LAYERS = 100


def theory_section(activation: nn.Module, weight_variance: float) -> dict[str, Any]:
    """Return the theory of wide chains with `activation` and weights of variance weight_variance /
    n, no biases.

    What cannot be said of this activation is None, and `unknown` says why.
    """
    known = stability(activation, DEPTHS[-1])
    found: dict[str, Any] = {
        "weight_variance": weight_variance,
        "gain": known.gain,
        "chi": known.chi,
        "map_slope": known.map_slope,
        "fixed_point_word": known.fixed_point,
        "fluctuation": known.fluctuation,
        "curve": None,
        "flat_share": None,
        "fixed_point": None,
        "chi_1": None,
        "phase": None,
        "correlation_fixed_point": None,
        "variance_depth": None,
        "correlation_depth": None,
        "correlations": None,
        "signal": None,
        "unknown": None,
    }
    if pieces(activation) > 1 or outputs(activation) > 1:
        return {
            **found,
            "unknown": "it is no function of one number, so no map of correlations is known",
        }
    try:
        return {**found, **_curve(activation), **_maps(activation, weight_variance)}
    except InputError as error:
        return {**found, "unknown": str(error)}


def _curve(activation: nn.Module) -> dict[str, Any]:
    """The function and its derivative on a grid, and the share of N(0, 1) at which it is flat."""
    exact = activation.double().eval()

    def slope(z: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            given = z.clone().requires_grad_()
            return torch.autograd.grad(_column(exact, given).sum(), given)[0]

    z = torch.linspace(-4, 4, CURVE, dtype=torch.float64)
    with torch.no_grad():
        values = _column(exact, z)
    return {
        "curve": {"z": z.tolist(), "f": values.tolist(), "slope": slope(z).tolist()},
        "flat_share": normal_mean(lambda nodes: (slope(nodes).abs() < FLAT).double()),
    }


def _column(activation: nn.Module, z: torch.Tensor) -> torch.Tensor:
    """The mean over channels of f at the numbers z, [N]."""
    channels = max((p.numel() for p in activation.parameters() if p.dim() == 1), default=1)
    return activation(z[:, None].repeat(1, channels)).mean(1)


def _maps(activation: nn.Module, weight_variance: float) -> dict[str, Any]:
    settings = {"weight_variance": weight_variance}
    q = mean_field.fixed_point(activation, **settings)
    found: dict[str, Any] = {
        "fixed_point": finite(q),
        "signal": _signal(activation, weight_variance),
    }
    if not SMALLEST < q < LARGEST:
        return found
    chi = mean_field.chi_1(activation, q, **settings)
    scales = mean_field.depth_scales(activation, q, **settings)
    return {
        **found,
        "chi_1": chi,
        "phase": mean_field.phase(chi),
        "map_slope": mean_field.variance_slope(activation, q, **settings),
        "correlation_fixed_point": mean_field.correlation_fixed_point(activation, q, **settings),
        "variance_depth": finite(scales.variance),
        "correlation_depth": finite(scales.correlation),
        "correlations": _correlations(
            lambda c: mean_field.correlation_map(activation, c, q, **settings)
        ),
    }


def _correlations(step: Callable[[float], float]) -> dict[str, float]:
    """The correlation of two inputs that began orthogonal, after some numbers of layers."""
    c, found = 0.0, {}
    for layer in range(1, CORRELATION_LAYERS + 1):
        c = max(-1.0, min(1.0, step(c)))
        if layer in DEPTHS:
            found[str(layer)] = c
    return found


def _signal(activation: nn.Module, weight_variance: float) -> dict[str, Any]:
    """Of `DEPTHS` layers: log10 E[y^2] from 1 and from OFF, and log10 of what is left of the
    gradients' mean square.

    None where the signal is gone: below SMALLEST or above LARGEST.
    """
    ways = {
        name: _followed(activation, weight_variance, start)
        for name, start in (("kept", 1.0), ("off", OFF))
    }
    return {
        str(depth): {
            "kept": ways["kept"][depth][0],
            "off": ways["off"][depth][0],
            "gradient": ways["kept"][depth][1],
        }
        for depth in DEPTHS
    }


def _followed(
    activation: nn.Module, weight_variance: float, start: float
) -> dict[int, tuple[float | None, float | None]]:
    """(log10 q, log10 of the product of chi_1) after each of `DEPTHS` layers, from a variance
    `start`."""
    q, gradient, layer = start, 0.0, 1
    factor, has_converged = 0.0, False
    found: dict[int, tuple[float | None, float | None]] = {}
    for depth in DEPTHS:
        while layer < depth and SMALLEST < q < LARGEST:
            if not has_converged:
                chi = mean_field.chi_1(activation, q, weight_variance=weight_variance)
                factor = math.log10(chi) if chi > 0 else -math.inf
                after = mean_field.variance_map(activation, q, weight_variance=weight_variance)
                has_converged, q = abs(after / q - 1) < CONVERGED, after
            gradient += factor
            layer += 1
        is_there = layer == depth and SMALLEST < q < LARGEST
        found[depth] = (math.log10(q), finite(gradient)) if is_there else (None, None)
    return found
