"""Activation modules that torch lacks.

An activation reads `pieces` channels and returns `outputs` channels per unit of its layer. Both are
1 unless the module has such an attribute. A module may state its moments in a method `moments()`.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.quadrature import Moments, normal_mean, normal_rule, value_and_slope
from rectifiers.runtime.errors import InputError


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
        check_channels(self, x)
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

    def forward(self, input: Tensor) -> Tensor:
        check_channels(self, input)
        return super().forward(input)

    def moments(self) -> Moments:
        """Return the moments for independent halves."""
        return gated_moments(torch.sigmoid)


class Gated(nn.Module):
    """One half of the channels times `gate` of the other, the variants of GLU by Shazeer (2020).

    Shape: input [N, channels * 2, ...], output [N, channels, ...]. In a network of rows, fully
    connected layers have fewer units, so that a gate costs no parameters."""

    pieces = 2
    has_equal_parameters = True
    gate: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor) -> Tensor:
        check_channels(self, x)
        a, b = x.chunk(2, dim=1)
        return a * self.gate(b)

    def moments(self) -> Moments:
        """Return the moments for independent halves."""
        return gated_moments(self.gate)


class SwiGLU(Gated):
    """a silu(b)."""

    gate = staticmethod(F.silu)


class GEGLU(Gated):
    """a gelu(b)."""

    gate = staticmethod(F.gelu)


class ReGLU(Gated):
    """a max(0, b)."""

    gate = staticmethod(F.relu)


def gated_moments(gate: Callable[[Tensor], Tensor]) -> Moments:
    """Return the moments of a gate(b) for independent a, b ~ N(0, 1): E[a^2] E[gate(b)^2];
    derivatives are means of both."""
    z, weights = normal_rule()
    g, slope = value_and_slope(gate, z)
    second, slope_second = (float((weights * x.square()).sum()) for x in (g, slope))
    growth = float((weights * z * g * slope).sum()) / second
    return Moments(second, (second + slope_second) / 2, 1 + growth)


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


class SquaredLeakyReLU(nn.LeakyReLU):
    """LeakyReLU(y)^2: y^2 for y > 0, slope^2 y^2 for y <= 0."""

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope).square()


class LearnedSwish(nn.Module):
    """y sigmoid(b y) with one learned b per channel (Ramachandran et al. 2017).

    Shape: input and output [N, channels, ...]."""

    def __init__(self, channels: int, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.full((channels,), float(beta)))

    def forward(self, y: Tensor) -> Tensor:
        beta = self.beta.view(1, -1, *[1] * (y.dim() - 2))
        return y * torch.sigmoid(beta * y)

    def extra_repr(self) -> str:
        return f"channels={len(self.beta)}"


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


def check_channels(activation: nn.Module, x: Tensor) -> None:
    """Check that the channels of `x` [N, channels, ...] are whole units.

    Raises:
        InputError: if they are not, as an odd number of channels in front of a gate.
    """
    count = pieces(activation)
    if x.shape[1] % count:
        raise InputError(
            f"activation={type(activation).__name__}: {x.shape[1]} channels do not divide into "
            f"units of {count} (give the layer before it a multiple of {count})"
        )


def pieces(activation: nn.Module) -> int:
    """Return how many channels the activation reads per unit: 1, or `pieces` for Maxout."""
    return int(getattr(activation, "pieces", 1))


def outputs(activation: nn.Module) -> int:
    """Return how many channels the activation returns per unit: 1, or 2 for CReLU."""
    return int(getattr(activation, "outputs", 1))


def has_equal_parameters(activation: nn.Module) -> bool:
    """Return whether a network of rows has fewer hidden units with it, so that its gates cost no
    parameters, as for SwiGLU."""
    return bool(getattr(activation, "has_equal_parameters", False))
