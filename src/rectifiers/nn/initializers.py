"""Initialisers: rules that fill one layer's weight, and `initialize`, which applies a rule to a network and reports it.

A rule is a function `(weight, layer, generator) -> std`. It fills `weight` in place, as `torch.nn.init` does, and
returns the standard deviation that it aims at. A new rule is a function here (or in any importable module) and a file
in `conf/init/` that names it.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

from rectifiers.nn.activations import gain
from rectifiers.nn.nonlinearities import pieces
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, NonNegative, Positive, Real
from rectifiers.runtime.seeds import derive_seed


class UnfitNetworkError(InputError):
    """A rule cannot start this network, so that none of its layers is to be filled by it."""


def _no_images(weight: Tensor) -> float:
    raise UnfitNetworkError("this initialiser measures responses, and there are no images here to measure them on")


@dataclass(frozen=True)
class Layer:
    """The properties of a layer that a rule may use.

    fan_in: n = k^2 c, the inputs of one response; fan_out: n-hat = k^2 d, the responses that one input reaches.
    find_forward_gain, find_backward_gain: called when a rule first reads the gain, so that a rule that reads none works
        with any activation.
    find_variance: the variance of the layer's responses on a batch, over all of them, were this its weight and its
        bias 0; the layers before it have their weights already. For rules `on_images`.
    """

    name: str
    fan_in: int
    fan_out: int
    find_forward_gain: Callable[[], float]
    find_backward_gain: Callable[[], float]
    find_variance: Callable[[Tensor], float] = _no_images

    @cached_property
    def forward_gain(self) -> float:
        """1 / sqrt(E[f^2]) of the activation before the layer; for the first layer, which has none, see `initialize`.

        std = forward_gain / sqrt(fan_in) keeps the variance of the responses (Eq. 10, 15).
        """
        return self.find_forward_gain()

    @cached_property
    def backward_gain(self) -> float:
        """1 / sqrt(E[f'^2]) of the activation after the layer; for the last layer, which has none, of the one before.

        std = backward_gain / sqrt(fan_out) keeps the variance of the gradients (Eq. 14).
        """
        return self.find_backward_gain()


Rule = Callable[[Tensor, Layer, Generator], float]
AnyRule = TypeVar("AnyRule", bound=Callable[..., float])


def on_images(rule: AnyRule) -> AnyRule:
    """Mark a rule that calls `layer.find_variance`: a training then gives it its first batch of images."""
    vars(rule)["needs_images"] = True
    return rule


def needs_images(rule: Rule) -> bool:
    """Whether a rule, or the one that settings were given to, is marked by `on_images`."""
    return getattr(getattr(rule, "func", rule), "needs_images", False)


def _normal(weight: Tensor, std: float, generator: Generator) -> float:
    nn.init.normal_(weight, std=std, generator=generator)
    return std


def he(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, gain^2 / n): the forward condition, Eq. 10 for ReLU, Eq. 15 for PReLU, its analogue for any activation."""
    return _normal(weight, layer.forward_gain / math.sqrt(layer.fan_in), generator)


def he_scaled(weight: Tensor, layer: Layer, generator: Generator, beta: Positive = 1.0) -> float:
    """`he` with the std times beta: every layer scales the signal by beta, L layers by beta^L (section 2.2)."""
    if beta <= 0:
        raise InputError(f"init.beta={beta} is not usable; give a number above 0, or init=zeros")
    return _normal(weight, beta * layer.forward_gain / math.sqrt(layer.fan_in), generator)


def he_backward(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, gain^2 / n-hat): the backward condition, Eq. 14; the paper's large models use it."""
    return _normal(weight, layer.backward_gain / math.sqrt(layer.fan_out), generator)


def he_average(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 2 / (n E[f^2] + n-hat E[f'^2])): for rectifiers 4 / ((1 + a^2)(n + n-hat)), not in the paper."""
    forward, backward = layer.fan_in / layer.forward_gain**2, layer.fan_out / layer.backward_gain**2
    return _normal(weight, math.sqrt(2 / (forward + backward)), generator)


def xavier(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 2 / (n + n-hat)), Glorot and Bengio's compromise (2010), whatever the activation."""
    return _normal(weight, math.sqrt(2 / (layer.fan_in + layer.fan_out)), generator)


def lecun(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """N(0, 1 / n): right for linear units; the paper calls it "Xavier" in its comparisons (section 2.2)."""
    return _normal(weight, 1 / math.sqrt(layer.fan_in), generator)


def gaussian(weight: Tensor, layer: Layer, generator: Generator, std: NonNegative = 0.01) -> float:
    """N(0, std^2) whatever the layer, as in Krizhevsky's network."""
    if std <= 0:
        raise InputError(f"init.std={std} is not usable; give a number above 0, or init=zeros")
    return _normal(weight, std, generator)


def zeros(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """All zeros: symmetry is never broken, so training fails."""
    nn.init.zeros_(weight)
    return 0.0


def constant(weight: Tensor, layer: Layer, generator: Generator, value: Real = 0.01) -> float:
    """All `value`, of std 0: the weights are trained, but the units of a layer stay copies of each other."""
    nn.init.constant_(weight, value)
    return 0.0


def sparse(weight: Tensor, layer: Layer, generator: Generator, k: Count = 10, std: NonNegative | None = None) -> float:
    """`k` randomly chosen non-zero inputs per unit (at most all of them), drawn from N(0, std^2).

    `std=None` means gain / sqrt(k), which keeps the variance of the responses at any depth; a fixed 0.01 does not.
    The returned std is that of all entries, zeros included.
    """
    if k < 1:
        raise InputError(f"init.k={k} leaves the units without inputs; give 1 or more, or init=zeros")
    rows = weight.flatten(1)
    inputs = min(k, rows.shape[1])
    nonzero_std = _normal(weight, layer.forward_gain / math.sqrt(inputs) if std is None else std, generator)
    chosen = torch.rand(rows.shape, generator=generator).argsort(dim=1)[:, :inputs]
    mask = torch.zeros(rows.shape, dtype=torch.bool).scatter_(1, chosen, True).view_as(weight)
    with torch.no_grad():
        weight.mul_(mask.to(weight.device))
    return nonzero_std * math.sqrt(inputs / rows.shape[1])


def orthogonal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """Orthonormal rows (or columns, where there are more rows) times the forward gain (Saxe et al. 2014)."""
    nn.init.orthogonal_(weight, gain=layer.forward_gain, generator=generator)
    return layer.forward_gain / math.sqrt(max(weight.shape[0], weight[0].numel()))


def delta_orthogonal(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """`orthogonal` in the middle of every kernel, zeros around it (Xiao et al. 2018); for linear layers the same.

    The middle is position k // 2 of k on each axis, half a step off in kernels of even size. A response reads one
    position of its window, so no window mixes positions, and with stride the positions between are not read. As with
    `orthogonal`, a layer of more responses than inputs keeps the signal's sum, not its mean.
    """
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
def lsuv(weight: Tensor, layer: Layer, generator: Generator, tolerance: Positive = 0.1, steps: Count = 10) -> float:
    """Orthonormal, then divided by the std of the responses on a batch of images (Mishkin and Matas 2016).

    Layer after layer, until that batch's responses have a variance within `tolerance` of 1, at most `steps` times.
    Without a bias one division is exact. No gain is read: the responses are measured, whatever the activation.
    """
    nn.init.orthogonal_(weight, generator=generator)
    for _ in range(steps):
        variance = layer.find_variance(weight)
        if not 0 < variance < math.inf:
            raise UnfitNetworkError(
                f"init=lsuv divides by the std of the responses, and those of {layer.name} have a variance of "
                f"{variance:g} on the first batch; give another init, activation or preprocessing"
            )
        if abs(variance - 1) < tolerance:
            break
        weight.div_(math.sqrt(variance))
    return float(weight.double().square().mean().sqrt())


def torch_default(weight: Tensor, layer: Layer, generator: Generator) -> float:
    """The default of `nn.Conv2d` and `nn.Linear`: uniform with std 1 / sqrt(3 n)."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    return 1 / math.sqrt(3 * layer.fan_in)


@dataclass(frozen=True)
class Site:
    """A weight layer of a network with the activations on either side of it (None at the ends)."""

    name: str
    module: nn.Conv2d | nn.Linear
    before: nn.Module | None
    after: nn.Module | None

    @property
    def fans(self) -> tuple[int, int]:
        """(fan_in, fan_out), n and n-hat; the pieces of a Maxout layer count in n-hat."""
        window = math.prod(self.module.weight.shape[2:])
        return self.module.weight.shape[1] * window, self.module.weight.shape[0] * window

    @property
    def channels(self) -> int:
        """The number of channels of the activation after the layer, or of the layer's output where there is none."""
        return self.module.weight.shape[0] // (pieces(self.after) if self.after else 1)


@dataclass(frozen=True)
class LayerReport:
    """One layer of the init report: its fans, its gains, the std its rule asked for and the weights that were drawn.

    A gain is None where the activation has none, which a rule that does not read it never notices.
    """

    layer: str
    shape: list[int]
    fan_in: int
    fan_out: int
    activation_before: str | None
    activation_after: str | None
    forward_gain: float | None
    backward_gain: float | None
    rule: str
    std_asked: float
    std_drawn: float
    mean_drawn: float
    bias: float | str

    def as_dict(self) -> dict:
        """Plain types only, for the run's record."""
        return asdict(self)


def _layer(site: Site, previous: Site | None, first_layer_linear: bool) -> Layer:
    """Return the properties of `site` for a rule; `previous` is the site before it, None for the first."""
    before = (site.before, previous.channels) if site.before and previous else None
    after = (site.after, site.channels) if site.after else None
    read, fed = before or (None if first_layer_linear else after), after or before
    return Layer(
        site.name, *site.fans, lambda: gain(*read) if read else 1.0, lambda: gain(*fed, mode="backward") if fed else 1.0
    )


def layers_of(sites: Sequence[Site]) -> list[Layer]:
    """Return each layer's properties, for a rule that is applied to single layers."""
    return [_layer(site, sites[i - 1] if i else None, False) for i, site in enumerate(sites)]


def _or_none(layer: Layer, name: str) -> float | None:
    with suppress(InputError):
        return getattr(layer, name)
    return None


def initialize(
    sites: Sequence[Site],
    rule: Rule,
    *,
    seed: int,
    name: str,
    bias: float | str = 0.0,
    first_layer_linear: bool = False,
    fc_std: Sequence[float] | None = None,
    run: Callable[[], object] | None = None,
) -> list[LayerReport]:
    """Fill every weight and bias of `sites` in order and return the init report, one LayerReport per layer.

    Every layer has a random stream of its own, a function of (seed, position): two networks that differ in one layer
    agree in all others, and two activations are compared from the same draws.

    name: the rule's name, for the init report.
    bias: a constant, or "torch_default" for uniform(-1/sqrt(n), 1/sqrt(n)).
    first_layer_linear: whether forward rules give the first layer, which has no activation before it, Var = 1/n; by
        default it gets the gain of the activation after it, as in the paper: one factor on one layer does not add up
        with depth.
    fc_std: fixed stds of the linear layers in order, instead of the rule (the paper's 0.01, 0.01, 0.001).
    run: runs the network on images, for rules `on_images`; each layer is filled when the run comes to it.

    Raises:
        InputError: where fc_std does not fit the network, or bias is neither number nor "torch_default".
    """
    linears = [site.name for site in sites if isinstance(site.module, nn.Linear)]
    if fc_std is not None and len(fc_std) != len(linears):
        raise InputError(
            f"init.fc_std={list(fc_std)} has {len(fc_std)} values for {len(linears)} linear layers "
            f"({', '.join(linears)}); give one per layer, or null"
        )
    if bias != "torch_default" and (isinstance(bias, bool) or not isinstance(bias, int | float)):
        raise InputError(f"init.bias={bias} is not usable; give a number such as 0 or 0.01, or torch_default")
    fixed = dict(zip(linears, fc_std or (), strict=False))
    report = []

    def fill(position: int, x: Tensor | None = None) -> None:
        site = sites[position]
        generator = torch.Generator().manual_seed(derive_seed("weights", seed, position))
        layer = _layer(site, sites[position - 1] if position else None, first_layer_linear)
        if x is not None:
            layer = replace(layer, find_variance=lambda weight: _variance(site.module, x))
        weight = site.module.weight
        with torch.no_grad():
            if site.name in fixed:
                asked, used = gaussian(weight, layer, generator, fixed[site.name]), "gaussian"
            else:
                asked, used = rule(weight, layer, generator), name
            if site.module.bias is not None:
                biases(site.module.bias, bias, layer, generator)
        drawn = weight.detach().double()
        report.append(
            LayerReport(
                layer=site.name,
                shape=list(weight.shape),
                fan_in=layer.fan_in,
                fan_out=layer.fan_out,
                activation_before=type(site.before).__name__ if site.before else None,
                activation_after=type(site.after).__name__ if site.after else None,
                forward_gain=_or_none(layer, "forward_gain"),
                backward_gain=_or_none(layer, "backward_gain"),
                rule=used,
                std_asked=asked,
                std_drawn=float(drawn.std(correction=0)),
                mean_drawn=float(drawn.mean()),
                bias=bias,
            )
        )

    if run is None:
        for position in range(len(sites)):
            fill(position)
    else:
        with ExitStack() as hooks:
            for position, site in enumerate(sites):

                def fill_before(_: nn.Module, given: tuple[Tensor, ...], position: int = position) -> None:
                    fill(position, *given)

                hooks.enter_context(site.module.register_forward_pre_hook(fill_before))
            run()
    return report


def _variance(module: nn.Conv2d | nn.Linear, x: Tensor) -> float:
    """Return the variance of a layer's responses without its bias, which is set to 0."""
    if module.bias is not None:
        nn.init.zeros_(module.bias)
    return float(module.forward(x).float().var(correction=0))


def biases(empty: Tensor, bias: float | str, layer: Layer, generator: Generator) -> Tensor:
    """Fill `empty`, in place, with a constant, or for "torch_default" as torch fills biases, and return it."""
    if bias == "torch_default":
        bound = 1 / math.sqrt(layer.fan_in)
        return nn.init.uniform_(empty, -bound, bound, generator=generator)
    return nn.init.constant_(empty, float(bias))
