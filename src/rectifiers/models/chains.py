"""The weight layers of a chain of rows, `initialize_chain`, which applies a rule to them, and a
warning of chains that no rule helps."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from rectifiers import initializers
from rectifiers.activations.modules import pieces
from rectifiers.gains import Mode, gain, moments
from rectifiers.initialization.report import GROWTH_LIMIT, InitReport, LayerReport
from rectifiers.initializers import Layer, Rule
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed


@dataclass(frozen=True)
class Site:
    """A weight layer of a network with the activations on either side of it (None at the ends).

    levels: of the pyramid in front of it; 1 without one."""

    name: str
    module: nn.Conv2d | nn.Linear
    before: nn.Module | None
    after: nn.Module | None
    levels: int = 1

    @property
    def fans(self) -> tuple[int, int]:
        """(fan_in, fan_out), n and n-hat; the pieces of a Maxout layer count in n-hat."""
        outputs, inputs, *kernel = self.module.weight.shape
        window = math.prod(kernel)
        return inputs * window, outputs * window

    @property
    def channels(self) -> int:
        """The channels of the activation after the layer, or of its responses without one."""
        outputs = self.module.weight.shape[0]
        return outputs // pieces(self.after) if self.after else outputs


SizedActivation = tuple[nn.Module, int]  # an activation with its number of channels


def _gain(activation: SizedActivation | None, mode: Mode) -> float:
    return gain(*activation, mode=mode) if activation else 1.0


def layers_of(sites: Sequence[Site], first_layer_linear: bool = False) -> list[Layer]:
    """Return each layer's properties, as rules read them; first_layer_linear: as for
    `initialize_chain`."""
    layers = []
    before: SizedActivation | None = None
    for site in sites:
        after = (site.after, site.channels) if site.after else None

        # Forward rules ask what a layer reads, backward rules what reads the layer. At the ends,
        # where one is missing, the paper takes the other.
        read = before
        if before is None and not first_layer_linear:
            read = after
        fed = after or before

        # computed when a rule asks, since not every activation has every gain
        forward, backward = partial(_gain, read, "forward"), partial(_gain, fed, "backward")
        reads = type(site.before).__name__ if site.before else None
        if reads and site.levels > 1:
            reads += f" through {site.levels} levels of a pyramid"
        layers.append(Layer(site.name, *site.fans, forward, backward, reads=reads))
        before = after
    return layers


def initialize_chain(
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
    """Fill every weight and bias of `sites` in order and return the init report, one LayerReport
    per layer.

    Every layer has a random stream of its own, a function of (seed, position): two networks that
    differ in one layer agree in all others, and two activations are compared from the same draws.

    name: the rule's name, for the init report.
    bias: a constant, or "torch_default" for uniform(-1/sqrt(n), 1/sqrt(n)).
    first_layer_linear: whether forward rules give the first layer, which has no activation before
        it, Var = 1/n; by default it gets the gain of the activation after it, as in the paper: one
        factor on one layer does not add up with depth.
    fc_std: fixed stds of the linear layers in order, instead of the rule (the paper's 0.01, 0.01,
        0.001).
    run: runs the network on images, for rules `on_images`; each layer is filled when the run comes
        to it.

    Raises:
        InputError: where bias is neither number nor "torch_default".
    """
    initializers.check_bias("init.bias", bias)
    linears = [site.name for site in sites if isinstance(site.module, nn.Linear)]
    fixed = {} if fc_std is None else dict(zip(linears, fc_std, strict=True))
    layers = layers_of(sites, first_layer_linear)
    report: list[LayerReport] = []

    def fill(position: int, x: Tensor | None = None) -> None:
        site, layer = sites[position], layers[position]
        if x is not None:
            layer = replace(layer, find_variance=partial(_variance, site.module, x))
        generator = torch.Generator().manual_seed(derive_seed("weights", seed, position))
        with torch.no_grad():
            if site.name in fixed:
                used, std = "gaussian", fixed[site.name]
                initializers.gaussian(site.module.weight, layer, generator, std)
            else:
                weight = torch.empty_like(site.module.weight)
                used, std = name, rule(weight, layer, generator)
                site.module.weight.copy_(weight)
            if site.module.bias is not None:
                initializers.biases(site.module.bias, bias, layer, generator)
        report.append(_layer_report(site, layer, used, std, bias))

    if run is None:
        for position in range(len(sites)):
            fill(position)
        return report

    def fill_before(position: int, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        fill(position, *inputs)

    with ExitStack() as hooks:
        for position, site in enumerate(sites):
            hook = partial(fill_before, position)
            hooks.enter_context(site.module.register_forward_pre_hook(hook))
        run()
    return report


def layer_reports(report: InitReport, rule: str, bias: float | str) -> list[LayerReport]:
    """Return the layers of a report as a record keeps them."""
    return [
        LayerReport(
            layer=row.layer.removesuffix(".weight"),
            shape=list(row.shape),
            fan_in=row.fan_in,
            fan_out=row.fan_out,
            activation_before=row.reads,
            activation_after=row.feeds,
            forward_gain=(row.share / row.second_in) ** 0.5 if row.second_in > 0 else None,
            backward_gain=None,
            rule=rule,
            std_asked=row.std,
            std_drawn=row.std_drawn,
            mean_drawn=row.mean_drawn,
            bias=bias,
        )
        for row in report.layers
    ]


def initialize_empirically(
    network: nn.Module,
    sites: Sequence[Site],
    rule: Rule,
    images: Tensor | None,
    *,
    seed: int,
    name: str,
    bias: float | str = 0.0,
) -> list[LayerReport]:
    """Fill the layers of a chain as `initialize` with mode="empirical" does, on images that the
    network reads, and return the init report. Warn of what no start cures."""
    if images is None:
        raise InputError("init.mode=empirical measures responses, and there are no images here")
    # imported late: a closed form needs none of the tracing behind it
    from rectifiers.initialization.initialize import initialize

    report = initialize(
        network, images, init=rule, mode="empirical", seed=seed, bias=cast(float, bias)
    )
    for sentence in report.warnings:
        warnings.warn(sentence, stacklevel=2)

    names = {site.module.weight: site.name for site in sites}  # "conv1", not "trunk.conv1.weight"
    entries = []
    for row, entry in zip(report.layers, layer_reports(report, name, bias), strict=True):
        weight = network.get_parameter(row.layer)
        entries.append(replace(entry, layer=names[weight]))
    return entries


def _layer_report(
    site: Site, layer: Layer, rule: str, std: float, bias: float | str
) -> LayerReport:
    drawn = site.module.weight.detach().double()
    forward_gain = backward_gain = None
    with suppress(InputError):  # of an activation that has no such gain
        forward_gain = layer.forward_gain
    with suppress(InputError):
        backward_gain = layer.backward_gain
    return LayerReport(
        layer=site.name,
        shape=list(drawn.shape),
        fan_in=layer.fan_in,
        fan_out=layer.fan_out,
        activation_before=type(site.before).__name__ if site.before else None,
        activation_after=type(site.after).__name__ if site.after else None,
        forward_gain=forward_gain,
        backward_gain=backward_gain,
        rule=rule,
        std_asked=std,
        std_drawn=float(drawn.std(correction=0)),
        mean_drawn=float(drawn.mean()),
        bias=bias,
    )


def _variance(module: nn.Conv2d | nn.Linear, x: Tensor, weight: Tensor) -> float:
    """Return the variance of a layer's responses by `weight`, without its bias, which is set to
    0."""
    module.weight.copy_(weight)
    if module.bias is not None:
        nn.init.zeros_(module.bias)
    return float(module.forward(x).float().var(correction=0))


def warn_of_drift(sites: Sequence[Site]) -> str | None:
    """Warn where the activations' variance map repels so strongly that a deep plain net leaves its
    fixed point; return the sentence, or None.

    The warning concerns the activation and the depth, whatever the initialiser. Even where the gain
    is right layer by layer, each layer multiplies a relative error of the variance by `map_slope`
    (1.14 for GELU, 1.17 for SiLU), and random weights of finite width always cause one.
    """
    drift, name = 1.0, ""
    for site in sites:
        slope = 1.0
        if site.after:
            with suppress(InputError):
                slope = moments(site.after, site.channels).map_slope
        if 1 < slope < math.inf:
            drift, name = drift * slope, type(site.after).__name__
    if drift <= GROWTH_LIMIT:
        return None
    sentence = (
        f"{name} has a variance map whose fixed point, that of He's gain, repels: over "
        f"{len(sites)} layers without normalisation a small error of the variance grows by up to "
        f"{drift:.3g}, even from init=he; use init.mode=empirical, "
        "model.norm=batch, fewer layers, or a rectifier"
    )
    warnings.warn(sentence, stacklevel=2)
    return sentence
