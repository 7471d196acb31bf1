"""Expectations of functions of normal numbers by quadrature, and whether a function has them.
Needs torch and numpy alone."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rectifiers.runtime.errors import InputError

LAST_NODE = 12.0  # end of the rule's panels; the normal density beyond it is below 1e-31
PANEL = 0.25  # edges fall on kinks at multiples of it: 0 (ReLU), +-1 (hardtanh), +-3 (hardswish)
NODES_PER_PANEL = 16
EXAMPLES = 8  # of numbers, on which an activation is tried


@dataclass(frozen=True)
class Moments:
    """Moments of an activation f for z ~ N(0, 1), from which variance propagation follows.

    second: E[f(z)^2]. The forward condition is n Var[w] = 1 / second (1/2 for ReLU: Eq. 10).
    derivative_second: E[f'(z)^2], which has the same role in the backward condition (Eq. 14).
    map_slope: d ln E[f(y)^2] / d ln E[y^2] at variance 1: the factor by which a layer multiplies a
        relative error of the variance. It is 1 for rectifiers. Below 1 the fixed point attracts
        (tanh). Above 1 it repels (GELU), and the signal of deep networks without normalisation
        drifts.

    Examples:
        >>> Moments(second=0.5, derivative_second=0.5, map_slope=1.0).second ** -0.5  # the gain
        1.4142135623730951
    """

    second: float
    derivative_second: float
    map_slope: float


@functools.cache
def normal_rule() -> tuple[Tensor, Tensor]:
    """Return nodes and weights, each float64 [nodes], with sum(weights * f(nodes)) = E[f(z)] for
    z ~ N(0, 1).

    Gauss-Legendre on short panels, not Gauss-Hermite on the whole line: a global rule loses most of
    its digits at a kink (200 Hermite nodes leave 1e-5 for ELU), and a rule with an odd number of
    nodes has one exactly at ReLU's."""
    x, w = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    left = np.arange(-LAST_NODE, LAST_NODE, PANEL)
    nodes = (left[:, None] + PANEL * (x + 1) / 2).ravel()
    weights = np.tile(w * PANEL / 2, len(left)) * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    return torch.from_numpy(nodes), torch.from_numpy(weights)


def normal_mean(f: Callable[[Tensor], Tensor]) -> float:
    """Return E[f(z)] for z ~ N(0, 1); `f` maps float64 [nodes] to [nodes] elementwise."""
    nodes, weights = normal_rule()
    return float((weights * f(nodes)).sum())


def value_and_slope(function: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """Return f(z) and f'(z) of an elementwise function by autograd; f' is 0 where f is not
    differentiable in z, as a step function."""
    with torch.enable_grad():
        leaf, slope = z.detach().requires_grad_(), torch.zeros_like(z)
        f = function(leaf.clone())  # a copy, because the function may work in place
        if f.requires_grad:
            (slope,) = torch.autograd.grad(f.sum(), leaf, allow_unused=True, materialize_grads=True)
    return f.detach(), slope


def root_between(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-12
) -> float:
    """Return where a continuous, finite `function` changes its sign between `low` and `high`, by
    Ridders' method.

    tolerance: of the result, relative to 1 or to its own size.

    Raises:
        ValueError: where both ends have one sign.

    >>> f"{root_between(lambda x: x**2 - 2, 0, 2):.10f}"
    '1.4142135624'
    """
    at_low, at_high = function(low), function(high)
    if at_low == 0 or at_high == 0:
        return low if at_low == 0 else high
    if not at_low * at_high < 0:
        raise ValueError(f"no root: {at_low:g} at {low:g} and {at_high:g} at {high:g}")

    root = math.inf
    while True:
        middle = (low + high) / 2
        at_middle = function(middle)
        # the root of the line through the three points, which a factor exp(x) has put on one
        rise = (middle - low) * math.copysign(1, at_low) * at_middle
        before, root = root, middle + rise / math.sqrt(at_middle**2 - at_low * at_high)
        at_root = function(root)
        if at_root == 0 or abs(root - before) <= tolerance * max(1.0, abs(root)):
            return root

        # the smallest of the parts in which the sign changes
        if at_middle * at_root < 0:
            low, at_low, high, at_high = middle, at_middle, root, at_root
        elif at_low * at_root < 0:
            high, at_high = root, at_root
        else:
            low, at_low = root, at_root


def describe(activation: nn.Module) -> str:
    """Return the module with its settings in one line: LeakyReLU(negative_slope=0.01)."""
    return " ".join(repr(activation).split())


def is_elementwise(function: Callable[..., Any], tensors: Sequence[Tensor]) -> bool:
    """Return whether each number of the result depends on the numbers of `tensors` in its own place
    alone."""
    if any(x.shape != tensors[0].shape or not x.numel() for x in tensors):
        return False

    generator, place = torch.Generator().manual_seed(0), tensors[0].numel() // 2
    drawn = [
        torch.randn(x.shape, generator=generator, dtype=torch.float32, device="cpu").to(x)
        for x in tensors
    ]
    disturbed = [x.clone() for x in drawn]
    for x in disturbed:
        x.view(-1)[place] += 10
    try:  # on copies, because a function may work in place
        out = function(*(x.clone() for x in drawn))
        other = function(*(x.clone() for x in disturbed))
    except Exception:
        return False
    if not isinstance(out, Tensor) or out.shape != drawn[0].shape:
        return False
    changed = ~torch.isclose(out, other, rtol=0, atol=0, equal_nan=True).reshape(-1)
    changed[place] = False
    return not bool(changed.any())


def no_moments(activation: nn.Module, reason: str) -> InputError:
    """Return the error of an activation whose moments quadrature cannot find."""
    return InputError(
        f"activation {describe(activation)} {reason}, so its moments cannot be found by "
        "quadrature; give it a method `moments()` that returns rectifiers.Moments, or use an "
        "initialiser that needs no gain, such as init=gaussian"
    )
