"""How `initialize` fills one layer after the other, in a run of the network."""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Generator, Tensor, nn

from rectifiers import initializers
from rectifiers.gains import moments
from rectifiers.initialization.distributions import LayerCall, Residual, Trace
from rectifiers.initialization.others import Values
from rectifiers.initialization.report import GROWTH_LIMIT, LARGEST_BIAS
from rectifiers.initialization.tracing import Respond
from rectifiers.initializers import Layer, Rule, UnfitNetworkError
from rectifiers.quadrature import describe
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed

BASIN = 3.0  # E[y^2] of an example from which a corrected network returns to 1


class Filler:
    """Fills a network's layers one after the other, in one run.

    activation: that layers behind others read, whatever the run shows.
    structure: of the network, by an earlier run.
    before: takes the values of each layer that is filled.
    is_measured: whether a layer is corrected by its responses.
    residual: what the last layers of residual branches get.
    embeddings: the std of tables of embeddings, which are filled already; None: they are not.
    filled: each layer with its share and its std.
    left: by name, why a layer was not filled.
    """

    def __init__(
        self,
        rule: Rule,
        bias: float | str,
        seed: int,
        activation: nn.Module | None,
        structure: Trace,
        before: Values,
        *,
        is_measured: bool = False,
        residual: Residual = "share",
        embeddings: float | None = None,
    ) -> None:
        self.rule, self.bias, self.seed = rule, bias, seed
        self.moments = None if activation is None else moments(activation)
        self.label = "" if activation is None else describe(activation)
        self.structure, self.before, self.is_measured = structure, before, is_measured
        self.residual, self.embeddings = residual, embeddings
        self.filled: list[tuple[LayerCall, float, float]] = []
        self.left: dict[str, str] = {}

    def fill(self, call: LayerCall, respond: Respond) -> None:
        """Fill one layer."""
        if call.weight.is_inference():
            raise InputError(
                f"{call.name} was made in inference mode, so nothing can fill it; make the model "
                "outside"
            )
        if self.moments and call.reads.layers:
            source = replace(call.reads, functions=(self.label,), moments=self.moments)
            call = replace(call, reads=source)

        share, layer = self._layer(call, respond)
        seed = derive_seed("weights", self.seed, len(self.filled))
        generator = torch.Generator().manual_seed(seed)
        parameters = [x for x in (call.weight, call.bias) if x is not None]
        self.before.setdefault(call.name, [(x, x.clone()) for x in parameters])

        # whatever the default type and device are, so that a seed draws the same weights
        drawn = torch.empty(call.weight.shape, dtype=torch.float32, device="cpu")
        try:
            std, bias_std = self._draw(drawn, call, respond, share, layer, generator)
        except UnfitNetworkError:
            raise
        except InputError as error:
            for tensor, value in self.before[call.name]:  # a run may have filled it already
                tensor.copy_(value)
            self.left[call.name] = str(error)
            return

        call.weight.copy_(drawn)
        if call.bias is not None:
            bias = torch.empty(call.bias.shape, dtype=torch.float32, device="cpu")
            constant = self.bias if share else 0.0  # of an end that is 0
            call.bias.copy_(initializers.biases(bias, constant, layer, generator))
            if bias_std:
                call.bias.add_(bias.normal_(std=bias_std, generator=generator))
        self.filled.append((call, share, std))

    def _draw(
        self,
        weight: Tensor,
        call: LayerCall,
        respond: Respond,
        share: float,
        layer: Layer,
        generator: Generator,
    ) -> tuple[float, float]:
        """Fill `weight`; return its std, and that of the biases that it needs."""
        if self.embeddings is not None and call.name in self.structure.tables:
            weight.copy_(call.weight)
            return self.embeddings, 0.0
        if not share:
            return initializers.zeros(weight, layer, generator), 0.0
        with torch.random.fork_rng(devices=()):
            # for a rule of a user's that draws without the generator
            torch.default_generator.manual_seed(generator.initial_seed())
            std = self.rule(weight, layer, generator)
        if self.is_measured:
            bias_std = self._bias_std(call, share)
            return std * _divide_by_measured(call, respond, weight, share - bias_std**2), bias_std
        is_end = call.name in self.structure.branches
        if self.residual == "depth" and is_end and "forward_gain" not in vars(layer):
            raise UnfitNetworkError(
                f"residual=depth: the rule does not ask for the forward gain, which is what depth "
                f"changes of {call.name}; give another init or mode, or leave residual out"
            )
        return std, 0.0

    def _bias_std(self, call: LayerCall, share: float) -> float:
        """Return the std of the biases that a layer needs beside its weight, 0 for most."""
        calls = self.structure.calls.values()
        growth = max((x.reads.growth * x.reads.map_slope for x in calls), default=0.0)
        part = bias_part(call)
        is_curable = growth > GROWTH_LIMIT and part < LARGEST_BIAS
        return math.sqrt(share * part) if is_curable else 0.0

    def _layer(self, call: LayerCall, respond: Respond) -> tuple[float, Layer]:
        """Return a layer's share of E[y^2] = 1, and its properties for a rule."""
        structure, share = self.structure, self.structure.share(call.name, self.residual)

        fed = [second for _, second in structure.feeds.get(call.name, ())]
        if self.moments and fed:
            fed = [self.moments.derivative_second]
        fed_second = sum(fed) / len(fed) if fed else 1.0

        layer = Layer(
            call.name,
            call.fan_in,
            call.fan_out,
            lambda: _gain(share, call.reads.second, f"what it reads, {call.reads}, has E[x²]"),
            lambda: _gain(share, fed_second, "what it feeds has E[f'²]"),
            partial(_variance, call, respond),
            reads=_activation(call),
        )
        return share, layer


def _activation(call: LayerCall) -> str | None:
    """Return the class of the activation that a layer reads, or else what it reads; None where no
    layer is behind that."""
    reads = call.reads
    if reads.functions:
        activation = reads.functions[-1].partition("(")[0]
        is_mixed = activation == "CReLU" and not call.reads_halves
        return f"{activation} in groups or in another order" if is_mixed else activation
    return str(reads) if reads.layers else None


def bias_part(call: LayerCall) -> float:
    """Return the part of E[y^2] that has to come from biases for the variance map to attract.

    With it q -> (1 - part) E[f(y)^2] / E[f(z)^2] + part has a slope of at most 0.95 at the point
    1, and `BASIN` does not grow: what one example gives may be that much larger than the mean. Of
    products and pooled maps the slope alone is known, which is made 0.85. Infinite where the layer
    has no bias."""
    slope, part = call.reads.step * call.reads.map_slope, 0.0
    if slope > 1.005:
        grown = call.reads.growth_to(BASIN)
        part = 1 - (0.85 if grown is None else 0.95) / slope
        if grown is not None and grown > BASIN:
            part = max(part, (grown - BASIN) / (grown - 1))
    return math.inf if part and call.bias is None else part


def _divide_by_measured(call: LayerCall, respond: Respond, weight: Tensor, target: float) -> float:
    """Scale `weight` in place so that the responses on the example have the mean square `target`;
    return the factor."""
    second = float(_responses(call, respond, weight).double().square().mean())
    if not 0 < second < math.inf:
        raise InputError(f"its responses on the example have E[y²] = {second:g}; give another rule")
    factor = math.sqrt(target / second)
    weight.mul_(factor)
    return factor


def _gain(share: float, second: float, name: str) -> float:
    """1 / sqrt(E[x^2] / share), where that is a number."""
    if not 0 < second < math.inf:
        raise InputError(f"{name} = {second:g}, which no weights can scale")
    return math.sqrt(share / second)


def _variance(call: LayerCall, respond: Respond, weight: Tensor) -> float:
    """Return the variance of a layer's responses on the example by `weight`."""
    return float(_responses(call, respond, weight).float().var(correction=0))


def _responses(call: LayerCall, respond: Respond, weight: Tensor) -> Tensor:
    """Return a layer's responses on the example by `weight`, without its bias, which is set to
    0."""
    call.weight.copy_(weight)
    if call.bias is not None:
        call.bias.zero_()
    return respond()
