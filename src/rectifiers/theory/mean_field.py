"""Mean field theory of wide random chains: the maps of variance and correlation, their fixed points
and depth scales.

Poole et al. 2016 and Schoenholz et al. 2017. Every layer draws w ~ N(0, weight_variance / n) and
biases of variance bias_variance, so He's initialisation is weight_variance = 1 / E[f(z)^2] and
bias_variance = 0, where the response's variance is q = 1. Two inputs have responses of one variance
q and of correlation c. Chains without normalisation, in the limit of infinite width, are what is
described.

All functions raise InputError for a variance that is below 0 or infinite, and for an activation
whose moments cannot be found; those of correlations also for a correlation outside [-1, 1], a
variance of 0 after the layer, and an activation that is not a function of one number."""

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rectifiers.activations.modules import outputs, pieces
from rectifiers.gains import rectifier_slopes
from rectifiers.quadrature import describe, normal_rule, root_between
from rectifiers.runtime.errors import InputError
from rectifiers.theory.moments import NEUTRAL, moments_at

SMALLEST, LARGEST = 1e-9, 1e6  # of a variance q; beyond, a signal has vanished or grows for ever
SEARCH_STEP = math.log(2) / 2  # of ln q
PRECISION = 1e-10  # of a fixed point
TERMS = 1000  # of the power series of a correlation
CLOSE = 1 - 1e-6  # a correlation above it counts as 1


def variance_map(
    activation: nn.Module, q: float, *, weight_variance: float, bias_variance: float = 0.0
) -> float:
    """Return the next layer's variance, weight_variance E[f(sqrt(q) z)^2] + bias_variance (Poole et
    al., Eq. 3); infinite where the activation grows too fast.

    >>> variance_map(nn.ReLU(), 3.0, weight_variance=2.0, bias_variance=0.5)
    3.5
    """
    _check(q=q, weight_variance=weight_variance, bias_variance=bias_variance)
    return weight_variance * moments_at(activation, max(q, SMALLEST)).second + bias_variance


def variance_slope(activation: nn.Module, q: float, *, weight_variance: float) -> float:
    """Return chi_q, the slope of the variance map at q: below 1 at a fixed point that attracts."""
    _check(q=q, weight_variance=weight_variance)
    at = moments_at(activation, max(q, SMALLEST))
    return weight_variance * at.second * at.map_slope / max(q, SMALLEST)


def chi_1(activation: nn.Module, q: float, *, weight_variance: float) -> float:
    """Return weight_variance E[f'(sqrt(q) z)^2], the slope of the correlation map at 1 (Schoenholz
    et al., Eq. 5).

    It is also the factor on the gradients' mean square per layer. Below 1 inputs become alike and
    gradients vanish, above it they part and gradients explode; 1 is the edge of chaos. To about 1 %
    where f' jumps elsewhere than at 0.

    >>> chi_1(nn.ReLU(), 1.0, weight_variance=2.0)
    1.0
    """
    _check(q=q, weight_variance=weight_variance)
    at = moments_at(activation, max(q, SMALLEST))
    return weight_variance * at.derivative_second * pieces(activation) / outputs(activation)


def phase(chi: float) -> str:
    """Return the phase that chi_1 at the fixed point means: ordered, critical (within 0.001 of 1)
    or chaotic."""
    if abs(chi - 1) <= NEUTRAL:
        return "critical"
    return "ordered" if chi < 1 else "chaotic"


def correlations(
    activation: nn.Module,
    c: float,
    q: float,
    *,
    layers: int,
    weight_variance: float,
    bias_variance: float = 0.0,
) -> list[float]:
    """Return the correlation of the responses to two inputs after each of `layers` layers.

    c: their correlation before. q: their variance, which has to be the fixed point of its map where
    there are several layers.

    The map of a layer is (weight_variance E[f(u) f(v)] + bias_variance) / variance_map(q), Poole et
    al., Eq. 5; by closed form for rectifiers (Cho and Saul 2009), otherwise by its power series, of
    which a kink leaves out about 1e-5.

    >>> [f"{c:.2f}" for c in correlations(nn.ReLU(), 0.0, 1.0, layers=3, weight_variance=2.0)]
    ['0.32', '0.49', '0.60']
    """
    _check(c)
    after = variance_map(
        activation, q, weight_variance=weight_variance, bias_variance=bias_variance
    )
    if not 0 < after < math.inf:
        raise InputError(
            f"activation {describe(activation)} leaves a variance of {after} at weight_variance="
            f"{weight_variance}, so there is no correlation; give variances that keep a signal"
        )
    products, path = _products(activation, q), []
    for _ in range(layers):
        c = (weight_variance * products.mean(c) + bias_variance) / after
        path.append(c)
        c = min(c, 1.0)  # which rounding may pass
    return path


def correlation_slope(
    activation: nn.Module, c: float, q: float, *, weight_variance: float
) -> float:
    """Return weight_variance E[f'(u) f'(v)], the slope of the correlation map at c and a fixed
    point q."""
    _check(c, q=q, weight_variance=weight_variance)
    return weight_variance * _products(activation, q).derivative_mean(c)


def fixed_point(
    activation: nn.Module, *, weight_variance: float, bias_variance: float = 0.0, start: float = 1.0
) -> float:
    """Return the variance that a signal of variance `start` comes to in infinitely many layers.

    0 where it vanishes, infinity where it grows for ever, and `start` itself where that is kept:
    any number is, by a rectifier with He's gain.

    >>> f"{fixed_point(nn.ReLU(), weight_variance=1.0, bias_variance=1.0):.9f}"
    '2.000000000'
    >>> fixed_point(nn.ReLU(), weight_variance=2.0)
    1.0
    """
    _check(start=start, weight_variance=weight_variance, bias_variance=bias_variance)

    def excess(log_q: float) -> float:
        q = math.exp(log_q)
        after = variance_map(
            activation, q, weight_variance=weight_variance, bias_variance=bias_variance
        )
        return min(after / q, LARGEST) - 1  # a variance may be infinite

    log_q = math.log(max(start, SMALLEST))
    first = excess(log_q)
    if abs(first) < 1e-12:
        return start

    step = math.copysign(SEARCH_STEP, first)
    end = math.log(LARGEST if first > 0 else SMALLEST)
    # The map carries a signal monotonically to the next crossing, for all functions whose E[f^2]
    # grows with q.
    sign = math.copysign(1, first)
    while sign * (log_next := log_q + step) < sign * end:
        if excess(log_next) * first <= 0:
            return math.exp(root_between(excess, log_q, log_next, tolerance=PRECISION))
        log_q = log_next
    return math.inf if first > 0 else 0.0


def correlation_fixed_point(
    activation: nn.Module, q: float, *, weight_variance: float, bias_variance: float = 0.0
) -> float:
    """Return the correlation that two different inputs come to: 1 up to the edge of chaos, less
    beyond it.

    q: the fixed point of the variance. The map is a power series with coefficients of at least 0,
    so on [0, 1] it is convex and has one fixed point below 1, exactly where its slope at 1 is above
    1."""
    _check(bias_variance=bias_variance)
    if chi_1(activation, q, weight_variance=weight_variance) <= 1:
        return 1.0
    products = _products(activation, q)
    after = weight_variance * products.mean(1.0) + bias_variance  # so that the map takes 1 to 1

    def excess(c: float) -> float:
        return (weight_variance * products.mean(c) + bias_variance) / after - c

    if excess(0.0) <= 1e-12:  # an odd function without biases keeps what is orthogonal so
        return 0.0
    return 1.0 if excess(CLOSE) >= 0 else root_between(excess, 0.0, CLOSE, tolerance=PRECISION)


@dataclass(frozen=True)
class DepthScales:
    """Over how many layers a difference from the fixed point falls to 1/e (Schoenholz et al., Eq. 7
    and 9).

    variance: of q; correlation: of c, the depth to which inputs stay distinct. Networks of a few
    times that depth can be trained. Infinite where the difference stays, at a neutral or repelling
    fixed point."""

    variance: float
    correlation: float


def depth_scales(
    activation: nn.Module, q: float, *, weight_variance: float, bias_variance: float = 0.0
) -> DepthScales:
    """Return the depth scales at the fixed point q of the variance map.

    >>> depth_scales(nn.ReLU(), 2.0, weight_variance=1.0, bias_variance=1.0)
    DepthScales(variance=1.4426950408889634, correlation=1.4426950408889634)
    """
    c = correlation_fixed_point(
        activation, q, weight_variance=weight_variance, bias_variance=bias_variance
    )
    slope = chi_1(activation, q, weight_variance=weight_variance)
    if c < 1:
        slope = correlation_slope(activation, c, q, weight_variance=weight_variance)
    return DepthScales(
        _scale(variance_slope(activation, q, weight_variance=weight_variance)), _scale(slope)
    )


def _scale(slope: float) -> float:
    """The number of steps in which a slope's powers fall to 1/e."""
    if slope == 0:
        return 0.0
    return -1 / math.log(abs(slope)) if abs(slope) < 1 - 1e-9 else math.inf


def _check(c: float = 0.0, **variances: float) -> None:
    """Refuse what is no correlation (c) or no variance."""
    unusable = [f"{name}={value}" for name, value in variances.items() if not 0 <= value < math.inf]
    if unusable or not -1 <= c <= 1:
        raise InputError(
            f"{', '.join(unusable) or f'c={c}'} is out of range; give finite variances of at least "
            "0, and a correlation from -1 to 1"
        )


@dataclass(frozen=True)
class _Products:
    """E[f(u) f(v)] and E[f'(u) f'(v)] for normal u and v of one variance, as functions of their
    correlation."""

    mean: Callable[[float], float]
    derivative_mean: Callable[[float], float]


def _products(activation: nn.Module, q: float) -> _Products:
    if callable(getattr(activation, "moments", None)):
        raise InputError(
            f"activation {describe(activation)} is not a function of one number, so it has no "
            "correlation map; give one that acts on each number by itself"
        )
    q = max(q, SMALLEST)
    slopes = rectifier_slopes(activation)
    return _of_series(activation, q) if slopes is None else _of_rectifier(slopes, q)


def _of_rectifier(slopes: Tensor, q: float) -> _Products:
    """By closed form: f(y) = (1 + a)/2 y + (1 - a)/2 |y|, whose terms are uncorrelated."""
    linear = float(((1 + slopes) / 2).square().mean())
    folded = float(((1 - slopes) / 2).square().mean()) * 2 / math.pi

    def mean(c: float) -> float:
        return q * (linear * c + folded * (math.sqrt(1 - c**2) + c * math.asin(c)))

    def derivative_mean(c: float) -> float:
        return linear + folded * math.asin(c)

    return _Products(mean, derivative_mean)


@functools.cache
def _hermite() -> Tensor:
    """Return w(z) he_k(z) at the nodes of `normal_rule`, w its weights, [TERMS, nodes]; E[he_j
    he_k] = 1 for j = k."""
    nodes, weights = normal_rule()
    root = weights.sqrt()  # in the recurrence's first terms, so that no later one overflows
    rows = [root, nodes * root]
    for k in range(1, TERMS - 1):
        rows.append((nodes * rows[k] - math.sqrt(k) * rows[k - 1]) / math.sqrt(k + 1))
    return torch.stack(rows) * root


def _of_series(activation: nn.Module, q: float) -> _Products:
    """By Mehler's formula: the sum of a_k^2 c^k with a_k = E[f(sqrt(q) z) he_k(z)], the mean over
    channels.

    What the terms leave of E[f^2] counts as the next one. By Price's theorem the derivative with
    respect to c is q E[f'(u) f'(v)], which needs no f' and so no place of its jumps."""
    moments_at(activation, q)  # refuses what is not elementwise
    exact = copy.deepcopy(activation).double().eval().requires_grad_(False)
    channels = max((p.numel() for p in exact.parameters() if p.dim() == 1), default=1)
    nodes, weights = normal_rule()
    with torch.no_grad():
        f = exact(math.sqrt(q) * nodes[:, None].repeat(1, channels))
    series = (_hermite() @ f).square().mean(1)
    rest = weights @ f.square().mean(1) - series.sum()
    series = torch.cat([series, rest[None]])
    degrees = torch.arange(TERMS + 1, dtype=torch.float64)

    def mean(c: float) -> float:
        return float(series @ c**degrees)

    def derivative_mean(c: float) -> float:
        return float((series * degrees)[1:] @ c ** degrees[:-1]) / q

    return _Products(mean, derivative_mean)
