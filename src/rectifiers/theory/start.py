"""Whether the gradient of a chain reaches its first layer at the start, by theory."""

import math
import warnings
from collections.abc import Sequence

from torch import nn

from rectifiers.activations.modules import outputs, pieces
from rectifiers.initialization.report import EXPLODED, VANISHED
from rectifiers.models.chains import Site
from rectifiers.runtime.errors import InputError
from rectifiers.theory.moments import moments_at

LARGEST_LOG = 700.0  # whose exponential is a finite number


def gradient_change(sites: Sequence[Site], stds: Sequence[float]) -> float:
    """Return ln of the sum of the squared derivatives with respect to the first layer's responses,
    in units of those of the last layer's.

    Each layer multiplies this sum by fan_in std^2 E[f'(y)^2], whatever its width, its stride and
    the size of its maps; 1 with He's gain and a rectifier. For chains without normalisation, and
    inputs of E[x^2] = 1.

    stds: of the weights, one per site.

    Raises:
        InputError: where the moments of an activation are not known for the E[y^2] that arrives.
    """
    second, change = 1.0, 0.0
    slope: float | None = None  # E[f'^2] between this layer and the one before
    for site, std in zip(sites, stds, strict=True):
        variance = site.fans[0] * std**2
        if slope is not None:
            factor = variance * slope
            change += math.log(factor) if factor > 0 else -math.inf
        second, slope = variance * second, 1.0
        if site.module.bias is not None:
            second += float(site.module.bias.detach().double().square().mean())
        if site.after is not None:
            at = moments_at(site.after, second, site.channels)
            # a unit of several pieces passes a gradient on to one of them
            slope = at.derivative_second * pieces(site.after) / outputs(site.after)
            second = at.second
    return change


def warn_of_gradient(
    sites: Sequence[Site], stds: Sequence[float], rule: str, *, are_linears_fixed: bool = False
) -> str | None:
    """Warn where the gradient of a chain vanishes or explodes before the first layer; return the
    sentence, or None.

    Where it vanishes, the responses to different inputs become alike, too: by a factor of at least
    as much, for the map of their correlation is convex (Poole et al. 2016).

    rule: the name of the one that drew the weights.
    are_linears_fixed: whether the linear layers have stds of their own choice, as the paper's; such
        a last layer is small, and grows first, so that it says nothing of the others.
    """
    if are_linears_fixed:
        convs = [not isinstance(site.module, nn.Linear) for site in sites]
        sites = [site for site, is_conv in zip(sites, convs, strict=True) if is_conv]
        stds = [std for std, is_conv in zip(stds, convs, strict=True) if is_conv]
    try:
        change = gradient_change(sites, stds)
    except InputError:
        return None
    if math.isnan(change) or math.log(VANISHED) < change < math.log(EXPLODED):
        return None
    factor = math.exp(min(change, LARGEST_LOG))
    word = "explodes" if change > 0 else "vanishes"
    better = "" if rule == "he" else "init=he, "  # which keeps the signal, whatever its gradient
    sentence = (
        f"the gradient {word}: by theory the sum of its squares at {sites[0].name} is "
        f"{factor:.3g} times that at {sites[-1].name}; use {better}model.norm=batch, "
        "or an activation such as prelu, tanh or dks"
    )
    warnings.warn(sentence, stacklevel=2)
    return sentence
