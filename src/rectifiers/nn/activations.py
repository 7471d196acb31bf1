"""Activations, each a factory `(channels) -> nn.Module`, and their Gaussian moments, from which the gains follow.

Every layer gets a module of its own, so slopes are never shared by accident. A new activation is a function here (or in
any importable module) and a file in `conf/activation/` that names it. Its moments come from quadrature, unless the
module has a method `moments()` that returns them.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rectifiers.nn.kernels import PReLU
from rectifiers.nn.quadrature import REACH, normal_mean, normal_rule
from rectifiers.runtime.errors import InputError

Mode = Literal["forward", "backward", "average"]  # which signal a gain keeps
GAINLESS = "use an initialiser that needs none, such as init=gaussian"
WITHOUT_QUADRATURE = (
    "give it a method `moments()` that returns activations.Moments, or use an initialiser that needs no gain, such as "
    "init=gaussian"
)
TRIED = 8  # examples


class Maxout(nn.Module):
    """The largest of `pieces` linear responses (Goodfellow et al. 2013), from [N, channels * pieces, ...].

    The layer before emits `pieces` times as many channels; consecutive channels are the pieces of one unit.
    """

    def __init__(self, pieces: int = 2) -> None:
        super().__init__()
        if pieces < 2:
            raise InputError(f"activation.pieces={pieces} leaves nothing to choose from; give 2 or more")
        self.pieces = pieces

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.pieces)).max(dim=2).values

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}"

    def moments(self) -> "Moments":
        """Return the moments of the maximum of `pieces` independent N(0, 1); one of the pieces gets the gradient."""
        k = self.pieces
        second = normal_mean(lambda z: z**2 * k * torch.special.ndtr(z) ** (k - 1))
        return Moments(second, derivative_second=1 / k, map_slope=1.0)


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


def identity(channels: int) -> nn.Module:
    """No nonlinearity: a PReLU of slope 1."""
    return nn.Identity()


@dataclass(frozen=True)
class Moments:
    """Gaussian moments of an activation f, with z ~ N(0, 1), on which variance propagation rests.

    second: E[f(z)^2]; its inverse is the factor on Var[w] of the forward condition (1/2 for ReLU: Eq. 10).
    derivative_second: E[f'(z)^2]; the same for the backward condition (Eq. 14).
    map_slope: the factor by which a layer multiplies a relative error of the variance when the gain is 1/second. 1 for
        rectifiers; below 1 the fixed point attracts (tanh), above 1 it repels (GELU) and deep plain nets drift.
    """

    second: float
    derivative_second: float
    map_slope: float


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
    """Return E[f(z)^2] from values at the nodes, [nodes, channels]; infinite where the tail has not decayed."""
    nodes, weights = normal_rule()
    terms = (weights[:, None] * f**2).mean(1)
    whole, tail = float(terms.sum()), float(terms[nodes.abs() > REACH - 1].sum())
    return math.inf if tail > 1e-9 * whole else whole


def acts_on_single_numbers(function: Callable[..., Any], tensors: Sequence[Tensor]) -> bool:
    """Return whether each number of the result depends on the numbers of `tensors` in its own place alone."""
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
    """Return the moments of an elementwise module by quadrature; the mean over channels where they differ."""
    exact = copy.deepcopy(activation).double().eval().requires_grad_(False)
    nodes, weights = normal_rule()
    with torch.enable_grad():
        z = nodes[:, None].repeat(1, channels).requires_grad_()
        try:
            f = exact(z.clone())  # a copy, because the activation may work in place
        except Exception as error:  # for example, the module expects maps
            raise InputError(
                f"activation {describe(activation)} cannot be asked for its moments on [nodes, channels] ({error}); "
                f"{WITHOUT_QUADRATURE}"
            ) from error
        if f.shape != z.shape:
            raise InputError(
                f"activation {describe(activation)} maps {tuple(z.shape)} to {tuple(f.shape)}, so its moments cannot "
                f"be found by quadrature; {WITHOUT_QUADRATURE}"
            )
        if not acts_on_single_numbers(exact, [z.detach()[:TRIED]]):
            raise InputError(
                f"activation {describe(activation)} mixes the numbers that it is given, so its moments cannot be found "
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

    Closed forms for rectifiers, the module's own method `moments()` where it has one (Maxout), quadrature otherwise.
    channels: that it was built for; by default as many as its longest vector of parameters has numbers.

    Raises:
        InputError: where the module is not elementwise and has no method `moments()`.

    >>> moments(nn.ReLU())
    Moments(second=0.5, derivative_second=0.5, map_slope=1.0)
    """
    vectors = [parameter.numel() for parameter in activation.parameters() if parameter.dim() == 1]
    return _closed_form(activation) or _quadrature(activation, channels or max(vectors, default=1))


def gain(activation: nn.Module, channels: int | None = None, *, mode: Mode = "forward") -> float:
    """Return the factor on the std 1 / sqrt(n) of the weights that keeps the signal through `activation`.

    mode: forward, 1 / sqrt(E[f(z)^2]), keeps the responses; backward, 1 / sqrt(E[f'(z)^2]), keeps the gradients;
    average, for layers with as many inputs as outputs, lies between them, at the mean of both moments.

    Raises:
        InputError: where that moment is zero, infinite or not a number, or cannot be found, so that there is no gain.

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
            f"activation {describe(activation)} has E[{name}] = {moment} for z ~ N(0, 1), so no gain exists; {GAINLESS}"
        )
    return moment**-0.5


def pieces(activation: nn.Module) -> int:
    """Return how many channels of its input the activation reads per channel of its output: 1, or Maxout's pieces."""
    return int(getattr(activation, "pieces", 1))


def describe(activation: nn.Module) -> str:
    """Return the module with its settings in one line: LeakyReLU(negative_slope=0.01)."""
    return " ".join(repr(activation).split())


def check_output(activation: nn.Module, channels: int, sides: Sequence[int] = ()) -> Tensor:
    """Try `activation`, built for `channels` channels, on normal numbers [images, channels, *sides]; return those.

    Raises:
        InputError: where it cannot be applied, or gives another number of channels, or numbers that are not finite.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TRIED, channels * pieces(activation), *sides, generator=generator)
    expected = (TRIED, channels, *sides)
    name = f"activation {describe(activation)}"
    try:
        with torch.no_grad():
            y = activation.eval()(x.clone())
    except Exception as error:  # a user's activation may raise anything
        raise InputError(f"{name} cannot be applied to {list(x.shape)} ({_in_one_line(error)})") from error
    if not isinstance(y, Tensor) or y.shape != expected:
        got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{name} makes {got} of {list(x.shape)}, where {list(expected)} is needed; give one that keeps the number "
            "of channels, or has an attribute `pieces` with the number of channels that it reads for each of its own"
        )
    if not torch.isfinite(y).all():
        raise InputError(f"{name} is not finite for all z ~ N(0, 1); give one that is finite for every number")
    return x


def check_gain(activation: nn.Module, x: Tensor) -> None:
    """Check that a gain of `activation` means what an initialiser takes it for; x: as of `check_output`.

    Raises:
        InputError: where no gradient passes it, or it mixes its inputs and has no method `moments()`.
    """
    if not callable(getattr(activation, "moments", None)) and not acts_on_single_numbers(activation, [x]):
        raise InputError(
            f"activation {describe(activation)} mixes the numbers that it is given, so its gain is not that of a "
            f"function of one number; {WITHOUT_QUADRATURE}"
        )
    if moments(activation, x.shape[1] // pieces(activation)).derivative_second == 0:
        raise InputError(
            f"activation {describe(activation)} has a derivative of 0 almost everywhere, so no layer before it learns; "
            "give another activation, or an initialiser that needs no gain, such as init=gaussian"
        )


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
