"""Activation modules that torch lacks, and what a module says of itself: its moments, what it reads
and what it gives.

A layer of d units gets an activation that reads `pieces` channels and gives `outputs` channels per
unit; both are 1 unless the module has such an attribute."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rectifiers.quadrature import normal_mean
from rectifiers.runtime.errors import InputError


@dataclass(frozen=True)
class Moments:
    """Gaussian moments of an activation f, with z ~ N(0, 1), on which variance propagation rests.

    second: E[f(z)^2]; its inverse is the factor on Var[w] of the forward condition (1/2 for ReLU:
    Eq. 10).
    derivative_second: E[f'(z)^2]; the same for the backward condition (Eq. 14).
    map_slope: the factor by which a layer multiplies a relative error of the variance when the gain
        is 1/second. 1 for rectifiers; below 1 the fixed point attracts (tanh), above 1 it repels
        (GELU) and deep plain nets drift.
    """

    second: float
    derivative_second: float
    map_slope: float


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
    """The largest of `pieces` linear responses (Goodfellow et al. 2013), from [N, channels *
    pieces, ...].

    The layer before emits `pieces` times as many channels; consecutive channels are the pieces of
    one unit."""

    def __init__(self, pieces: int = 2) -> None:
        super().__init__()
        if pieces < 2:
            raise InputError(
                f"activation.pieces={pieces} leaves nothing to choose from; give 2 or more"
            )
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.pieces)).max(dim=2).values

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}"

    def moments(self) -> "Moments":
        """Return the moments of the maximum of `pieces` independent N(0, 1); one of the pieces gets
        the gradient."""
        k = self.pieces
        second = normal_mean(lambda z: z**2 * k * torch.special.ndtr(z) ** (k - 1))
        return Moments(second, derivative_second=1 / k, map_slope=1.0)


class CReLU(nn.Module):
    """The positive and the negative part side by side, [max(0, y), max(0, -y)] (Shang et al.
    2016)."""

    outputs = 2

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.relu(), (-x).relu()], dim=1)

    def moments(self) -> Moments:
        """Return the moments: half of E[z^2] in each output, and one of both gets the gradient."""
        return Moments(second=0.5, derivative_second=1.0, map_slope=1.0)


class GLU(nn.GLU):
    """One half of the channels times the sigmoid of the other (Dauphin et al. 2017), from [N,
    channels * 2, ...]."""

    pieces = 2

    def __init__(self) -> None:
        super().__init__(dim=1)

    def moments(self) -> Moments:
        """Return the moments for independent halves a and b: E[a^2] E[sigmoid(b)^2]; derivatives
        are means of both."""

        def slope(z: Tensor) -> Tensor:
            return torch.sigmoid(z) * torch.sigmoid(-z)

        gate, slope_second = (
            normal_mean(lambda z: torch.sigmoid(z) ** 2),
            normal_mean(lambda z: slope(z) ** 2),
        )
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
        growth = normal_mean(
            lambda z: (z**2 - 1) * _noisy_square(z)
        )  # E[z g'(z)] = E[(z^2 - 1) g(z)]
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
    """y + sin(a y)^2 / a (Ziyin et al. 2020): a line with a wave, for what repeats itself."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = a

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.a * x).sin().square() / self.a

    def extra_repr(self) -> str:
        return f"a={self.a:g}"


def pieces(activation: nn.Module) -> int:
    """Return how many channels the activation reads per unit: 1, or Maxout's pieces."""
    return int(getattr(activation, "pieces", 1))


def outputs(activation: nn.Module) -> int:
    """Return how many channels the activation gives per unit: 1, or CReLU's 2."""
    return int(getattr(activation, "outputs", 1))
