"""Initialisers: rules that fill the weight of one layer.

A rule is a function `(weight, layer, generator) -> std`. It fills `weight`, [out, in, ...], in
place, as `torch.nn.init` does, and returns the standard deviation that it aims at. To add a rule,
write a function here (or in any importable module), and a file in `conf/init/` that names it. In
the formulas, n is the fan-in, n-hat the fan-out, and f the activation.

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

from rectifiers.gains import STD_TRUNCATED
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Positive, Real


class UnfitNetworkError(InputError):
    """Raised if a rule cannot initialise this network at all."""


def _no_images(weight: Tensor) -> float:
    raise UnfitNetworkError(
        "this initialiser measures responses, and there are no images here to measure them on"
    )


@dataclass(frozen=True)
class Layer:
    """The properties of a layer that a rule may use.

    name: the name of the layer.
    fan_in: n = k^2 c, the number of inputs of one response.
    fan_out: n-hat = k^2 d, the number of responses that one input reaches.
    find_forward_gain: returns `forward_gain`. It is called when a rule first reads the gain, so
        rules that need no gain work with any activation.
    find_backward_gain: the same for `backward_gain`.
    find_variance: for rules `on_images`: returns the variance of all responses of the layer to a
        batch, for this weight and biases of 0. The layers before it are already initialised.
    reads: what it reads, as the class of an activation, such as ReLU; None for the data.
    """

    name: str
    fan_in: int
    fan_out: int
    find_forward_gain: Callable[[], float]
    find_backward_gain: Callable[[], float]
    find_variance: Callable[[Tensor], float] = _no_images
    reads: str | None = None

    @cached_property
    def forward_gain(self) -> float:
        """1 / sqrt(E[f^2]) of the activation before the layer. For the first layer, see
        `initialize_chain`.

        std = forward_gain / sqrt(fan_in) keeps the variance of the responses (Eq. 10, 15).
        """
        return self.find_forward_gain()

    @cached_property
    def backward_gain(self) -> float:
        """1 / sqrt(E[f'^2]) of the activation after the layer. The last layer has none, and uses
        the one before it.

        std = backward_gain / sqrt(fan_out) keeps the variance of the gradients (Eq. 14).
        """
        return self.find_backward_gain()


Rule = Callable[[Tensor, Layer, Generator], float]
AnyRule = TypeVar("AnyRule", bound=Callable[..., float])


def on_images(rule: AnyRule) -> AnyRule:
    """Mark a rule that calls `layer.find_variance`, so that a training gives it the first batch of
    images."""
    vars(rule)["needs_images"] = True
    return rule


def needs_images(rule: Rule) -> bool:
    """Return whether a rule is marked by `on_images`, also if it is a partial function."""
    return getattr(getattr(rule, "func", rule), "needs_images", False)


def _normal(weight: Tensor, std: float, generator: Generator) -> float:
    nn.init.normal_(weight, std=std, generator=generator)
    return std


def he(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, gain^2 / n), the forward condition: Eq. 10 for ReLU, Eq. 15 for PReLU, and the same for
    any activation."""
    return _normal(weight, layer.forward_gain / math.sqrt(layer.fan_in), generator)


def he_uniform(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """U(-b, b) with the variance of `he`: b = gain sqrt(3 / n), as `nn.init.kaiming_uniform_`."""
    std = layer.forward_gain / math.sqrt(layer.fan_in)
    nn.init.uniform_(weight, -math.sqrt(3) * std, math.sqrt(3) * std, generator=generator)
    return std


def he_scaled(weight: Tensor, layer: Layer, generator: Generator, beta: Positive = 1.0) -> float:
    """`he` with beta times the std: every layer scales the signal by beta, and L layers by beta^L
    (section 2.2)."""
    return _normal(weight, beta * layer.forward_gain / math.sqrt(layer.fan_in), generator)


def he_backward(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, gain^2 / n-hat), the backward condition (Eq. 14). The paper's large models use it."""
    return _normal(weight, layer.backward_gain / math.sqrt(layer.fan_out), generator)


def he_average(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 2 / (n E[f^2] + n-hat E[f'^2])), a compromise between `he` and `he_backward` that is not
    in the paper. For rectifiers the variance is 4 / ((1 + a^2)(n + n-hat))."""
    forward, backward = layer.fan_in / layer.forward_gain**2, layer.fan_out / layer.backward_gain**2
    return _normal(weight, math.sqrt(2 / (forward + backward)), generator)


def xavier(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 2 / (n + n-hat)) for any activation, the compromise of Glorot and Bengio (2010)."""
    return _normal(weight, math.sqrt(2 / (layer.fan_in + layer.fan_out)), generator)


def lecun(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 1 / n), which keeps the signal of linear units. The paper calls it "Xavier" in its
    comparisons (section 2.2)."""
    return _normal(weight, 1 / math.sqrt(layer.fan_in), generator)


def gaussian(weight: Tensor, layer: Layer, generator: Generator, std: Positive = 0.01) -> float:
    """N(0, std^2) for every layer, as in Krizhevsky's network."""
    return _normal(weight, std, generator)


def uniform(
    weight: Tensor, layer: Layer, generator: Generator, half_width: Positive = 0.05
) -> float:
    """U(-half_width, half_width) for every layer (`torch.nn.init.uniform_`). The std is half_width
    over sqrt(3)."""
    nn.init.uniform_(weight, -half_width, half_width, generator=generator)
    return half_width / math.sqrt(3)


def truncated_normal(
    weight: Tensor, layer: Layer, generator: Generator, std: Positive | None = None
) -> float:
    """Normal distribution, truncated at two standard deviations, as in BERT (Devlin et al. 2019).

    std: of the weights after truncation, 0.88 times that of the normal distribution; None: that of
        `he`."""
    std = layer.forward_gain / math.sqrt(layer.fan_in) if std is None else std
    whole = std / STD_TRUNCATED
    nn.init.trunc_normal_(weight, 0, whole, -2 * whole, 2 * whole, generator=generator)
    return std


def zeros(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """All zeros. The symmetry of the units is never broken, so training fails."""
    nn.init.zeros_(weight)
    return 0.0


def constant(weight: Tensor, layer: Layer, generator: Generator, value: Real = 0.01) -> float:
    """All weights equal `value` (std 0). They are trained, but the units of a layer stay copies of
    each other."""
    nn.init.constant_(weight, value)
    return 0.0


def sparse(
    weight: Tensor,
    layer: Layer,
    generator: Generator,
    k: Count = 10,
    std: Positive | None = None,
) -> float:
    """N(0, std^2) for `k` randomly chosen inputs of each unit (or all, if there are fewer), and 0
    for the others. In a transposed convolution, `k` outputs of each input are chosen.

    std: None: gain / sqrt(k), which keeps the variance of the responses at any depth; a fixed 0.01
        does not. In a transposed convolution k is the mean number of inputs of a response.

    Returns the std of all entries, including zeros."""
    rows = weight.flatten(1)
    inputs = min(k, rows.shape[1])
    kept = layer.fan_in * inputs / rows.shape[1]  # `inputs`, where the rows are those of units
    nonzero_std = layer.forward_gain / math.sqrt(kept) if std is None else std
    _normal(weight, nonzero_std, generator)
    # not in the default type or on the default device, which change what a seed draws
    order = torch.rand(
        rows.shape, generator=generator, dtype=torch.float32, device=generator.device
    )
    chosen = order.argsort(dim=1)[:, :inputs]
    mask = torch.zeros_like(order, dtype=torch.bool).scatter_(1, chosen, True).view_as(weight)
    with torch.no_grad():
        weight.mul_(mask.to(weight.device))
    return nonzero_std * math.sqrt(inputs / rows.shape[1])


def orthogonal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """Orthonormal rows (or columns, if there are more rows than columns) times the forward gain
    (Saxe et al. 2014)."""
    nn.init.orthogonal_(weight, gain=layer.forward_gain, generator=generator)
    return layer.forward_gain / math.sqrt(max(weight.shape[0], weight[0].numel()))


def delta_orthogonal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """`orthogonal` in the middle of every kernel, and zeros around it (Xiao et al. 2018). For
    linear layers it equals `orthogonal`.

    The middle is position k // 2 on each axis of size k, half a step off for even k. Each response
    reads one position of its window, so positions are not mixed, and a stride skips positions. As
    with `orthogonal`, a layer with more outputs than inputs keeps the sum of squares of the signal,
    not the mean square."""
    matrix = torch.empty(weight.shape[:2], dtype=torch.float32, device=generator.device)
    std = orthogonal(matrix, layer, generator)
    nn.init.zeros_(weight)
    middle = weight  # a view of it, [out, in], when the loop is through
    for side in weight.shape[2:]:
        middle = middle[:, :, side // 2]
    with torch.no_grad():
        middle.copy_(matrix)
    return std / math.sqrt(math.prod(weight.shape[2:]))


def looks_linear(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """[W, -W] for the two halves of CReLU's output, with W as of `orthogonal` with a gain of 1:
    W max(0, y) - W max(0, -y) = W y (Balduzzi et al. 2017).

    A network without pooling is linear at initialization, whatever its depth. The weight of the
    first layer, which reads the data, is W.

    Raises:
        UnfitNetworkError: if the layer reads anything else, or not the halves in this order.
    """
    if layer.reads not in (None, "CReLU"):
        raise UnfitNetworkError(
            f"init=looks_linear mirrors the halves that CReLU gives, and {layer.name} reads "
            f"{layer.reads}; give activation=crelu and plain layers, or another init"
        )
    parts = 1 if layer.reads is None else 2
    half = torch.empty_like(weight[:, : weight.shape[1] // parts])
    nn.init.orthogonal_(half, generator=generator)
    with torch.no_grad():
        weight.copy_(half if parts == 1 else torch.cat([half, -half], dim=1))
    return 1 / math.sqrt(max(half.shape[0], half[0].numel()))


@on_images
def lsuv(
    weight: Tensor, layer: Layer, generator: Generator, tolerance: Positive = 0.1, steps: Count = 10
) -> float:
    """Orthonormal weights, divided by the std of the responses to a batch of images (Mishkin and
    Matas 2016).

    The layers are initialised one after the other. Each division is repeated until the variance of
    the responses is within `tolerance` of 1, at most `steps` times. Without a bias one division is
    exact. The rule needs no gain, because it measures the responses.

    Raises:
        UnfitNetworkError: if the responses of a layer do not vary, or are not finite.
    """
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


def sinusoidal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """Not random: the weights of unit i of m are the wave sin(i (2 pi j / n + 2 pi / m)) over its
    inputs j, scaled to the std of `he` (Fernandez-Hernandez et al. 2025)."""
    rows = weight.flatten(1)
    units, inputs = rows.shape
    unit = torch.arange(1, units + 1, dtype=torch.float64, device="cpu")
    place = torch.arange(inputs, dtype=torch.float64, device="cpu") / inputs + 1 / units
    waves = torch.sin(2 * math.pi * torch.outer(unit, place))
    std = layer.forward_gain / math.sqrt(layer.fan_in)
    with torch.no_grad():
        weight.copy_((waves * (std / waves.std())).view_as(weight))
    return std


def torch_default(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """The default of `nn.Conv2d` and `nn.Linear`: uniform, with std 1 / sqrt(3 n). For transposed
    convolutions torch takes n-hat, without regard to the stride."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    return 1 / math.sqrt(3 * weight[0].numel())


def check_bias(key: str, bias: float | str) -> None:
    """Raise an InputError if `biases` cannot use this value of `key`."""
    if bias != "torch_default" and (isinstance(bias, bool) or not isinstance(bias, int | float)):
        raise InputError(f"{key}={bias} is not usable; give a number such as 0, or torch_default")


def biases(empty: Tensor, bias: float | str, layer: Layer, generator: Generator) -> Tensor:
    """Fill `empty` in place with a constant, or with torch's default for biases if `bias` is
    "torch_default", and return it."""
    if bias == "torch_default":
        bound = 1 / math.sqrt(layer.fan_in)
        return nn.init.uniform_(empty, -bound, bound, generator=generator)
    return nn.init.constant_(empty, float(bias))
