"""Activations, each a factory `(channels) -> nn.Module`, and their Gaussian moments, from which the
gains follow.

Every layer gets a module of its own, so slopes are never shared by accident. A new activation is a
function here (or in any importable module) and a file in `conf/activation/` that names it. Its
moments come from quadrature, unless the module has a method `moments()` that returns them."""

import copy
import difflib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from rectifiers.nonlinearities import (
    GLU,
    CReLU,
    Maxout,
    Moments,
    NoisyReLU,
    RReLU,
    Snake,
    SquaredReLU,
    outputs,
    pieces,
)
from rectifiers.prelu import PReLU
from rectifiers.quadrature import REACH, normal_rule
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range
from rectifiers.tailored import dks as dks
from rectifiers.tailored import tat_leaky_relu as tat_leaky_relu

Mode = Literal["forward", "backward", "average"]  # which signal a gain keeps
GAINLESS = "use an initialiser that needs none, such as init=gaussian"
WITHOUT_QUADRATURE = (
    "give it a method `moments()` that returns activations.Moments, or use an initialiser that "
    "needs no gain, such as "
    "init=gaussian"
)
TRIED = 8  # examples


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


def maxout(channels: int, pieces: int = 2) -> nn.Module:
    """The maximum of `pieces` linear responses; the layer before emits `channels * pieces`."""
    return Maxout(pieces)


def elu(channels: int, alpha: float = 1.0) -> nn.Module:
    """alpha * (exp(y) - 1) for y <= 0 (Clevert et al. 2016)."""
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
    """A slope drawn for every y <= 0 in training, their mean in testing (Xu et al. 2015)."""
    if not lower <= upper:
        raise InputError(
            f"activation.lower={lower} is above activation.upper={upper}; give a range"
        )
    return RReLU(lower, upper)


def noisy_relu(channels: int) -> nn.Module:
    """max(0, y + e) with noise of variance sigmoid(y) in training, max(0, y) in testing (Nair and
    Hinton 2010)."""
    return NoisyReLU()


def crelu(channels: int) -> nn.Module:
    """[max(0, y), max(0, -y)], twice as many channels as units (Shang et al. 2016)."""
    return CReLU()


def glu(channels: int) -> nn.Module:
    """a sigmoid(b) of two responses per unit (Dauphin et al. 2017)."""
    return GLU()


def snake(channels: int, a: Annotated[float, Range(gt=0, le=20)] = 1.0) -> nn.Module:
    """y + sin(a y)^2 / a (Ziyin et al. 2020)."""
    return Snake(a)


def torch_module(
    channels: int, name: str = "Mish", settings: dict[str, Any] | None = None
) -> nn.Module:
    """The activation `torch.nn.<name>` with its own settings, as name=LeakyReLU and
    settings={negative_slope: 0.1}."""
    known = torch.nn.modules.activation.__all__
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            f"activation.name={name} is no activation of torch; "
            f"{f'did you mean {near[0]}? ' if near else ''}"
            f"choose from: {', '.join(known)}"
        )
    kind, given = getattr(nn, name), dict(settings or {})
    accepted = inspect.signature(kind).parameters
    asked = {
        key
        for key, p in accepted.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    }
    if lacking := sorted(asked - given.keys()):
        values = ", ".join(f"{key}: <value>" for key in lacking)
        raise InputError(
            f"activation.name={name} needs {' and '.join(lacking)}; give "
            f"'activation.settings={{{values}}}'"
        )
    for key in given:
        if key not in accepted:
            raise InputError(
                f"activation.settings.{key} is not known; torch.nn.{name} takes: "
                f"{', '.join(accepted)}"
            )
    if "num_parameters" in accepted:
        given = {"num_parameters": channels, **given}
    return kind(**given)


def identity(channels: int) -> nn.Module:
    """No nonlinearity: a PReLU of slope 1."""
    return nn.Identity()


def _rectifier(slope_squared: float) -> Moments:
    half = (1 + slope_squared) / 2  # may overflow to infinity, which `gain` refuses
    return Moments(second=half, derivative_second=half, map_slope=1.0)


def _closed_form(activation: nn.Module) -> Moments | None:
    match activation:
        case nn.ReLU():
            return _rectifier(0.0)
        case nn.LeakyReLU():
            return _rectifier(activation.negative_slope * activation.negative_slope)
        case nn.PReLU():
            return _rectifier(float(activation.weight.detach().double().square().mean()))
        case nn.Identity():
            return _rectifier(1.0)
    own = getattr(activation, "moments", None)
    result = own() if callable(own) else None
    if not isinstance(result, Moments | None):
        raise InputError(
            f"activation {describe(activation)} has a method `moments()` that returns {result!r}; "
            "let it return activations.Moments"
        )
    return result


def _mean_square(f: Tensor) -> float:
    """Return E[f(z)^2] from values at the nodes, [nodes, channels]; infinite where the tail has not
    decayed."""
    nodes, weights = normal_rule()
    terms = (weights[:, None] * f**2).mean(1)
    whole, tail = float(terms.sum()), float(terms[nodes.abs() > REACH - 1].sum())
    return math.inf if tail > 1e-9 * whole else whole


def acts_on_single_numbers(function: Callable[..., Any], tensors: Sequence[Tensor]) -> bool:
    """Return whether each number of the result depends on the numbers of `tensors` in its own place
    alone."""
    if any(x.shape != tensors[0].shape for x in tensors):
        return False
    generator, place = torch.Generator().manual_seed(0), tensors[0].numel() // 2
    drawn = [torch.randn(x.shape, generator=generator).to(x) for x in tensors]
    disturbed = [x.clone() for x in drawn]
    for x in disturbed:
        x.view(-1)[place] += 10
    try:
        out, other = (function(*(x.clone() for x in some)) for some in (drawn, disturbed))
    except Exception:
        return False
    if not isinstance(out, Tensor) or out.shape != drawn[0].shape:
        return False
    changed = ~torch.isclose(out, other, rtol=0, atol=0, equal_nan=True).reshape(-1)
    changed[place] = False
    return not bool(changed.any())


def _quadrature(activation: nn.Module, channels: int) -> Moments:
    """Return the moments of an elementwise module by quadrature; the mean over channels where they
    differ."""
    exact = copy.deepcopy(activation).double().eval().requires_grad_(False)
    nodes, weights = normal_rule()
    with torch.enable_grad():
        z = nodes[:, None].repeat(1, channels).requires_grad_()
        try:
            f = exact(z.clone())  # a copy, because the activation may work in place
        except Exception as error:  # for example, the module expects maps
            raise InputError(
                f"activation {describe(activation)} cannot be asked for its moments on [nodes, "
                f"channels] ({error}); "
                f"{WITHOUT_QUADRATURE}"
            ) from error
        if f.shape != z.shape:
            raise InputError(
                f"activation {describe(activation)} maps {tuple(z.shape)} to {tuple(f.shape)}, "
                "so its moments cannot "
                f"be found by quadrature; {WITHOUT_QUADRATURE}"
            )
        if not acts_on_single_numbers(exact, [z.detach()[:TRIED]]):
            raise InputError(
                f"activation {describe(activation)} mixes the numbers that it is given, so its "
                "moments cannot be found "
                f"by quadrature; {WITHOUT_QUADRATURE}"
            )
        slope = torch.zeros_like(z)  # where f is not differentiable in z, as a step function
        if f.requires_grad:
            slope = torch.autograd.grad(f.sum(), z, allow_unused=True, materialize_grads=True)[0]
    f, z = f.detach(), z.detach()
    second = _mean_square(f)
    drift = float((weights[:, None] * f * slope * z).sum(0).mean())
    return Moments(second, _mean_square(slope), drift / second if second else math.nan)


def moments(activation: nn.Module, channels: int | None = None) -> Moments:
    """Return the Gaussian moments of `activation`; they may be zero, infinite or NaN.

    Closed forms for rectifiers, the module's own method `moments()` where it has one (Maxout),
    quadrature otherwise.
    channels: that it was built for; by default as many as its longest vector of parameters has
        numbers, or 2, which show whether it mixes them.

    Raises:
        InputError: where the module is not elementwise and has no method `moments()`.

    Examples:
        >>> moments(nn.ReLU())
        Moments(second=0.5, derivative_second=0.5, map_slope=1.0)
    """
    if not isinstance(activation, nn.Module):
        raise InputError(
            f"activation {activation!r} is no module; give one such as nn.ReLU(), not a "
            "function or a class"
        )
    vectors = [parameter.numel() for parameter in activation.parameters() if parameter.dim() == 1]
    return _closed_form(activation) or _quadrature(activation, channels or max(vectors, default=2))


def gain(activation: nn.Module, channels: int | None = None, *, mode: Mode = "forward") -> float:
    """Return the factor on the std 1 / sqrt(n) of the weights that keeps the signal through
    `activation`.

    mode: forward, 1 / sqrt(E[f(z)^2]), keeps the responses; backward, 1 / sqrt(E[f'(z)^2]), keeps
    the gradients; average, for layers with as many inputs as outputs, lies between them, at the
    mean of both moments.

    Raises:
        InputError: where that moment is zero, infinite or not a number, or cannot be found, so that
            there is no gain.

    Examples:
        >>> gain(nn.ReLU()) == math.sqrt(2)
        True
        >>> f"{gain(nn.GELU()):.4f} {gain(nn.GELU(), mode='backward'):.4f}"
        '1.5335 1.4811'
    """
    both = moments(activation, channels)
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
            f"activation {describe(activation)} has E[{name}] = {moment} for z ~ N(0, 1), so "
            f"no gain exists; {GAINLESS}"
        )
    return moment**-0.5


def describe(activation: nn.Module) -> str:
    """Return the module with its settings in one line: LeakyReLU(negative_slope=0.01)."""
    return " ".join(repr(activation).split())


def check_output(activation: nn.Module, channels: int, sides: Sequence[int] = ()) -> Tensor:
    """Try `activation`, built for `channels` channels, on normal numbers [images, channels,
    *sides]; return those.

    Raises:
        InputError: where it cannot be applied, or gives another number of channels, or numbers that
        are not finite.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TRIED, channels * pieces(activation), *sides, generator=generator)
    expected = (TRIED, channels * outputs(activation), *sides)
    name = f"activation {describe(activation)}"
    try:
        with torch.no_grad():
            y = activation.eval()(x.clone())
    except Exception as error:  # a user's activation may raise anything
        raise InputError(
            f"{name} cannot be applied to {list(x.shape)} ({_in_one_line(error)})"
        ) from error
    if not isinstance(y, Tensor) or y.shape != expected:
        got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{name} makes {got} of {list(x.shape)}, where {list(expected)} is needed; give "
            "one that keeps the number "
            "of channels, or has attributes `pieces` and `outputs`: the channels that it reads "
            "and gives per unit"
        )
    if not torch.isfinite(y).all():
        raise InputError(
            f"{name} is not finite for all z ~ N(0, 1); give one that is finite for every number"
        )
    return x


def check_gradient(activation: nn.Module, x: Tensor) -> None:
    """Check that a gradient passes `activation`; x: as of `check_output`.

    Raises:
        InputError: where its derivative is 0 almost everywhere, as that of a step.
    """
    with torch.enable_grad():
        given = x.clone().requires_grad_()
        y = activation(given.clone())  # a copy, because the activation may work in place
        weights = torch.randn(
            y.shape, generator=torch.Generator().manual_seed(0)
        )  # the sum of a softmax is constant
        if y.requires_grad:
            found = torch.autograd.grad(
                (y * weights).sum(), given, allow_unused=True, materialize_grads=True
            )
            if bool(found[0].any()):
                return
    raise InputError(
        f"activation {describe(activation)} has a derivative of 0 almost everywhere, so no "
        "layer before it learns; "
        "give another activation"
    )


def check_gain(activation: nn.Module, x: Tensor) -> None:
    """Check that a gain of `activation` means what an initialiser takes it for; x: as of
    `check_output`.

    Raises:
        InputError: where it mixes its inputs and has no method `moments()`.
    """
    if not callable(getattr(activation, "moments", None)) and not acts_on_single_numbers(
        activation, [x]
    ):
        raise InputError(
            f"activation {describe(activation)} mixes the numbers that it is given, so its "
            "gain is not that of a "
            f"function of one number; {WITHOUT_QUADRATURE}"
        )


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
