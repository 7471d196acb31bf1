"""`initialize` for any network: its layers are found by running it, and each is filled for what it
reads and feeds."""

import inspect
from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal

import torch
from torch import nn

from rectifiers import initializers
from rectifiers.activations import as_module
from rectifiers.gains import Activation, Mode
from rectifiers.initialization import tracing
from rectifiers.initialization.distributions import LayerCall, Residual, Trace
from rectifiers.initialization.example import arguments
from rectifiers.initialization.filling import Filler, bias_part
from rectifiers.initialization.flow import Flow, LayerFlow, measure
from rectifiers.initialization.lost import (
    gradient_lost,
    inputs_alike,
    signal_lost,
    to_judge,
)
from rectifiers.initialization.others import (
    Values,
    check_fit,
    check_options,
    describe_tables,
    fill_tables,
    zero_scales,
)
from rectifiers.initialization.report import InitReport, LayerInit, Lost
from rectifiers.initialization.steps import after_steps
from rectifiers.initializers import Rule
from rectifiers.parameters import LAYERS
from rectifiers.runtime.errors import InputError

MODES = {"forward": "he", "backward": "he_backward", "average": "he_average", "empirical": "he"}
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def initialize(
    model: nn.Module,
    example_input: Any,
    init: str | Rule = "he",
    *,
    activation: Activation | None = None,
    mode: Mode | Literal["empirical"] = "forward",
    bias: float | Literal["torch_default"] = 0.0,
    seed: int = 0,
    residual: Residual = "share",
    embeddings: float | None = None,
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
    residual: what the last layers of residual branches get. share: 1 / K of the variance for K
        sums, as above. depth: 1 / k at the k-th sum on its way. zero: weight and bias are 0, or the
        scale of a normalisation that ends the branch, so that only shortcuts carry the signal.
    embeddings: the std of a normal distribution for tables of embeddings, also where a layer shares
        them; None: only a layer's rule fills those that it shares.

    Returns a report, which prints itself as a table. What was not recognised is named there and
    left as it was: no value is guessed. At last the model is run forward and backward on the
    example, which shows the gradient at each layer and the correlation of two inputs.

    Raises:
        InputError: where an option is unknown or does not fit the network, a layer is of
            complex numbers, or the model cannot be run on the example; it is then as before.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
        >>> report = initialize(model, (8, 64))
        >>> [row.reads for row in report.layers]
        ['the input', "GELU(approximate='none') of 0.weight"]
    """
    rule, name = _rule(init, mode)
    initializers.check_bias("bias", bias)
    check_options(residual, embeddings)
    (args, kwargs), is_measured = arguments(model, example_input), mode == "empirical"
    given = None if activation is None else as_module(activation)
    before: Values = {}
    options: Any = {"is_measured": is_measured, "residual": residual, "embeddings": embeddings}
    try:
        # a first run shows the structure of the network, which the shares and the gradients need
        sketch = Filler(initializers.he, bias, seed, given, Trace(), before)
        structure = tracing.run(model, args, sketch.fill, kwargs=kwargs)
        check_fit(residual, embeddings, structure)
        others = zero_scales(model, structure, before) if residual == "zero" else {}
        if embeddings is not None:
            fill_tables(structure, embeddings, seed, before)
        filler = Filler(rule, bias, seed, given, structure, before, **options)
        trace = tracing.run(model, args, filler.fill, kwargs=kwargs, empirical=is_measured)
    except BaseException:
        _restore(before)
        raise

    flow = _flow(model, args, kwargs)
    layers = tuple(_layer_init(trace, flow.layers, *entry) for entry in filler.filled)
    names = {row.layer.partition("[")[0] for row in layers}
    tables, left_tables = describe_tables(trace, embeddings, names)
    others |= tables
    left = left_tables | filler.left
    for parameter, value in model.named_parameters():
        if value.dim() > 1 and parameter not in names | others.keys():
            reason = trace.unexplained.get(parameter) or _unfilled(model, parameter)
            left.setdefault(parameter, reason if value.numel() else "it holds no numbers")
    unfilled = tuple(name for name in left if name in filler.left or _is_of_layer(model, name))
    lost = _lost(model, trace, flow, args, kwargs)
    return InitReport(name, layers, left, unfilled, mode, others, lost)


@torch.no_grad()
def _restore(before: Values) -> None:
    """Give all layers the values that they had."""
    for tensor, value in chain.from_iterable(before.values()):
        tensor.copy_(value)


def _flow(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flow:
    """Return what one run forward and backward shows; nothing where the model, which could be run
    without gradients, cannot be run with them."""
    try:
        return measure(model, args, kwargs)
    except Exception:  # as of a model that changes in place what a derivative needs
        return Flow({}, {}, set(), {})


def _lost(
    model: nn.Module, trace: Trace, flow: Flow, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Lost | None:
    """Return what does not arrive. One cause has one sentence: where the signal is lost, so is the
    gradient, and inputs become alike."""
    if lost := signal_lost(trace):
        return lost
    layers = flow.layers
    try:
        later = [x.layers for x in after_steps(model, flow, args, kwargs)]
    except Exception:  # as of one that cannot be copied: a gradient of 0 may wait for a step
        later = [{name: x for name, x in layers.items() if x.gradient}]
    return gradient_lost(to_judge([layers, *later]) or layers) or inputs_alike(layers, trace)


def _layer_init(
    trace: Trace, flow: dict[str, LayerFlow], call: LayerCall, share: float, std: float
) -> LayerInit:
    """Return a layer's row of the report."""
    reads, uses = str(call.reads), trace.uses[call.name]
    if uses > 1:
        reads += f", for which it is filled, the first of {uses} uses"
    feeds = [
        " of ".join(reversed(functions)) or "the next layer"
        for functions, _ in trace.feeds.get(call.name, ())
    ]
    weight = call.weight.detach().double()
    predicted, measured = trace.responses.get(call.name, (None, None))
    slope = call.reads.map_slope
    noise = call.reads.fluctuation / weight.shape[1]
    at = flow.get(call.name)
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
        bias_part=bias_part(call),
        growth=call.reads.growth * slope,
        spread=call.reads.spread * slope**2 + noise,
        gradient=at.gradient if at and at.is_reached else None,
        correlation=at.correlation if at else None,
    )


def _unfilled(model: nn.Module, parameter: str) -> str:
    """Return why a parameter that no layer of the run has as its weight was not filled."""
    owner = model.get_submodule(parameter.rpartition(".")[0])
    if isinstance(owner, RECURRENT):
        return f"recurrent layers, such as this {type(owner).__name__}, are left alone"
    return "no layer of the forward pass has it as its weight"


def _is_of_layer(model: nn.Module, parameter: str) -> bool:
    """Return whether a parameter is the weight of a layer, and not an embedding, a scale, a token
    or empty, which no rule is for."""
    if not model.get_parameter(parameter).numel():
        return False
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
