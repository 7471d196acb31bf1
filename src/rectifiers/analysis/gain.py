"""The gains of activations, how stable they are, and what that comes to after many layers, measured beside it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from statistics import stdev
from typing import Any

import torch
from torch import nn

from rectifiers.nn.activations import Moments, moments, pieces
from rectifiers.results.statistics import mean_of
from rectifiers.runtime.seeds import derive_seed
from rectifiers.theory.propagation import fluctuation, width_effect

Factory = Callable[[int], nn.Module]
NEUTRAL = 1e-3  # of the slope of the variance map


def gains(
    activations: Mapping[str, Factory], *, seeds: int, depth: int, units: int, images: int, tell: Callable[[int], None]
) -> dict[str, Any]:
    """Return a row for each of `activations`: its gains, the stability of the fixed point, and a deep net's fate.

    forward_gain2 = 1 / E[f^2] and backward_gain2 = 1 / E[f'^2] stand on Var[w] of Eq. 10 and 14. chi = E[f'^2] / E[f^2]
    (times Maxout's pieces, as every unit is reached by that many responses) multiplies the gradients a layer where the
    responses are kept; the first layer's are those of all pieces, of which one has a gradient. map_slope multiplies a
    relative error of the variance a layer. After `depth` layers of `units` units with the forward gain: log10 E[y^2]
    and log10 of what is left of E[dy^2] at the first layer, predicted and measured over `seeds` draws. A moment that is
    0 or infinite leaves no gain: None.
    """
    rows = []
    for name, factory in activations.items():
        found = moments(factory(units), units)
        usable = all(0 < moment < math.inf for moment in (found.second, found.derivative_second))
        ends = []
        for seed in range(seeds if usable else 0):
            ends.append(chain(factory, found.second**-0.5, depth=depth, units=units, images=images, seed=seed))
            tell(1)
        rows.append({"activation": name, **_row(factory(units), found, usable, depth, units)})
        rows[-1] |= {
            "forward": _summary([forward for forward, _ in ends]),
            "backward": _summary([backward for _, backward in ends]),
        }
    return {"rows": rows}


def _row(activation: nn.Module, found: Moments, usable: bool, depth: int, units: int) -> dict[str, Any]:
    v = fluctuation(activation, units) if usable else None
    width = width_effect([(v, units, found.map_slope)] * (depth - 1))
    chi = pieces(activation) * found.derivative_second / found.second if usable else None
    return {
        "second": _finite(found.second),
        "derivative_second": _finite(found.derivative_second),
        "forward_gain2": 1 / found.second if usable else None,
        "backward_gain2": 1 / found.derivative_second if usable else None,
        "chi": chi,
        "map_slope": _finite(found.map_slope),
        "fixed_point": stability(found.map_slope),
        "error_growth": found.map_slope ** (depth - 1) if math.isfinite(found.map_slope) else None,
        "fluctuation": v,
        "predicted_drift": width and width.drift / math.log(10),
        "predicted_spread": width and width.spread / math.log(10),
        "predicted_backward": chi and (depth - 1) * math.log10(chi) - math.log10(pieces(activation)),
    }


def stability(map_slope: float) -> str | None:
    """Return whether the variance that the gain keeps attracts, repels, or neither."""
    if not math.isfinite(map_slope):
        return None
    return "neutral" if abs(map_slope - 1) < NEUTRAL else "attracts" if map_slope < 1 else "repels"


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _summary(values: list[float | None]) -> dict[str, Any] | None:
    kept = [value for value in values if value is not None]
    if not kept or len(kept) < len(values):
        return None
    return {**asdict(mean_of(kept)), "spread": stdev(kept) if len(kept) > 1 else None, "values": kept}


def chain(
    factory: Factory, gain: float, *, depth: int, units: int, images: int, seed: int
) -> tuple[float | None, float | None]:
    """Return log10 of E[y_L^2] and of E[dy_1^2] / E[dy_L^2] in a chain of `depth` layers without biases, in double.

    The inputs, N(0, 1), and the last gradients are drawn by `seed` too; the first layer has Var[w] = 1/n, so that
    E[y_1^2] = 1. None for what became 0 or more than a double holds.
    """
    generator = torch.Generator().manual_seed(derive_seed("analysis", "chain", seed))
    x = torch.randn(images, units, dtype=torch.float64, generator=generator)
    responses = []
    with torch.enable_grad():
        for layer in range(depth):
            activation = factory(units).double()
            emitted = units * (1 if layer == depth - 1 else pieces(activation))
            weight = torch.randn(emitted, units, dtype=torch.float64, generator=generator)
            y = x @ weight.T * ((gain if layer else 1.0) / math.sqrt(units))
            responses.append(y if y.requires_grad else y.requires_grad_())
            if layer < depth - 1:
                x = activation(y.clone())  # a copy, for activations that work in place
        last = responses[-1]
        sent = torch.randn(last.shape, dtype=torch.float64, generator=generator)
        received = torch.autograd.grad(last, responses[0], sent)[0]
    forward, backward = float(last.detach().square().mean()), float(received.square().mean() / sent.square().mean())
    return tuple(math.log10(e) if 0 < e < math.inf else None for e in (forward, backward))  # type: ignore[return-value]
