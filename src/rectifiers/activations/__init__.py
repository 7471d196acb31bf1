"""Activations. Each is a factory `(channels) -> nn.Module`.

Every layer gets a module of its own, so slopes are never shared by accident. To add an activation,
write a function here (or in any importable module), and a file in `conf/activation/` that names it.
Its moments are computed by quadrature, unless the module has a method `moments()` that returns
them. In the formulas, y is the response of a layer.

Examples:
    >>> leaky_relu(16, slope=0.1)
    LeakyReLU(negative_slope=0.1)
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from rectifiers.activations import modules as modules
from rectifiers.activations.modules import (
    GLU,
    XIELU,
    CReLU,
    Function,
    Maxout,
    NoisyReLU,
    RReLU,
    Snake,
    SquaredReLU,
    outputs,
    pieces,
)
from rectifiers.activations.modules import dks as dks
from rectifiers.activations.modules import tat_leaky_relu as tat_leaky_relu
from rectifiers.prelu import PReLU
from rectifiers.quadrature import EXAMPLES, describe, is_elementwise, no_moments
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range

SYNONYMS = {"linear": "identity", "swish": "silu"}

Choice = str | dict[str, dict[str, Any]]  # prelu, or with its settings: {leaky_relu: {slope: 0.25}}


def relu(channels: int) -> nn.Module:
    """max(0, y)."""
    return nn.ReLU()


def leaky_relu(channels: int, slope: float = 0.01) -> nn.Module:
    """ReLU with a small fixed slope for y <= 0 (Maas et al. 2013)."""
    return nn.LeakyReLU(slope)


def prelu(channels: int, initial_slope: float = 0.25) -> nn.Module:
    """PReLU with one learned slope per channel (Eq. 1, "channel-wise")."""
    return PReLU(channels, init=initial_slope)


def prelu_shared(channels: int, initial_slope: float = 0.25) -> nn.Module:
    """PReLU with one learned slope for all channels of the layer ("channel-shared")."""
    return PReLU(1, init=initial_slope)


def sigmoid(channels: int) -> nn.Module:
    """1 / (1 + exp(-y))."""
    return nn.Sigmoid()


def tanh(channels: int) -> nn.Module:
    """The hyperbolic tangent."""
    return nn.Tanh()


def maxout(channels: int, pieces: Annotated[int, Range(ge=2)] = 2) -> nn.Module:
    """The maximum of `pieces` linear responses (Goodfellow et al. 2013). The layer before has
    `channels * pieces` outputs."""
    return Maxout(pieces)


def elu(channels: int, alpha: float = 1.0) -> nn.Module:
    """y for y > 0, alpha * (exp(y) - 1) for y <= 0 (Clevert et al. 2016)."""
    return nn.ELU(alpha)


def gelu(channels: int) -> nn.Module:
    """y * Phi(y), exact form (Hendrycks and Gimpel 2016)."""
    return nn.GELU()


def silu(channels: int) -> nn.Module:
    """y * sigmoid(y), also called swish."""
    return nn.SiLU()


def softplus(channels: int) -> nn.Module:
    """log(1 + exp(y))."""
    return nn.Softplus()


def selu(channels: int) -> nn.Module:
    """ELU with the constants that make 0 and 1 an attracting mean and variance (Klambauer et al.
    2017)."""
    return nn.SELU()


def mish(channels: int) -> nn.Module:
    """y tanh(softplus(y)) (Misra 2020)."""
    return nn.Mish()


def hardswish(channels: int) -> nn.Module:
    """y min(max(y + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return nn.Hardswish()


def relu6(channels: int) -> nn.Module:
    """min(max(0, y), 6) (Krizhevsky 2010)."""
    return nn.ReLU6()


def squared_relu(channels: int) -> nn.Module:
    """max(0, y)^2 (So et al. 2021)."""
    return SquaredReLU()


def rrelu(channels: int, lower: float = 1 / 8, upper: float = 1 / 3) -> nn.Module:
    """Leaky ReLU whose slope is drawn from lower to upper for every y <= 0 in training, and is the
    mean of both in testing (Xu et al. 2015)."""
    if not lower <= upper:
        raise InputError(
            f"activation.lower={lower} is above activation.upper={upper}; give a range"
        )
    return RReLU(lower, upper)


def noisy_relu(channels: int) -> nn.Module:
    """max(0, y + e) in training, with normal noise e of variance sigmoid(y), and max(0, y) in
    testing (Nair and Hinton 2010)."""
    return NoisyReLU()


def crelu(channels: int) -> nn.Module:
    """[max(0, y), max(0, -y)], with twice as many channels as units (Shang et al. 2016)."""
    return CReLU()


def glu(channels: int) -> nn.Module:
    """a sigmoid(b), with two responses a and b per unit (Dauphin et al. 2017)."""
    return GLU()


def golu(channels: int) -> nn.Module:
    """y exp(-exp(-y)), gated by Gompertz's curve (Das et al. 2025)."""
    return Function(modules.golu, "golu")


def telu(channels: int) -> nn.Module:
    """y tanh(exp(y)) (Fernandez and Mali 2024)."""
    return Function(modules.telu, "telu")


def smooth_leaky_relu(channels: int, slope: Annotated[float, Range(ge=0, lt=1)] = 0.1) -> nn.Module:
    """a y + (1 - a) log(1 + exp(y)), a leaky ReLU of slope a without a kink (Frei et al. 2022)."""
    return Function(partial(modules.smooth_leaky_relu, slope=slope), f"slope={slope:g}")


def xielu(channels: int) -> nn.Module:
    """A line of slope 0.5, plus a y^2 above 0 and b (exp(y) - 1 - y) below, with learned factors a
    and b (Huang and Schlag 2024)."""
    return XIELU()


def snake(channels: int, a: Annotated[float, Range(gt=0, le=20)] = 1.0) -> nn.Module:
    """y + sin(a y)^2 / a (Ziyin et al. 2020)."""
    return Snake(a)


def identity(channels: int) -> nn.Module:
    """No nonlinearity: a PReLU of slope 1."""
    return nn.Identity()


@dataclass(frozen=True)
class ByLayer:
    """A factory of activations that depends on the layer's name, too: `build(channels, layer)`.

    Called with channels alone, it builds the default activation.
    """

    build: Callable[[int, str], nn.Module]

    def __call__(self, channels: int) -> nn.Module:
        return self.build(channels, "")


def by_layer(
    channels: int, layer: str, default: Choice = "relu", layers: dict[str, Choice] | None = None
) -> nn.Module:
    """The activation that `layers` names for `layer`, or else `default`.

    layers: activations by the name of a layer, or by a pattern such as conv3_* or fc*. A name comes
        before patterns, and a longer pattern before a shorter one. The activations are other
        functions of this module.

    Raises:
        InputError: if an activation is not in this module, or does not take a setting.
    """
    choices = layers or {}
    patterns = [pattern for pattern in choices if fnmatchcase(layer, pattern)]
    patterns.sort(key=lambda pattern: (pattern != layer, -len(pattern), pattern))
    key, choice = "activation.default", default
    if patterns:
        key, choice = f"activation.layers.{patterns[0]}", choices[patterns[0]]
    by_name = {choice: {}} if isinstance(choice, str) else choice
    name, settings = next(iter(by_name.items()), ("", {}))
    factories = _factories()
    if name not in factories or len(by_name) != 1:
        raise InputError(
            f"{key}={choice} is not usable; give one of: {', '.join(sorted(factories))}; or one "
            "with its settings, such as {leaky_relu: {slope: 0.25}}"
        )
    try:
        return factories[name](channels, **settings)
    except TypeError as error:
        raise InputError(
            f"{key}={choice} is not usable ({error}); give settings that {name} takes"
        ) from error


def _factories() -> dict[str, Callable[..., nn.Module]]:
    """Return the activations of this module by name."""
    return {
        name: function
        for name, function in globals().items()
        if inspect.isfunction(function) and function is not by_layer
        if next(iter(inspect.signature(function).parameters), None) == "channels"
    }


def as_module(activation: nn.Module | str | Callable[..., Any]) -> nn.Module:
    """Return an activation as a module.

    activation: a module, a module class, a function of tensors such as `F.gelu`, or a name in this
        module or in `torch.nn`, such as "gelu" or "leaky_relu".

    Raises:
        InputError: if it is none of these, or needs settings.
    """
    if isinstance(activation, nn.Module):
        return activation
    build: Callable[[], object] | None = None
    if isinstance(activation, str):
        names = {name.lower(): getattr(nn, name) for name in nn.modules.activation.__all__}
        names |= {name: partial(factory, 1) for name, factory in _factories().items()}
        build = names.get(SYNONYMS.get(activation.lower(), activation.lower()))
        if build is None:
            near = difflib.get_close_matches(activation.lower(), names, n=1)
            hint = f"did you mean {near[0]}?" if near else "give a name such as gelu, or a module"
            raise InputError(f"activation {activation} is not known; {hint}")
    elif inspect.isclass(activation) and issubclass(activation, nn.Module):
        build = activation
    elif callable(activation) and not inspect.isclass(activation):
        return Function(activation, getattr(activation, "__name__", repr(activation)))
    if build is None:
        raise InputError(
            f"activation {activation!r} is no activation; give a module such as nn.ReLU(), a "
            "function of tensors, or a name such as gelu"
        )
    try:
        module = build()
    except TypeError as error:
        raise InputError(
            f"activation {activation} needs settings ({error}); give a module with them"
        ) from error
    assert isinstance(module, nn.Module)
    return module


def unused(layers: Mapping[str, Choice] | None, names: list[str]) -> list[str]:
    """Return the keys of `layers` that match none of the layer names `names`."""
    return [
        pattern for pattern in layers or {} if not any(fnmatchcase(name, pattern) for name in names)
    ]


def check_activation(activation: nn.Module, channels: int, sides: Sequence[int] = ()) -> Tensor:
    """Apply `activation`, built for `channels` channels, to standard normal numbers [images,
    channels, *sides], and return these numbers.

    Raises:
        InputError: if it cannot be applied to numbers with a gradient, returns another number of
            channels or numbers that are not finite, or has a derivative of 0 almost everywhere, as
            a step function.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, channels * pieces(activation), *sides, generator=generator)
    expected = (EXAMPLES, channels * outputs(activation), *sides)
    name, z = f"activation {describe(activation)}", x.clone().requires_grad_()
    gradient = torch.zeros(())
    try:
        with torch.enable_grad():
            y = activation.eval()(z.clone())  # a copy, because the activation may work in place
        if isinstance(y, Tensor) and y.requires_grad:
            # weighted, because the sum of a softmax is constant
            weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
            (gradient,) = torch.autograd.grad(y, z, weights, materialize_grads=True)
    except Exception as error:  # a user's activation may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{name} cannot be applied to {list(x.shape)} with a gradient ({reason}); give one "
            "that works on any number of images, by torch's functions alone"
        ) from error
    if not isinstance(y, Tensor) or y.shape != expected:
        got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{name} makes {got} of {list(x.shape)}, where {list(expected)} is needed; give one "
            "that keeps the number of channels, or has attributes `pieces` and `outputs`: the "
            "channels that it reads and gives per unit"
        )
    if not torch.isfinite(y).all():
        raise InputError(
            f"{name} is not finite for all z ~ N(0, 1); give one that is finite for every number"
        )
    if not gradient.any():
        raise InputError(
            f"{name} has a derivative of 0 almost everywhere, so no layer before it learns; give "
            "another activation"
        )
    return x


def check_gain(activation: nn.Module, x: Tensor) -> None:
    """Check that `activation` has a gain that an initialiser can use.

    x: the numbers that `check_activation` returns.

    Raises:
        InputError: if it mixes its inputs and has no method `moments()`.
    """
    if not callable(getattr(activation, "moments", None)) and not is_elementwise(activation, [x]):
        raise no_moments(activation, "mixes its inputs")
