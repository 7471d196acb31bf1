"""Activations. Each is a factory `(channels) -> nn.Module`.

Every layer gets a module of its own, so slopes are never shared by accident. To add an activation,
write a function here and list it in FACTORIES (or write it in any importable module), and a file in
`conf/activation/` that names it. Its moments are computed by quadrature, unless the module has a
method `moments()` that returns them. In the formulas, y is the response of a layer.

As in `nn.PReLU`, channels are the second dimension. Before an activation that learns or gates,
flatten tokens [N, T, C] to rows [N T, C].

Examples:
    >>> leaky_relu(16, slope=0.1)
    LeakyReLU(negative_slope=0.1)
"""

import difflib
import inspect
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, Literal

from torch import nn

from rectifiers.activations import modules
from rectifiers.activations.modules import (
    GEGLU,
    GLU,
    XIELU,
    CReLU,
    Function,
    LearnedSwish,
    Maxout,
    NoisyReLU,
    ReGLU,
    RReLU,
    Snake,
    SquaredLeakyReLU,
    SquaredReLU,
    SwiGLU,
)
from rectifiers.prelu import PReLU, SquaredPReLU
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Range

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


def celu(channels: int, alpha: Annotated[float, Range(gt=0)] = 1.0) -> nn.Module:
    """y for y > 0, alpha * (exp(y / alpha) - 1) for y <= 0: ELU without a kink at any alpha (Barron
    2017)."""
    return nn.CELU(alpha)


def gelu(channels: int) -> nn.Module:
    """y * Phi(y), exact form (Hendrycks and Gimpel 2016)."""
    return nn.GELU()


def silu(channels: int) -> nn.Module:
    """y * sigmoid(y), also called swish."""
    return nn.SiLU()


def learned_swish(channels: int, beta: float = 1.0) -> nn.Module:
    """y * sigmoid(b y) with one learned b per channel, `beta` at the start (Ramachandran et al.
    2017)."""
    return LearnedSwish(channels, beta)


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


def hardtanh(channels: int) -> nn.Module:
    """min(max(-1, y), 1) (Collobert 2004)."""
    return nn.Hardtanh()


def softsign(channels: int) -> nn.Module:
    """y / (1 + |y|) (Bergstra et al. 2009)."""
    return nn.Softsign()


def hardswish(channels: int) -> nn.Module:
    """y min(max(y + 3, 0), 6) / 6 (Howard et al. 2019)."""
    return nn.Hardswish()


def relu6(channels: int) -> nn.Module:
    """min(max(0, y), 6) (Krizhevsky 2010)."""
    return nn.ReLU6()


def squared_relu(channels: int) -> nn.Module:
    """max(0, y)^2 (So et al. 2021)."""
    return SquaredReLU()


def squared_leaky_relu(channels: int, slope: float = 0.5) -> nn.Module:
    """LeakyReLU(y)^2: `squared_relu` with a fixed slope before the square. Language models take
    a slope of 0.5 (modded-nanogpt, pull request 249)."""
    return SquaredLeakyReLU(slope)


def squared_prelu(channels: int, initial_slope: float = 0.25) -> nn.Module:
    """PReLU(y)^2: `squared_relu` with one learned slope per channel before the square (So et al.
    2021, He et al. 2015)."""
    return SquaredPReLU(channels, init=initial_slope)


def squared_prelu_shared(channels: int, initial_slope: float = 0.25) -> nn.Module:
    """`squared_prelu` with one learned slope for all channels of the layer."""
    return SquaredPReLU(1, init=initial_slope)


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


def swiglu(channels: int) -> nn.Module:
    """a silu(b), with two responses a and b per unit (Shazeer 2020). Fully connected rows have
    fewer units, so that the network has as many parameters as without gates."""
    return SwiGLU()


def geglu(channels: int) -> nn.Module:
    """a gelu(b), otherwise as `swiglu` (Shazeer 2020)."""
    return GEGLU()


def reglu(channels: int) -> nn.Module:
    """a max(0, b), otherwise as `swiglu` (Shazeer 2020)."""
    return ReGLU()


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


def tat_leaky_relu(
    channels: int, depth: Count | None = None, similarity: Annotated[float, Range(gt=0, lt=1)] = 0.9
) -> nn.Module:
    """Leaky ReLU with the smallest slope for which `depth` layers keep orthogonal inputs apart
    (Zhang, Botev and Martens 2022).

    Raises:
        InputError: if `depth` is None.
    """
    from rectifiers.activations import shaped  # late: few networks solve for a shape

    return shaped.TailoredLeakyReLU(shaped.leaky_slope(shaped.check_depth(depth), similarity))


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
    from rectifiers.activations import shaped  # late, as above

    numbers = shaped.shape(function, shaped.check_depth(depth), slope)
    return shaped.ShapedFunction(function, *numbers)


FACTORIES: dict[str, Callable[..., nn.Module]] = {
    factory.__name__: factory
    for factory in (
        *(relu, leaky_relu, prelu, prelu_shared, rrelu, noisy_relu, relu6, crelu),
        *(squared_relu, squared_leaky_relu, squared_prelu, squared_prelu_shared),
        *(identity, sigmoid, tanh, hardtanh, softsign, softplus, hardswish, snake),
        *(maxout, glu, swiglu, geglu, reglu),
        *(elu, celu, selu, gelu, silu, learned_swish, mish, golu, telu, xielu, smooth_leaky_relu),
        *(dks, tat_leaky_relu),
    )
}


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
    if name not in FACTORIES or len(by_name) != 1:
        raise InputError(
            f"{key}={choice} is not usable; give one of: {', '.join(sorted(FACTORIES))}; or one "
            "with its settings, such as {leaky_relu: {slope: 0.25}}"
        )

    try:
        return FACTORIES[name](channels, **settings)
    except TypeError as error:
        raise InputError(
            f"{key}={choice} is not usable ({error}); give settings that {name} takes"
        ) from error


def as_module(activation: nn.Module | str | Callable[..., Any]) -> nn.Module:
    """Return an activation as a module.

    activation: a module, a module class, a function of tensors such as `F.gelu`, or a name in this
        module or in `torch.nn`, such as "gelu" or "leaky_relu".

    Raises:
        InputError: if it is none of these, or needs settings.
    """
    if isinstance(activation, nn.Module):
        return activation

    build: Callable[[], object]
    if isinstance(activation, str):
        build = _factory(activation)
    elif inspect.isclass(activation) and issubclass(activation, nn.Module):
        build = activation
    elif callable(activation) and not inspect.isclass(activation):
        return Function(activation, getattr(activation, "__name__", repr(activation)))
    else:
        raise InputError(
            f"activation {reprlib.repr(activation)} is no activation; give a module such as "
            "nn.ReLU(), a function of tensors, or a name such as gelu"
        )

    try:
        module = build()
    except TypeError as error:
        raise InputError(
            f"activation {activation} needs settings ({error}); give a module with them"
        ) from error
    assert isinstance(module, nn.Module)
    return module


def _factory(name: str) -> Callable[[], object]:
    """Return what builds the activation of a name, in this module or in torch.nn, for one
    channel."""
    factories = {name.lower(): getattr(nn, name) for name in nn.modules.activation.__all__}
    factories |= {name: partial(factory, 1) for name, factory in FACTORIES.items()}
    lower = name.lower()
    build = factories.get(SYNONYMS.get(lower, lower))
    if build is None:
        near = difflib.get_close_matches(lower, factories, n=1)
        hint = f"did you mean {near[0]}?" if near else "give a name such as gelu, or a module"
        raise InputError(f"activation {name} is not known; {hint}")
    return build


def unused(layers: Mapping[str, Choice] | None, names: list[str]) -> list[str]:
    """Return the keys of `layers` that match none of the layer names `names`."""
    return [
        pattern for pattern in layers or {} if not any(fnmatchcase(name, pattern) for name in names)
    ]
