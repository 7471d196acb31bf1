"""Initialisers: rules that fill one layer's weight.

A rule is a function `(weight, layer, generator) -> std`. It fills `weight` in place, as
`torch.nn.init` does, and returns the standard deviation that it aims at. A new rule is a function
here (or in any importable module) and a file in `conf/init/` that names it.

Examples:
    >>> layer = Layer("fc", 256, 64, lambda: math.sqrt(2), lambda: math.sqrt(2))
    >>> f"{he(torch.empty(64, 256), layer, torch.Generator()):.4f}"
    '0.0884'
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Positive, Real


class UnfitNetworkError(InputError):
    """A rule cannot start this network, so that none of its layers is to be filled by it."""


def _no_images(weight: Tensor) -> float:
    raise UnfitNetworkError(
        "this initialiser measures responses, and there are no images here to measure them on"
    )


@dataclass(frozen=True)
class Layer:
    """The properties of a layer that a rule may use.

    fan_in: n = k^2 c, the inputs of one response; fan_out: n-hat = k^2 d, the responses that one
    input reaches.
    find_forward_gain, find_backward_gain: called when a rule first reads the gain, so that a rule
        that reads none works with any activation.
    find_variance: the variance of the layer's responses on a batch, over all of them, were this its
        weight and its bias 0; the layers before it have their weights already. For rules
        `on_images`.
    branches: how many residual branches the network has; 0 where one of them does not end in a
        layer, as behind a normalisation. branch: the layer's place in its branch, from 1, and the
        layers of that, where it is in one.
    is_output: whether its responses are those of the network.
    """

    name: str
    fan_in: int
    fan_out: int
    find_forward_gain: Callable[[], float]
    find_backward_gain: Callable[[], float]
    find_variance: Callable[[Tensor], float] = _no_images
    branches: int = 0
    branch: tuple[int, int] | None = None
    is_output: bool = False

    @cached_property
    def forward_gain(self) -> float:
        """1 / sqrt(E[f^2]) of the activation before the layer; of the first layer, see
        `initialize_chain`.

        std = forward_gain / sqrt(fan_in) keeps the variance of the responses (Eq. 10, 15).
        """
        return self.find_forward_gain()

    @cached_property
    def backward_gain(self) -> float:
        """1 / sqrt(E[f'^2]) of the activation after the layer; for the last layer, which has none,
        of the one before.

        std = backward_gain / sqrt(fan_out) keeps the variance of the gradients (Eq. 14).
        """
        return self.find_backward_gain()


Rule = Callable[[Tensor, Layer, Generator], float]
AnyRule = TypeVar("AnyRule", bound=Callable[..., float])


def on_images(rule: AnyRule) -> AnyRule:
    """Mark a rule that calls `layer.find_variance`: a training then gives it its first batch of
    images."""
    vars(rule)["needs_images"] = True
    return rule


def needs_images(rule: Rule) -> bool:
    """Whether a rule, or the one that settings were given to, is marked by `on_images`."""
    return getattr(getattr(rule, "func", rule), "needs_images", False)


def _normal(weight: Tensor, std: float, generator: Generator) -> float:
    nn.init.normal_(weight, std=std, generator=generator)
    return std


def he(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, gain^2 / n): the forward condition, Eq. 10 for ReLU, Eq. 15 for PReLU, its analogue for
    any activation."""
    return _normal(weight, layer.forward_gain / math.sqrt(layer.fan_in), generator)


def he_uniform(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """U(-b, b) with the variance of `he`: b = gain sqrt(3 / n), as `nn.init.kaiming_uniform_` has
    it."""
    std = layer.forward_gain / math.sqrt(layer.fan_in)
    nn.init.uniform_(weight, -math.sqrt(3) * std, math.sqrt(3) * std, generator=generator)
    return std


def he_scaled(weight: Tensor, layer: Layer, generator: Generator, beta: Positive = 1.0) -> float:
    """`he` with the std times beta: every layer scales the signal by beta, L layers by beta^L
    (section 2.2)."""
    return _normal(weight, beta * layer.forward_gain / math.sqrt(layer.fan_in), generator)


def he_backward(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, gain^2 / n-hat): the backward condition, Eq. 14; the paper's large models use it."""
    return _normal(weight, layer.backward_gain / math.sqrt(layer.fan_out), generator)


def he_average(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 2 / (n E[f^2] + n-hat E[f'^2])): for rectifiers 4 / ((1 + a^2)(n + n-hat)), not in the
    paper."""
    forward, backward = layer.fan_in / layer.forward_gain**2, layer.fan_out / layer.backward_gain**2
    return _normal(weight, math.sqrt(2 / (forward + backward)), generator)


def xavier(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 2 / (n + n-hat)), Glorot and Bengio's compromise (2010), whatever the activation."""
    return _normal(weight, math.sqrt(2 / (layer.fan_in + layer.fan_out)), generator)


def lecun(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 1 / n): right for linear units; the paper calls it "Xavier" in its comparisons (section
    2.2)."""
    return _normal(weight, 1 / math.sqrt(layer.fan_in), generator)


def gaussian(weight: Tensor, layer: Layer, generator: Generator, std: Positive = 0.01) -> float:
    """N(0, std^2) whatever the layer, as in Krizhevsky's network."""
    return _normal(weight, std, generator)


def zeros(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """All zeros: symmetry is never broken, so training fails."""
    nn.init.zeros_(weight)
    return 0.0


def constant(weight: Tensor, layer: Layer, generator: Generator, value: Real = 0.01) -> float:
    """All `value`, of std 0: the weights are trained, but the units of a layer stay copies of each
    other."""
    nn.init.constant_(weight, value)
    return 0.0


def sparse(
    weight: Tensor,
    layer: Layer,
    generator: Generator,
    k: Count = 10,
    std: Positive | None = None,
) -> float:
    """`k` randomly chosen non-zero inputs per unit (at most all of them), drawn from N(0, std^2).

    `std=None` means gain / sqrt(k), which keeps the variance of the responses at any depth; a fixed
    0.01 does not. The returned std is that of all entries, zeros included."""
    rows = weight.flatten(1)
    inputs = min(k, rows.shape[1])
    nonzero_std = layer.forward_gain / math.sqrt(inputs) if std is None else std
    _normal(weight, nonzero_std, generator)
    chosen = torch.rand(rows.shape, generator=generator).argsort(dim=1)[:, :inputs]
    mask = torch.zeros(rows.shape, dtype=torch.bool).scatter_(1, chosen, True).view_as(weight)
    with torch.no_grad():
        weight.mul_(mask.to(weight.device))
    return nonzero_std * math.sqrt(inputs / rows.shape[1])


def orthogonal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """Orthonormal rows (or columns, where there are more rows) times the forward gain (Saxe et al.
    2014)."""
    nn.init.orthogonal_(weight, gain=layer.forward_gain, generator=generator)
    return layer.forward_gain / math.sqrt(max(weight.shape[0], weight[0].numel()))


def delta_orthogonal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """`orthogonal` in the middle of every kernel, zeros around it (Xiao et al. 2018); for linear
    layers the same.

    The middle is position k // 2 of k on each axis, half a step off in kernels of even size. A
    response reads one position of its window, so no window mixes positions, and with stride the
    positions between are not read. As with `orthogonal`, a layer of more responses than inputs
    keeps the signal's sum, not its mean."""
    matrix = torch.empty(weight.shape[:2])
    std = orthogonal(matrix, layer, generator)
    nn.init.zeros_(weight)
    middle = weight  # a view of it, [out, in], when the loop is through
    for side in weight.shape[2:]:
        middle = middle[:, :, side // 2]
    with torch.no_grad():
        middle.copy_(matrix)
    return std / math.sqrt(math.prod(weight.shape[2:]))


@on_images
def lsuv(
    weight: Tensor, layer: Layer, generator: Generator, tolerance: Positive = 0.1, steps: Count = 10
) -> float:
    """Orthonormal, then divided by the std of the responses on a batch of images (Mishkin and Matas
    2016).

    Layer after layer, until that batch's responses have a variance within `tolerance` of 1, at most
    `steps` times. Without a bias one division is exact. No gain is read: the responses are
    measured, whatever the activation."""
    nn.init.orthogonal_(weight, generator=generator)
    for _ in range(steps):
        variance = layer.find_variance(weight)
        if not 0 < variance < math.inf:
            raise UnfitNetworkError(
                f"init=lsuv divides by the std of the responses, and those of {layer.name} have a "
                f"variance of {variance:g} on the first batch; give another init, activation or "
                "preprocessing"
            )
        if abs(variance - 1) < tolerance:
            break
        weight.div_(math.sqrt(variance))
    return float(weight.double().square().mean().sqrt())


def fixup(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """Fixup, for residual networks without normalisation (Zhang, Dauphin and Ma 2019).

    The last layer of each of the L residual branches and that of the network are 0, so that the
    network starts as its shortcuts and gives scores of 0. All others are `he`, times L^(-1 / (2m -
    2)) in a branch of m layers. The paper's scalar biases and multipliers are parameters of the
    network: `model.norm=fixup` of `resnet20` has them."""
    if not layer.branches:
        raise UnfitNetworkError(
            "init=fixup is for residual networks whose branches all end in a layer, without "
            "normalisation; give model=resnet20 model.norm=fixup, or another init"
        )
    place, layers = layer.branch or (0, 0)
    if layer.is_output or 0 < place == layers:
        return zeros(weight, layer, generator)
    # the gain is of what the layer reads, which those before it in the branch have scaled already
    scale = layer.branches ** (-place / (2 * layers - 2)) if place else 1.0
    return _normal(weight, scale * layer.forward_gain / math.sqrt(layer.fan_in), generator)


def sinusoidal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """No chance: unit i of m is the wave sin(i (2 pi j / n + 2 pi / m)) over its inputs j, times
    what gives all weights the std of `he` (Fernandez-Hernandez et al. 2025)."""
    rows = weight.flatten(1)
    units, inputs = rows.shape
    unit = torch.arange(1, units + 1, dtype=torch.float64)
    place = torch.arange(inputs, dtype=torch.float64) / inputs + 1 / units
    waves = torch.sin(2 * math.pi * torch.outer(unit, place))
    std = layer.forward_gain / math.sqrt(layer.fan_in)
    with torch.no_grad():
        weight.copy_((waves * (std / waves.std())).view_as(weight))
    return std


def torch_default(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """The default of `nn.Conv2d` and `nn.Linear`: uniform with std 1 / sqrt(3 n)."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    return 1 / math.sqrt(3 * layer.fan_in)


def check_bias(key: str, bias: float | str) -> None:
    """Refuse a value of `key` that `biases` cannot use."""
    if bias != "torch_default" and (isinstance(bias, bool) or not isinstance(bias, int | float)):
        raise InputError(f"{key}={bias} is not usable; give a number such as 0, or torch_default")


def biases(empty: Tensor, bias: float | str, layer: Layer, generator: Generator) -> Tensor:
    """Fill `empty`, in place, with a constant, or for "torch_default" as torch fills biases, and
    return it."""
    if bias == "torch_default":
        bound = 1 / math.sqrt(layer.fan_in)
        return nn.init.uniform_(empty, -bound, bound, generator=generator)
    return nn.init.constant_(empty, float(bias))
