"""Activation modules that torch lacks.

An activation reads `pieces` channels and returns `outputs` channels per unit of its layer. Both are
1 unless the module has such an attribute. A module may state its moments in a method `moments()`.

Two activations (`tat_leaky_relu` and `dks`) are shaped for the depth of a network, so that deep
chains train without shortcuts or normalisation. Their parameters follow from the effect of a chain
of `depth` nonlinear layers, with weights of variance 1/n, on the correlation of two inputs. Their
E[f(z)^2] is 1, so the gain is 1, and `he` and `lecun` draw the same weights."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.quadrature import Moments, normal_mean, normal_rule, root_between
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Range

SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "silu": F.silu,
    "gelu": F.gelu,
}
SHIFTS = [step / 4 for step in range(17)]  # of the input, in either direction, to solve for
SCALES, SCALE_STEP = (1e-3, 30.0), 1.5  # of the input
REACH = 8.0  # of z, in expectations of functions that grow no faster than a line


class Function(nn.Module):
    """A function of a tensor as a module; `name` is how it prints itself."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, y: Tensor) -> Tensor:
        return self.function(y)

    def extra_repr(self) -> str:
        return self.name


class Maxout(nn.Module):
    """The largest of `pieces` linear responses (Goodfellow et al. 2013).

    Shape: input [N, channels * pieces, ...], output [N, channels, ...]. Consecutive channels are
    the pieces of one unit."""

    def __init__(self, pieces: int = 2) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.pieces)).max(dim=2).values

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}"

    def moments(self) -> Moments:
        """Return the moments of the maximum of `pieces` independent N(0, 1); one of the pieces gets
        the gradient."""
        k = self.pieces
        second = normal_mean(lambda z: z**2 * k * torch.special.ndtr(z) ** (k - 1))
        return Moments(second, derivative_second=1 / k, map_slope=1.0)


class CReLU(nn.Module):
    """The positive and the negative part, [max(0, y), max(0, -y)] (Shang et al. 2016).

    Shape: input [N, channels, ...], output [N, channels * 2, ...]."""

    outputs = 2

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.relu(), (-x).relu()], dim=1)

    def moments(self) -> Moments:
        """Return the moments: half of E[z^2] in each output, and one of both gets the gradient."""
        return Moments(second=0.5, derivative_second=1.0, map_slope=1.0)


class GLU(nn.GLU):
    """One half of the channels times the sigmoid of the other (Dauphin et al. 2017).

    Shape: input [N, channels * 2, ...], output [N, channels, ...]."""

    pieces = 2

    def __init__(self) -> None:
        super().__init__(dim=1)

    def moments(self) -> Moments:
        """Return the moments for independent halves a and b: E[a^2] E[sigmoid(b)^2]; derivatives
        are means of both."""

        def slope(z: Tensor) -> Tensor:
            return torch.sigmoid(z) * torch.sigmoid(-z)

        gate = normal_mean(lambda z: torch.sigmoid(z) ** 2)
        slope_second = normal_mean(lambda z: slope(z) ** 2)
        growth = normal_mean(lambda z: torch.sigmoid(z) * slope(z) * z) / gate
        return Moments(gate, (gate + slope_second) / 2, 1 + growth)


class RReLU(nn.RReLU):
    """A slope for every y <= 0 of a training batch, drawn from [lower, upper]; in testing the mean
    (Xu et al. 2015)."""

    def moments(self) -> Moments:
        """Return the moments in training: E[a^2] over the draws stands for the square of a
        slope."""
        square = (self.lower**2 + self.lower * self.upper + self.upper**2) / 3
        return Moments((1 + square) / 2, (1 + square) / 2, map_slope=1.0)


class NoisyReLU(nn.Module):
    """max(0, y + e) in training, e normal with variance sigmoid(y), and max(0, y) in testing (Nair
    and Hinton 2010).

    It approximates the sum of infinitely many binary units with shifted biases. Its derivative is 1
    where the sum is positive: the noise counts as a constant."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x.relu()
        return (x + x.detach().sigmoid().sqrt() * torch.randn_like(x)).relu()

    def moments(self) -> Moments:
        """Return the moments in training, over z and the noise."""
        second = normal_mean(_noisy_square)
        # E[z g'(z)] = E[(z^2 - 1) g(z)]
        growth = normal_mean(lambda z: (z**2 - 1) * _noisy_square(z))
        derivative = normal_mean(lambda z: torch.special.ndtr(z / z.sigmoid().sqrt()))
        return Moments(second, derivative, map_slope=growth / second / 2)


def _noisy_square(z: Tensor) -> Tensor:
    """E[max(0, z + e)^2] over e ~ N(0, sigmoid(z)): the second moment of a rectified normal
    variable."""
    std = z.sigmoid().sqrt()
    density = torch.exp(-((z / std) ** 2) / 2) / math.sqrt(2 * math.pi)
    return (z**2 + std**2) * torch.special.ndtr(z / std) + z * std * density


class SquaredReLU(nn.Module):
    """max(0, y)^2 (So et al. 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


class Snake(nn.Module):
    """y + sin(a y)^2 / a (Ziyin et al. 2020): a line with a wave, for periodic functions."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = a

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.a * x).sin().square() / self.a

    def extra_repr(self) -> str:
        return f"a={self.a:g}"


class XIELU(nn.Module):
    """b y + p y^2 for y > 0, b y + n (exp(y) - 1 - y) for y <= 0, with b = 0.5 and p, n learned,
    one of each for the layer (Huang and Schlag 2024).

    p = softplus(positive) and n = b + softplus(negative), so that both stay positive; both start
    at 0.8."""

    def __init__(self, beta: float = 0.5, start: float = 0.8) -> None:
        super().__init__()
        self.beta = beta
        self.positive = nn.Parameter(torch.tensor([math.log(math.expm1(start))]))
        self.negative = nn.Parameter(torch.tensor([math.log(math.expm1(start - beta))]))

    def forward(self, y: Tensor) -> Tensor:
        p, n = F.softplus(self.positive), self.beta + F.softplus(self.negative)
        below = y.clamp_max(0)  # exp(y) of a large y would make the gradient NaN
        return self.beta * y + p * y.clamp_min(0).square() + n * (torch.expm1(below) - below)


def golu(y: Tensor) -> Tensor:
    """y exp(-exp(-y)). The clamp keeps gradients finite: the gate is below 1e-3500 there."""
    return y * torch.exp(-torch.exp(-y.clamp_min(-9)))


def telu(y: Tensor) -> Tensor:
    """y tanh(exp(y)), clamped as `golu` is."""
    return y * torch.tanh(torch.exp(y.clamp_max(9)))


def smooth_leaky_relu(y: Tensor, slope: float) -> Tensor:
    """slope y + (1 - slope) log(1 + exp(y))."""
    return slope * y + (1 - slope) * F.softplus(y)


def pieces(activation: nn.Module) -> int:
    """Return how many channels the activation reads per unit: 1, or `pieces` for Maxout."""
    return int(getattr(activation, "pieces", 1))


def outputs(activation: nn.Module) -> int:
    """Return how many channels the activation returns per unit: 1, or 2 for CReLU."""
    return int(getattr(activation, "outputs", 1))


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


def tat_leaky_relu(
    channels: int, depth: Count | None = None, similarity: Annotated[float, Range(gt=0, lt=1)] = 0.9
) -> nn.Module:
    """Leaky ReLU with the smallest slope for which `depth` layers keep orthogonal inputs apart
    (Zhang, Botev and Martens 2022).

    Raises:
        InputError: if `depth` is None.
    """
    return TailoredLeakyReLU(leaky_slope(_check_depth(depth), similarity))


def dks(
    channels: int,
    function: Literal["tanh", "sigmoid", "softplus", "silu", "gelu"] = "tanh",
    depth: Count | None = None,
    slope: Annotated[float, Range(gt=1, le=100)] = 1.5,
) -> nn.Module:
    """Deep kernel shaping: a smooth function, shifted and scaled for `depth` layers (Martens et al.
    2021).

    Raises:
        InputError: if `depth` is None, or no shift and scale fit.
    """
    return ShapedFunction(function, *shape(function, _check_depth(depth), slope))


def _check_depth(depth: int | None) -> int:
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

    def input_scale(shift: float) -> float | None:
        """The scale that gives E[f'^2]; None where no scale does."""

        def excess(scale: float) -> float:
            return _moments(function, scale, shift)[2] - of_layer

        low, high = SCALES
        if excess(low) > 0:
            return None
        scale = low
        while excess(scale) <= 0:  # the smallest one that crosses, which the next lines then find
            low, scale = scale, scale * SCALE_STEP
            if scale > high:
                return None
        return root_between(excess, low, scale)

    def excess(shift: float) -> float:
        scale = input_scale(shift)
        return math.nan if scale is None else _moments(function, scale, shift)[3] - 1

    for direction in (1, -1):
        before = excess(0.0)
        for near, far in itertools.pairwise(SHIFTS):
            after = excess(direction * far)
            if before * after <= 0:
                shift = root_between(excess, direction * near, direction * far)
                scale = input_scale(shift)
                assert scale is not None
                mean, variance, *_ = _moments(function, scale, shift)
                return scale, shift, variance**-0.5, -mean
            before = after
    raise InputError(
        f"activation.function={function} has no form of which {depth} layers make a slope of "
        f"{slope:g}; lower activation.slope, or choose another function"
    )


def _moments(function: str, scale: float, shift: float) -> tuple[float, float, float, float]:
    """Return (E[g], Var[g], E[f'^2], E[z f f']) of g(z) = phi(scale z + shift) and f, g with mean 0
    and variance 1."""
    z, weights = normal_rule()
    near = z.abs() < REACH
    z, weights = z[near], weights[near]
    with torch.enable_grad():
        z.requires_grad_()
        g = SMOOTH[function](scale * z + shift)
        derivative = torch.autograd.grad(g.sum(), z)[0]
    z, g = z.detach(), g.detach()
    mean = float(weights @ g)
    centred = g - mean
    variance = float(weights @ centred.square())
    chi, growth = float(weights @ derivative.square()), float(weights @ (z * centred * derivative))
    return mean, variance, chi / variance, growth / variance
