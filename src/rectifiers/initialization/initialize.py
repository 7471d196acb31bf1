"""`initialize` for any network: its layers are found by running it, and each is filled for what it
reads and feeds."""

import inspect
import math
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rectifiers import initializers
from rectifiers.activations import as_module
from rectifiers.gains import Activation, Mode, moments
from rectifiers.initialization import tracing
from rectifiers.initialization.distributions import LayerCall, Trace
from rectifiers.initialization.example import arguments
from rectifiers.initialization.report import (
    GROWTH_LIMIT,
    LARGEST_BIAS,
    InitReport,
    LayerInit,
    Propagation,
)
from rectifiers.initialization.tracing import Respond
from rectifiers.initializers import Layer, Rule, UnfitNetworkError
from rectifiers.parameters import LAYERS
from rectifiers.quadrature import describe
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed

MODES = {"forward": "he", "backward": "he_backward", "average": "he_average", "empirical": "he"}
RECURRENT = (nn.RNNBase, nn.RNNCellBase)
_Values = dict[str, list[tuple[Tensor, Tensor]]]  # by layer, its tensors with their values before
BASIN = 3.0  # E[y^2] of an example from which a corrected network returns to 1


def initialize(
    model: nn.Module,
    example_input: Any,
    init: str | Rule = "he",
    *,
    activation: Activation | None = None,
    mode: Mode | Literal["empirical"] = "forward",
    bias: float | Literal["torch_default"] = 0.0,
    seed: int = 0,
) -> InitReport:
    """Fill the weights and biases of every conv, linear, transposed, grouped or depthwise layer of
    `model`, in place.

    The model is run on the example to find what every layer reads: an activation, a sum, a
    normalised or pooled map, the input itself. With init="he" a layer gets
    Var[w] = 1 / (fan_in E[x^2]), so that its responses have a mean square of 1 (section 2.2 of the
    paper, for any activation). At the end of a residual branch it is 1 / the number of residual
    sums on the longest way, so that the sums do not grow with depth.

    example_input: a batch of data; a tuple of what the forward method takes; a batch of a
        DataLoader, whose labels are left out; a dictionary of keyword arguments; or the shape of a
        batch of standard normal numbers, such as (8, 3, 32, 32), or a tuple of such shapes.
    init: a name of `rectifiers.initializers`, or a rule `(weight, layer, generator) -> std`; "lsuv"
        measures responses, so that its example should be a batch of the data.
    activation: what all layers but the first are taken to read, as for `gain`, instead of what the
        run shows.
    mode: for init="he", the condition: forward (Eq. 10), backward (Eq. 14, of gradients: by fan_out
        and E[f'^2] of what a layer feeds), or the average of both. empirical, for any rule: each
        layer is measured on the example when the run comes to it, and its weight divided by the
        root of E[y^2]. Where the network multiplies an error of E[y^2] by more than 10, as deep
        chains of SiLU, GELU and Mish do, a part of E[y^2] comes from normal biases instead, so that
        such an error fades.
    bias: what biases are filled with; "torch_default": uniform up to 1/sqrt(fan_in).
    seed: every layer draws from a stream of its own.

    Returns a report, which prints itself as a table. What was not recognised is named there and
    left as it was: no value is guessed.

    Raises:
        InputError: where `init` or `mode` is unknown or does not fit the network, a layer is of
            complex numbers, or the model cannot be run on the example; it is then as before.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
        >>> report = initialize(model, (8, 64))
        >>> [row.reads for row in report.layers]
        ['the input', "GELU(approximate='none') of 0.weight"]
    """
    rule, name = _rule(init, mode)
    initializers.check_bias("bias", bias)
    (args, kwargs), is_measured = arguments(model, example_input), mode == "empirical"
    given = None if activation is None else as_module(activation)
    before: _Values = {}
    try:
        # a first run shows the structure of the network, which the shares and the gradients need
        sketch = _Filler(initializers.he, bias, seed, given, Trace(), before)
        structure = tracing.run(model, args, sketch.fill, kwargs=kwargs)
        filler = _Filler(rule, bias, seed, given, structure, before, is_measured=is_measured)
        trace = tracing.run(model, args, filler.fill, kwargs=kwargs, empirical=is_measured)
    except BaseException:
        _restore(before)
        raise
    layers = tuple(_layer_init(trace, *entry) for entry in filler.filled)
    names, left = {row.layer.partition("[")[0] for row in layers}, dict(filler.left)
    for parameter, value in model.named_parameters():
        if value.dim() > 1 and parameter not in names:
            left.setdefault(
                parameter, trace.unexplained.get(parameter, _unfilled(model, parameter))
            )
    unfilled = tuple(name for name in left if name in filler.left or _is_of_layer(model, name))
    return InitReport(name, layers, left, unfilled, mode)


class _Filler:
    """Fills a network's layers one after the other, in one run.

    activation: that layers behind others read, whatever the run shows. structure: of the network,
    by an earlier run. before: takes the values of each layer that is filled. is_measured: whether a
    layer is corrected by its responses. filled: each layer with its share and its std. left: by
    name, why a layer was not filled."""

    def __init__(
        self,
        rule: Rule,
        bias: float | str,
        seed: int,
        activation: nn.Module | None,
        structure: Trace,
        before: _Values,
        *,
        is_measured: bool = False,
    ) -> None:
        self.rule, self.bias, self.seed = rule, bias, seed
        self.moments = None if activation is None else moments(activation)
        self.label = "" if activation is None else describe(activation)
        self.structure, self.before, self.is_measured = structure, before, is_measured
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
        generator = torch.Generator().manual_seed(
            derive_seed("weights", self.seed, len(self.filled))
        )
        drawn = torch.empty(call.weight.shape)
        parameters = [x for x in (call.weight, call.bias) if x is not None]
        self.before.setdefault(call.name, [(x, x.clone()) for x in parameters])
        try:
            std = self.rule(drawn, layer, generator)
            bias_std = 0.0
            if self.is_measured:
                bias_std = self._bias_std(call, share)
                std *= _divide_by_measured(call, respond, drawn, share - bias_std**2)
        except UnfitNetworkError:
            raise
        except InputError as error:
            for tensor, value in self.before[call.name]:  # a run may have filled it already
                tensor.copy_(value)
            self.left[call.name] = str(error)
            return
        call.weight.copy_(drawn)
        if call.bias is not None:
            bias = torch.empty(call.bias.shape)
            call.bias.copy_(initializers.biases(bias, self.bias, layer, generator))
            if bias_std:
                call.bias.add_(bias.normal_(std=bias_std, generator=generator))
        self.filled.append((call, share, std))

    def _bias_std(self, call: LayerCall, share: float) -> float:
        """Return the std of the biases that a layer needs beside its weight, 0 for most."""
        calls = self.structure.calls.values()
        growth = max((x.reads.growth * x.reads.map_slope for x in calls), default=0.0)
        part = _bias_part(call)
        return math.sqrt(share * part) if growth > GROWTH_LIMIT and part < LARGEST_BIAS else 0.0

    def _layer(self, call: LayerCall, respond: Respond) -> tuple[float, Layer]:
        """Return a layer's share of E[y^2] = 1, and its properties for a rule."""
        structure, share = self.structure, 1.0
        if call.name in structure.branches:
            share = 1 / max(1, structure.sums) / structure.branches[call.name]
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
            branches=len(structure.residual) if all(structure.residual) else 0,
            branch=_place(structure, call.name),
            is_output=call.name not in structure.feeds,
        )
        return share, layer


@torch.no_grad()
def _restore(before: _Values) -> None:
    """Give all layers the values that they had."""
    for tensor, value in chain.from_iterable(before.values()):
        tensor.copy_(value)


def _bias_part(call: LayerCall) -> float:
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


def _layer_init(trace: Trace, call: LayerCall, share: float, std: float) -> LayerInit:
    reads, uses = str(call.reads), trace.uses[call.name]
    if uses > 1:
        reads += f", for which it is filled, the first of {uses} uses"
    feeds = [
        " of ".join(reversed(functions)) or "the next layer"
        for functions, _ in trace.feeds.get(call.name, ())
    ]
    weight = call.weight.detach().double()
    predicted, measured = trace.responses.get(call.name, (None, None))
    return LayerInit(
        layer=call.name,
        shape=tuple(weight.shape),
        fan_in=call.fan_in,
        fan_out=call.fan_out,
        reads=reads,
        second_in=call.reads.second,
        feeds=", ".join(dict.fromkeys(feeds)) or "the output",
        share=share,
        std=std,
        std_drawn=float(weight.std(correction=0)),
        mean_drawn=float(weight.mean()),
        predicted=predicted,
        measured=measured,
        last=trace.last.get(call.name),
        bias_part=_bias_part(call),
        growth=call.reads.growth * call.reads.map_slope,
        spread=call.reads.spread * call.reads.map_slope**2
        + call.reads.fluctuation / weight.shape[1],
    )


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


def _place(structure: Trace, layer: str) -> tuple[int, int] | None:
    """Return (place from 1, number of layers) of a layer in its residual branch; layers that share
    its end are last."""
    for branch in structure.residual:
        if layer in branch:
            is_end = layer in structure.branches
            return len(branch) if is_end else branch.index(layer) + 1, len(branch)
    return None


def _unfilled(model: nn.Module, parameter: str) -> str:
    """Return why a parameter that no layer of the run has as its weight was not filled."""
    owner = model.get_submodule(parameter.rpartition(".")[0])
    if isinstance(owner, RECURRENT):
        return f"recurrent layers, such as this {type(owner).__name__}, are left alone"
    return "no layer of the forward pass has it as its weight"


def _is_of_layer(model: nn.Module, parameter: str) -> bool:
    """Return whether a parameter is the weight of a layer, and not an embedding, a scale or a
    token, which no rule is for."""
    owner = model.get_submodule(parameter.rpartition(".")[0])
    kinds = (*LAYERS, *RECURRENT, nn.MultiheadAttention)
    return isinstance(owner, kinds) or "parametrizations" in parameter


def _rule(init: str | Rule, mode: str) -> tuple[Rule, str]:
    """Return the rule that `init` names, or is, with its name."""
    if mode not in MODES:
        raise InputError(f"mode={mode} is not known; choose one of: {', '.join(MODES)}")
    name = getattr(init, "__name__", repr(init))
    rule: Any = init
    if isinstance(init, str):
        name = MODES[mode] if init == "he" else init
        rule = getattr(initializers, name, None)
    if not _is_rule(rule):
        raise InputError(
            f"init={init} is not usable; give the name of a rule of rectifiers.initializers, such "
            "as he or orthogonal, or a function (weight, layer, generator) -> std"
        )
    return rule, name


def _is_rule(rule: Any) -> bool:
    # functions of nn.init take three arguments, too, but others: (weight, slope, mode)
    if not callable(rule) or getattr(rule, "__module__", None) == nn.init.__name__:
        return False
    try:
        inspect.signature(rule).bind("weight", "layer", "generator")
    except (TypeError, ValueError):
        return False
    return True


def propagation(model: nn.Module, example_input: Any) -> Propagation:
    """Run `model` on a batch and return the mean square of every layer's responses, predicted and
    measured.

    example_input: as for `initialize`.

    Raises:
        InputError: where the model cannot be run on the example.

    Examples:
        >>> model = nn.Linear(64, 32)
        >>> report = initialize(model, (256, 64))
        >>> predicted, measured = propagation(model, (256, 64)).responses["weight"]
        >>> abs(predicted - measured) < 0.1
        True
    """
    args, kwargs = arguments(model, example_input)
    return Propagation(tracing.run(model, args, kwargs=kwargs).responses)
