"""Mean field theory of wide random chains: the maps of variance and correlation.

Poole et al. 2016. Every layer draws w ~ N(0, weight_variance / n) and biases of variance
bias_variance, so He's initialisation is weight_variance = 1 / E[f(z)^2] and bias_variance = 0,
where the response's variance is q = 1. Two inputs have responses of one variance q and of
correlation c. Chains without normalisation, in the limit of infinite width, are what is described.

All functions raise InputError for a variance that is below 0 or infinite, and for an activation
whose moments cannot be found; those of correlations also for a correlation outside [-1, 1], a
variance of 0 after the layer, and an activation that is not a function of one number."""

import copy
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from rectifiers.gains import rectifier_slopes
from rectifiers.quadrature import describe, normal_rule
from rectifiers.runtime.errors import InputError
from rectifiers.theory.moments import moments_at

SMALLEST = 1e-9  # of a variance q; below, a signal has vanished
TERMS = 1000  # of the power series of a correlation


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
    product, path = _product(activation, q), []
    for _ in range(layers):
        c = (weight_variance * product(c) + bias_variance) / after
        path.append(c)
        c = min(c, 1.0)  # which rounding may pass
    return path


def _check(c: float = 0.0, **variances: float) -> None:
    """Refuse what is no correlation (c) or no variance."""
    unusable = [f"{name}={value}" for name, value in variances.items() if not 0 <= value < math.inf]
    if unusable or not -1 <= c <= 1:
        raise InputError(
            f"{', '.join(unusable) or f'c={c}'} is out of range; give finite variances of at least "
            "0, and a correlation from -1 to 1"
        )


def _product(activation: nn.Module, q: float) -> Callable[[float], float]:
    """Return E[f(u) f(v)] for normal u and v of one variance q, as a function of their
    correlation."""
    if callable(getattr(activation, "moments", None)):
        raise InputError(
            f"activation {describe(activation)} is not a function of one number, so it has no "
            "correlation map; give one that acts on each number by itself"
        )
    q = max(q, SMALLEST)
    slopes = rectifier_slopes(activation)
    return _of_series(activation, q) if slopes is None else _of_rectifier(slopes, q)


def _of_rectifier(slopes: Tensor, q: float) -> Callable[[float], float]:
    """By closed form: f(y) = (1 + a)/2 y + (1 - a)/2 |y|, whose terms are uncorrelated."""
    linear = float(((1 + slopes) / 2).square().mean())
    folded = float(((1 - slopes) / 2).square().mean()) * 2 / math.pi

    return lambda c: q * (linear * c + folded * (math.sqrt(1 - c**2) + c * math.asin(c)))


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


def _of_series(activation: nn.Module, q: float) -> Callable[[float], float]:
    """By Mehler's formula: the sum of a_k^2 c^k with a_k = E[f(sqrt(q) z) he_k(z)], the mean over
    channels.

    What the terms leave of E[f^2] counts as the next one."""
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

    return lambda c: float(series @ c**degrees)
