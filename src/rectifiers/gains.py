"""Moments of activations for normal inputs, and the gains of He's formula that follow from them, by
closed forms or by quadrature. Needs only torch and numpy."""

import copy
import math
import reprlib
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import torch
from torch import Generator, Tensor, nn

from rectifiers.activations import as_module
from rectifiers.prelu import PReLU
from rectifiers.quadrature import (
    EXAMPLES,
    LAST_NODE,
    Moments,
    describe,
    is_elementwise,
    no_moments,
    normal_rule,
    value_and_slope,
)
from rectifiers.runtime.errors import InputError

Mode = Literal["forward", "backward", "average"]  # which signal a gain keeps
FANS = {"fan_in": "forward", "fan_out": "backward"}  # as torch.nn.init calls them
Distribution = Literal["normal", "uniform", "truncated_normal"]
# whose moments have closed forms; a subclass may compute something else
RECTIFIERS = (nn.ReLU, nn.LeakyReLU, nn.PReLU, PReLU, nn.Identity)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
STD_TRUNCATED = 0.879625661  # of a normal number between -2 and 2
Activation = nn.Module | str | Callable[..., Any]  # as `activations.as_module` takes it


def rectifier_slopes(activation: nn.Module) -> Tensor | None:
    """Return the slopes a of max(0, y) + a min(0, y), float64 [1] or [channels]; None where the
    activation is not known to be such a rectifier."""
    if type(activation) not in RECTIFIERS:
        return None
    match activation:
        case nn.PReLU():
            return activation.weight.detach().double()
        case nn.LeakyReLU():
            slope = activation.negative_slope
        case nn.Identity():
            slope = 1.0
        case _:
            slope = 0.0
    return torch.tensor([slope], dtype=torch.float64, device="cpu")


def _rectifier(slope_squared: float) -> Moments:
    half = (1 + slope_squared) / 2  # may overflow to infinity, which `gain` refuses
    return Moments(second=half, derivative_second=half, map_slope=1.0)


def _closed_form(activation: nn.Module) -> Moments | None:
    slopes = rectifier_slopes(activation)
    if slopes is not None:
        return _rectifier(float(slopes.square().mean()))

    method = getattr(activation, "moments", None)
    result = method() if callable(method) else None
    if not isinstance(result, Moments | None):
        raise no_moments(
            activation, f"has a method `moments()` that returns {reprlib.repr(result)}"
        )
    return result


def _mean_square(f: Tensor) -> float:
    """Return E[f(z)^2] from values at the nodes, [nodes, channels]; infinite where the tail has not
    decayed."""
    nodes, weights = normal_rule()
    terms = (weights[:, None] * f**2).mean(1)
    total, tail = float(terms.sum()), float(terms[nodes.abs() > LAST_NODE - 1].sum())
    return math.inf if tail > 1e-9 * total else total


def _quadrature(activation: nn.Module, channels: int) -> Moments:
    """Return the moments of an elementwise module, the mean over channels where they differ."""
    exact = copy.deepcopy(activation).double().eval().requires_grad_(False)
    nodes, weights = normal_rule()

    def checked(z: Tensor) -> Tensor:
        try:
            f = exact(z)
        except Exception as error:  # for example, the module expects maps
            reason = f"cannot be applied to {list(z.shape)} ({error})"
            raise no_moments(activation, reason) from error
        if not isinstance(f, Tensor) or f.shape != z.shape:
            result = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
            raise no_moments(activation, f"maps {tuple(z.shape)} to {result}")
        if not is_elementwise(exact, [z.detach()[:EXAMPLES]]):
            raise no_moments(activation, "mixes its inputs")
        return f

    z = nodes[:, None].repeat(1, channels)
    f, slope = value_and_slope(checked, z)
    second = _mean_square(f)
    # d E[f(s z)^2] / ds at 1 is E[f(z)^2 (z^2 - 1)], of values alone: autograd's derivative misses
    # jumps, and a module may state another one (a straight-through estimator)
    growth = float((weights[:, None] * f**2 * (z**2 - 1)).sum(0).mean())
    return Moments(second, _mean_square(slope), growth / (2 * second) if second else math.nan)


def moments(activation: Activation, channels: int | None = None) -> Moments:
    """Return the moments of `activation` for z ~ N(0, 1). They may be zero, infinite or NaN.

    Rectifiers have closed forms. A module with a method `moments()`, such as Maxout, states its
    own. For everything else the moments are computed by quadrature, in evaluation mode: those of an
    activation that draws random numbers in training are of its testing. To start from what it does
    in training, state that in `moments()`, as `activations.rrelu` and `activations.noisy_relu` do.

    activation: a module, a module class, a function of tensors such as `F.gelu`, or a name such as
        "gelu".
    channels: the number of channels that the module was built for; None: the length of its longest
        vector of parameters, or 2.

    Raises:
        InputError: if the activation is not known, or if it is not elementwise and has no method
            `moments()`.

    Examples:
        >>> moments("relu")
        Moments(second=0.5, derivative_second=0.5, map_slope=1.0)
        >>> f"{moments(lambda x: x.relu() ** 2).second:.2f}"
        '1.50'
    """
    module = as_module(activation)
    vectors = [parameter.numel() for parameter in module.parameters() if parameter.dim() == 1]
    return _closed_form(module) or _quadrature(module, channels or max(vectors, default=2))


def gain(activation: Activation, channels: int | None = None, *, mode: Mode = "forward") -> float:
    """Return the gain of `activation`: weights of std gain / sqrt(n) keep the size of the signal.

    activation: as for `moments`.
    channels: as for `moments`.
    mode: "forward": 1 / sqrt(E[f(z)^2]), with the fan-in n, keeps the responses (Eq. 10, 15);
        "backward": 1 / sqrt(E[f'(z)^2]), with the fan-out n, keeps the gradients (Eq. 14);
        "average": 1 / sqrt of the mean of both moments, for layers with as many inputs as outputs.

    Raises:
        InputError: if the moment is zero, infinite or NaN, or cannot be computed.

    Examples:
        >>> gain("relu") == gain(nn.ReLU()) == math.sqrt(2)
        True
        >>> f"{gain(torch.nn.functional.gelu):.4f}"
        '1.5335'
        >>> f"{gain(nn.GELU()):.4f} {gain(nn.GELU(), mode='backward'):.4f}"
        '1.5335 1.4811'
    """
    module = as_module(activation)
    both = moments(module, channels)
    match mode:
        case "forward":
            name, moment = "f(z)^2", both.second
        case "backward":
            name, moment = "f'(z)^2", both.derivative_second
        case "average":
            name, moment = "(f(z)^2 + f'(z)^2) / 2", (both.second + both.derivative_second) / 2
        case _:
            raise InputError(f"mode={mode} is not known; choose one of: forward, backward, average")

    if not (0 < moment < math.inf):
        raise InputError(
            f"activation {describe(module)} has E[{name}] = {moment} for z ~ N(0, 1), so no "
            "gain exists; use an initialiser that needs none, such as init=gaussian"
        )
    return moment**-0.5


def he_normal_(
    weight: Tensor | nn.Module,
    *,
    groups: int | None = None,
    activation: Activation = "relu",
    mode: str = "fan_in",
    distribution: Distribution = "normal",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight in place by He initialisation for any activation, and return it.

    weight: [out, in / groups, ...], as in `nn.Linear` and `nn.Conv2d`; or such a layer, also a
        transposed one, of which stride and groups are read.
    groups: of the convolution whose weight a tensor is, 1 by default: a response reads the inputs
        of its own group alone, and an input reaches the responses of its group alone.
    activation: the activation before the layer, as for `gain`; "identity" if the layer reads the
        data. With mode="fan_out": the activation after the layer.
    mode: "fan_in", the forward condition: std = gain(activation) / sqrt(fan_in) (Eq. 10 and 15 of
        the paper); "fan_out", the backward condition: std = gain(activation, mode="backward") /
        sqrt(fan_out) (Eq. 14); "average": std = gain(activation, mode="average") / sqrt(mean of
        both fans).
    distribution: "normal", "uniform" or "truncated_normal", each with this std. The truncated
        normal distribution ends at two standard deviations of the underlying normal one.
    generator: the generator of the random numbers; None: torch's default.

    Raises:
        InputError: if the activation has no gain, `weight` is neither a layer with such a weight
            nor a tensor of two or more dimensions, `groups` does not divide its outputs, or `mode`
            or `distribution` is not known.

    Examples:
        >>> seeded = torch.Generator().manual_seed(0)
        >>> weight = he_normal_(torch.empty(256, 1024), activation="silu", generator=seeded)
        >>> f"{weight.std():.3f} {gain('silu') / 32:.3f}"
        '0.052 0.052'
    """
    direction = FANS.get(mode, mode)
    if direction not in get_args(Mode):
        raise InputError(f"mode={mode} is not known; choose one of: fan_in, fan_out, average")

    weight, fan_in, fan_out = _weight_and_fans(weight, groups)
    fan = {"forward": fan_in, "backward": fan_out}.get(direction, (fan_in + fan_out) / 2)
    std = gain(activation, mode=cast(Mode, direction)) / math.sqrt(fan)

    match distribution:
        case "normal":
            return nn.init.normal_(weight, std=std, generator=generator)
        case "uniform":
            bound = math.sqrt(3) * std
            return nn.init.uniform_(weight, -bound, bound, generator=generator)
        case "truncated_normal":
            std /= STD_TRUNCATED
            return nn.init.trunc_normal_(weight, 0, std, -2 * std, 2 * std, generator=generator)
    names = ", ".join(get_args(Distribution))
    raise InputError(f"distribution={distribution} is not known; choose one of: {names}")


def _weight_and_fans(weight: Tensor | nn.Module, groups: int | None) -> tuple[Tensor, int, int]:
    """Return (weight, fan-in, fan-out) of a layer or of a tensor."""
    layer = weight if isinstance(weight, nn.Module) else None
    if layer is not None:
        if not isinstance(layer, (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)):
            raise InputError(f"{describe(layer)} is no linear, conv or transposed layer; give one")
        if groups is not None:
            raise InputError(
                f"groups={groups} is for a tensor; leave it out, the layer has its own"
            )
        weight, groups = layer.weight, getattr(layer, "groups", 1)

    assert isinstance(weight, Tensor)
    if isinstance(weight, nn.UninitializedParameter) or weight.dim() < 2:
        shape = "still unknown" if layer is not None else tuple(weight.shape)
        raise InputError(
            f"a weight of shape {shape} has no fans; give one of two or more dimensions"
        )
    if not weight.is_floating_point():
        raise InputError(f"a weight of {weight.dtype} holds no real numbers; give one that does")
    groups = 1 if groups is None else groups
    if type(groups) is not int or groups < 1 or weight.shape[0] % groups:
        raise InputError(
            f"groups={groups} does not divide the {weight.shape[0]} rows of the weight; give the "
            "groups of its convolution"
        )

    window = math.prod(weight.shape[2:])
    of_row, of_column = weight.shape[1] * window, weight.shape[0] // groups * window
    if isinstance(layer, TRANSPOSED):  # whose rows are inputs, with stride - 1 zeros between them
        return weight, max(1, round(of_column / math.prod(layer.stride))), of_row
    return weight, of_row, of_column
