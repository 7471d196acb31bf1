"""The theory of one activation in a deep chain: its fixed point, its drift and its gradients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from rectifiers.activations import as_module
from rectifiers.activations.modules import outputs, pieces
from rectifiers.gains import Activation, moments
from rectifiers.quadrature import Moments
from rectifiers.runtime.errors import InputError

NEUTRAL = 1e-3  # of the slope of the variance map


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


@dataclass(frozen=True)
class WidthEffect:
    """What finite width adds to ln E[y^2]: the mean and the standard deviation over draws of the
    weights."""

    drift: float
    spread: float


def width_effect(steps: Sequence[tuple[float | None, int, float]]) -> WidthEffect | None:
    """Return the effect of finite width over `steps`, each (fluctuation v, units n, slope of the
    variance map).

    To first order in 1/n. An error of one layer is multiplied by the slopes of all later ones: it
    stays for rectifiers (1), fades for tanh (0.46) and grows for GELU (1.14). None where one of
    them is unknown, or where the error has grown beyond the validity of the first order, a factor
    of ten."""
    drift = variance = 0.0
    repelled = any(slope > 1 + 1e-9 for _, _, slope in steps)
    for v, units, slope in steps:
        if v is None or not math.isfinite(slope):
            return None
        drift, variance = slope * drift - v / (2 * units), slope**2 * variance + v / units
    if repelled and variance > math.log(10) ** 2:
        return None
    return WidthEffect(drift, math.sqrt(variance))


@dataclass(frozen=True)
class Stability:
    """The result of `stability`. A number that is None is infinite or unknown.

    depth: the number of layers.
    gain: the forward gain of the activation.
    map_slope: the factor of one layer on a relative error of the variance.
    fixed_point: what this means for the variance that the gain keeps: it "attracts" (below 1),
        "repels" (above 1) or is "neutral".
    error_growth: the factor of all layers on a relative error of the variance.
    chi: the factor of one layer on the mean square of the gradients.
    gradient_growth: the factor of all layers on the mean square of the gradients.
    fluctuation: Var[f(z)^2] / E[f(z)^2]^2 for z ~ N(0, 1).
    width: the effect of finite width on ln E[y^2]: its mean (`drift`) and standard deviation
        (`spread`) over draws of the weights.
    """

    depth: int
    gain: float | None
    map_slope: float | None
    fixed_point: str | None
    error_growth: float | None
    chi: float | None
    gradient_growth: float | None
    fluctuation: float | None
    width: WidthEffect | None


def stability(activation: Activation, depth: int, *, units: int = 256) -> Stability:
    """Return how a chain of layers with `activation` changes signal and gradients, by theory.

    The weights have the forward gain of the activation (section 2.2 of the paper, for any
    activation), and the responses of the first layer have E[y^2] = 1.

    activation: as for `moments`.
    depth: the number of layers.
    units: the number of units of each layer, for the effect of finite width.

    Raises:
        InputError: if the moments of the activation cannot be computed, or if `depth` or `units`
            is not a whole number of at least 1.

    Examples:
        >>> stability(nn.ReLU(), 30).fixed_point
        'neutral'
        >>> f"{stability('gelu', 30).error_growth:.0f}"
        '50'
    """
    for name, value in (("depth", depth), ("units", units)):
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{name}={value} is not usable; give a whole number at least 1")
    activation = as_module(activation)
    unit = moments(activation)
    usable = all(0 < moment < math.inf for moment in (unit.second, unit.derivative_second))
    slope = unit.map_slope if math.isfinite(unit.map_slope) else None

    chi = v = None
    if usable:
        chi = pieces(activation) * unit.derivative_second / (outputs(activation) * unit.second)
        v = fluctuation(activation)

    return Stability(
        depth=depth,
        gain=unit.second**-0.5 if usable else None,
        map_slope=slope,
        fixed_point=None if slope is None else _word(slope),
        error_growth=slope and _power(slope, depth - 1),
        chi=chi,
        gradient_growth=chi and _power(chi, depth - 1, 1 / pieces(activation)),
        fluctuation=v,
        width=width_effect([(v, units, unit.map_slope)] * (depth - 1)),
    )


def _word(slope: float) -> str:
    if abs(slope - 1) < NEUTRAL:
        return "neutral"
    return "attracts" if slope < 1 else "repels"


def _power(base: float, exponent: int, factor: float = 1.0) -> float | None:
    """factor base^exponent, or None where that is more than a float holds."""
    try:
        power = factor * base**exponent
    except OverflowError:
        return None
    return power if math.isfinite(power) else None
