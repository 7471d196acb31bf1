"""Activations that are shaped for the depth of a network, so that deep chains train without
shortcuts or normalisation: tailored leaky ReLUs (TAT) and deep kernel shaping (DKS).

Their parameters follow from the effect of a chain of `depth` nonlinear layers, with weights of
variance 1/n, on the correlation of two inputs. Their E[f(z)^2] is 1, so the gain is 1, and `he` and
`lecun` draw the same weights."""

import functools
import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.quadrature import normal_rule, root_between, value_and_slope
from rectifiers.runtime.errors import InputError

SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "silu": F.silu,
    "gelu": F.gelu,
}
SHIFTS = [step / 4 for step in range(17)]  # of the input, in either direction, to solve for
SCALES, SCALE_STEP = (1e-3, 30.0), 1.5  # of the input
LARGEST_Z = 8.0  # in expectations of functions that grow no faster than a line


class TailoredLeakyReLU(nn.Module):
    """scale * LeakyReLU(y), with the scale sqrt(2 / (1 + slope^2)) that keeps the mean square of
    normal numbers."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope, self.scale = slope, math.sqrt(2 / (1 + slope**2))

    def forward(self, y: Tensor) -> Tensor:
        return self.scale * F.leaky_relu(y, self.slope)

    def extra_repr(self) -> str:
        return f"slope={self.slope:.6g}"


class ShapedFunction(nn.Module):
    """output_scale * (phi(input_scale * y + input_shift) + output_shift), with phi one of
    SMOOTH."""

    def __init__(
        self,
        function: str,
        input_scale: float,
        input_shift: float,
        output_scale: float,
        output_shift: float,
    ) -> None:
        super().__init__()
        self.function = function
        self.input_scale, self.input_shift = input_scale, input_shift
        self.output_scale, self.output_shift = output_scale, output_shift

    def forward(self, y: Tensor) -> Tensor:
        return self.output_scale * (
            SMOOTH[self.function](self.input_scale * y + self.input_shift) + self.output_shift
        )

    def extra_repr(self) -> str:
        numbers = (self.input_scale, self.input_shift, self.output_scale, self.output_shift)
        return ", ".join([self.function, *(f"{number:.6g}" for number in numbers)])


def check_depth(depth: int | None) -> int:
    """Return a depth; an InputError where it is not known."""
    if depth is None:
        raise InputError(
            "activation.depth=null is known of a network of rows with one activation alone; give "
            "the number of nonlinear layers on the longest way through the network, such as 19"
        )
    return depth


@functools.cache
def leaky_slope(depth: int, similarity: float) -> float:
    """Return the smallest slope for which a chain of `depth` layers gives orthogonal inputs a
    correlation of at most `similarity`.

    Zhang, Botev and Martens (2022): C_f(0) = similarity, with the correlation map of a leaky ReLU
    composed `depth` times. The slope is 0, a ReLU, if even that stays below, as in shallow
    networks."""

    def end(slope: float) -> float:
        """The correlation of orthogonal inputs after `depth` layers."""
        folded, c = (1 - slope) ** 2 / (math.pi * (1 + slope**2)), 0.0
        for _ in range(depth):
            c = min(1.0, c + folded * (math.sqrt(1 - c**2) - c * math.acos(c)))
        return c

    if end(0.0) <= similarity:
        return 0.0
    return root_between(lambda slope: end(slope) - similarity, 0.0, 1.0)


@functools.cache
def shape(function: str, depth: int, slope: float) -> tuple[float, float, float, float]:
    """Return the numbers of deep kernel shaping, in the order of ShapedFunction's (Martens et al.
    2021, section 4).

    The conditions for one layer, with z ~ N(0, 1), are: E[f] = 0, so that orthogonal inputs stay
    orthogonal; E[f^2] = 1; E[z f f'] = 1, so that an error of the variance neither grows nor fades;
    and E[f'^2] = slope^(1 / depth), so that the correlation map of the whole chain has this slope
    at 1. Of several solutions, the one with the smallest input shift is returned.

    Raises:
        InputError: if there is no solution.
    """
    of_layer = slope ** (1 / depth)

    def excess(shift: float) -> float:
        """By how much E[z f f'] exceeds 1 at the scale that gives E[f'^2]; NaN without one."""
        scale = _input_scale(function, shift, of_layer)
        return math.nan if scale is None else _moments(function, scale, shift)[3] - 1

    for direction in (1, -1):
        before = excess(0.0)
        for near, far in itertools.pairwise(SHIFTS):
            after = excess(direction * far)
            if before * after <= 0:
                shift = root_between(excess, direction * near, direction * far)
                scale = _input_scale(function, shift, of_layer)
                assert scale is not None
                mean, variance, *_ = _moments(function, scale, shift)
                return scale, shift, variance**-0.5, -mean
            before = after
    raise InputError(
        f"activation.function={function} has no form of which {depth} layers make a slope of "
        f"{slope:g}; lower activation.slope, or choose another function"
    )


def _input_scale(function: str, shift: float, derivative_second: float) -> float | None:
    """Return the smallest scale that gives E[f'^2] at a shift; None where no scale does."""

    def excess(scale: float) -> float:
        return _moments(function, scale, shift)[2] - derivative_second

    low, high = SCALES
    if excess(low) > 0:
        return None

    scale = low
    while excess(scale) <= 0:
        low, scale = scale, scale * SCALE_STEP
        if scale > high:
            return None
    return root_between(excess, low, scale)


def _moments(function: str, scale: float, shift: float) -> tuple[float, float, float, float]:
    """Return (E[g], Var[g], E[f'^2], E[z f f']) of g(z) = phi(scale z + shift) and f, g with mean 0
    and variance 1."""
    z, weights = normal_rule()
    near = z.abs() < LARGEST_Z
    z, weights = z[near], weights[near]
    g, derivative = value_and_slope(lambda z: SMOOTH[function](scale * z + shift), z)
    mean = float(weights @ g)
    centred = g - mean
    variance = float(weights @ centred.square())
    chi = float(weights @ derivative.square())
    growth = float(weights @ (z * centred * derivative))
    return mean, variance, chi / variance, growth / variance
