"""Moments of an activation for normal inputs of any variance."""

import math
from dataclasses import replace

from torch import Tensor, nn

from rectifiers.gains import moments
from rectifiers.quadrature import Moments
from rectifiers.runtime.errors import InputError

NEUTRAL = 1e-3  # from 1 on, of the slope of a map


class _Wrapped(nn.Module):
    """z -> f(std z)^power."""

    def __init__(self, activation: nn.Module, std: float = 1.0, power: int = 1) -> None:
        super().__init__()
        self.activation, self.std, self.power = activation, std, power

    def forward(self, z: Tensor) -> Tensor:
        return self.activation(z * self.std) ** self.power


def moments_at(activation: nn.Module, second: float, channels: int | None = None) -> Moments:
    """Return E[f(y)^2], E[f'(y)^2] and d ln E[f(y)^2] / d ln E[y^2] for y ~ N(0, `second`); raise
    InputError for an activation whose own method `moments()` knows them for a variance of 1
    alone."""
    unit = moments(activation, channels)
    has_own = callable(getattr(activation, "moments", None))
    # f(s y) = s f(y): rectifiers, Maxout. Deep kernel shaping has a slope of 1 at variance 1 alone.
    homogeneous = abs(unit.map_slope - 1) < 1e-12 and (
        has_own or math.isclose(unit.second, unit.derivative_second, rel_tol=1e-9)
    )
    if homogeneous or second == 1:
        return replace(unit, second=unit.second * second)

    if has_own:
        raise InputError(
            f"activation {type(activation).__name__} says its moments for a variance of 1 alone, "
            "so nothing can be predicted of deep networks; leave its method `moments()` out where "
            "it acts on each number by itself"
        )

    std = math.sqrt(second)
    at = moments(_Wrapped(activation, std=std), channels)
    derivative = at.derivative_second / second if second else math.nan
    return replace(at, derivative_second=derivative)


def fluctuation(activation: nn.Module, channels: int | None = None) -> float | None:
    """Return v = Var[f(z)^2] / E[f(z)^2]^2, z ~ N(0, 1): 5 for ReLU, 2 for a linear unit.

    A layer of n units keeps E[y^2] only on average. For one input (or many that have become alike,
    as they do in deep rectifier networks) ln E[y^2] moves by -v/(2n) per layer, with a variance of
    v/n. None where f is not elementwise, or has no such moments."""
    if callable(getattr(activation, "moments", None)):
        return None
    second = moments(activation, channels).second
    fourth = moments(_Wrapped(activation, power=2), channels).second
    return fourth / second**2 - 1 if second > 0 and math.isfinite(fourth) else None
