"""The weight layers of a chain, and `initialize`, which applies a rule to them and reports it."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

from rectifiers import initializers
from rectifiers.activations import gain
from rectifiers.initializers import Layer, Rule
from rectifiers.nonlinearities import pieces
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed


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
        """The number of channels of the activation after the layer, or of the layer's output where
        there is none."""
        return self.module.weight.shape[0] // (pieces(self.after) if self.after else 1)


@dataclass(frozen=True)
class LayerReport:
    """One layer of the init report: its fans, its gains, the std its rule asked for and the weights
    that were drawn.

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
    """Return the properties of `site` for a rule; `previous` is the site before it, None for the
    first."""
    before = (site.before, previous.channels) if site.before and previous else None
    after = (site.after, site.channels) if site.after else None
    read, fed = before or (None if first_layer_linear else after), after or before
    return Layer(
        site.name,
        *site.fans,
        lambda: gain(*read) if read else 1.0,
        lambda: gain(*fed, mode="backward") if fed else 1.0,
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
        InputError: where fc_std does not fit the network, or bias is neither number nor
        "torch_default".
    """
    linears = [site.name for site in sites if isinstance(site.module, nn.Linear)]
    if fc_std is not None and len(fc_std) != len(linears):
        raise InputError(
            f"init.fc_std={list(fc_std)} has {len(fc_std)} values for {len(linears)} linear layers "
            f"({', '.join(linears)}); give one per layer, or null"
        )
    if bias != "torch_default" and (isinstance(bias, bool) or not isinstance(bias, int | float)):
        raise InputError(
            f"init.bias={bias} is not usable; give a number such as 0 or 0.01, or torch_default"
        )
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
                asked, used = (
                    initializers.gaussian(weight, layer, generator, fixed[site.name]),
                    "gaussian",
                )
            else:
                asked, used = rule(weight, layer, generator), name
            if site.module.bias is not None:
                initializers.biases(site.module.bias, bias, layer, generator)
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

                def fill_before(
                    _: nn.Module, given: tuple[Tensor, ...], position: int = position
                ) -> None:
                    fill(position, *given)

                hooks.enter_context(site.module.register_forward_pre_hook(fill_before))
            run()
    return report


def _variance(module: nn.Conv2d | nn.Linear, x: Tensor) -> float:
    """Return the variance of a layer's responses without its bias, which is set to 0."""
    if module.bias is not None:
        nn.init.zeros_(module.bias)
    return float(module.forward(x).float().var(correction=0))
