"""What is at fault with the start of a network. Severity follows the measured effect: an error is
what cannot be trained, a warning what leaves the limits, a note what is inferred from a std."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from torch import nn

from rectifiers.initialization.distributions import Trace
from rectifiers.initialization.flow import Flow
from rectifiers.initialization.lost import (
    fading,
    gradient_lost,
    inputs_alike,
    outputs_lost,
    signal_lost,
    to_judge,
)
from rectifiers.initialization.steps import silent
from rectifiers.initialization.weights import Looks

FUSED = re.compile(r"qkv|in_proj|c_attn|query_key_value")
Severity = Literal["error", "warning", "note"]
REMEDIES = {
    "not finite": "another activation, normalisation or residual connections",
    "signal": "rectifiers.initialize, normalisation or residual connections",
    "gradient": "another activation, residual connections or normalisation",
    "inputs": "another activation, smaller biases, normalisation or residual connections",
}


@dataclass(frozen=True)
class Finding:
    """A sentence about `tensors`, of a severity."""

    severity: Severity
    sentence: str
    tensors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.severity}: {self.sentence}"


@dataclass(frozen=True)
class TensorAudit:
    """A tensor of weights.

    tensor: its name.
    shape: its shape.
    looks: what rule it looks like.
    reads: what its layer reads, in words; "" where it is no layer's.
    fan_in: of the layer; 0 where it is no layer's.
    needed: the std with which responses have a mean square of 1, or of the layer's share at the end
        of a residual branch.
    second_in: E[x^2] of what the layer reads.
    second: E[y^2] of its responses.
    correlation: of the responses to two examples.
    gradient: of the responses, as of `LayerFlow`.
    is_end: whether a residual sum reads the responses.
    is_output: whether nothing does.
    """

    tensor: str
    shape: tuple[int, ...]
    looks: Looks
    reads: str = ""
    fan_in: int = 0
    needed: float | None = None
    second_in: float | None = None
    second: float | None = None
    correlation: float | None = None
    gradient: float | None = None
    is_end: bool = False
    is_output: bool = False

    @property
    def kind(self) -> str:
        """The name without the numbers of blocks."""
        return re.sub(r"\d+", "*", self.tensor)

    @property
    def block(self) -> str:
        """The name up to the last number of a block."""
        return self.tensor[: max((m.end() for m in re.finditer(r"\d+\.", self.tensor)), default=0)]


def named(tensors: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
    return ", ".join(tensors[:3]) + more


def not_finite(model: nn.Module) -> Iterator[Finding]:
    """Find parameters and running statistics with NaN or infinite numbers."""
    statistics = ((n, b) for n, b in model.named_buffers() if n.endswith(("_mean", "_var")))
    broken = [
        name
        for name, x in chain(model.named_parameters(), statistics)
        if not bool(x.detach().isfinite().all())
    ]
    if broken:
        yield Finding(
            "error",
            f"{named(broken)}: not finite; fill them, torch.empty leaves what was in memory",
            tuple(broken),
        )


def errors(trace: Trace, flows: Sequence[Flow]) -> Iterator[Finding]:
    """Find what is not finite in the run, and parameters that no gradient reaches.

    flows: the first of the model, the others after a step of SGD each."""
    first, last = flows[0], flows[-1]
    for name, layer in first.layers.items():
        numbers = (("responses", "are", layer.second), ("gradient", "is", layer.gradient))
        for what, verb, number in numbers:
            if not math.isfinite(number):
                yield Finding("error", f"the {what} of {name} {verb} not finite", (name,))
                return
    if (lost := outputs_lost(trace)) is not None:
        yield Finding("error", f"{lost.sentence}; use {REMEDIES[lost.kind]}", (lost.layer,))
    cut = [name for name, g in last.gradients.items() if g is None and name in last.used]
    if cut:
        yield Finding(
            "error",
            f"{named(cut)}: read, but cut off from all outputs; look for detach, no_grad, argmax "
            "or rounding behind them",
            tuple(cut),
        )
    dead = [name for name in silent(last) if not _reads_a_state(name, last)]
    lost = gradient_lost(fading(first.layers))
    if dead and lost is not None:  # it is 0 where it gets too small for the numbers
        sentence = f"{named(dead)}: no gradient; {lost.sentence}; use {REMEDIES[lost.kind]}"
        yield Finding("error", sentence, tuple(dead))
    elif dead:
        steps = f"even after {len(flows) - 1} step{'s' * (len(flows) > 2)} of SGD"
        yield Finding(
            "error",
            f"{named(dead)}: no gradient, {steps}; look for activations that are constant on all "
            "examples (dead units), and for factors of zeros that multiply each other",
            tuple(dead),
        )


def states(flow: Flow) -> Iterator[Finding]:
    """Note what recurrent layers read their state with, where it has no gradient, and layers that
    no row of the example comes to."""
    if idle := [name for name in flow.gradients if name in flow.idle]:
        yield Finding(
            "note",
            f"{named(idle)}: no row of the example comes to them, as to an expert that is not "
            "chosen; give a larger one",
            tuple(idle),
        )
    names = [name for name in silent(flow) if _reads_a_state(name, flow)]
    if names:
        yield Finding(
            "note",
            f"{named(names)}: no gradient; the state that they read is 0 in the first step of a "
            "sequence, so give longer ones",
            tuple(names),
        )


def _reads_a_state(name: str, flow: Flow) -> bool:
    """Return whether a parameter without a gradient is a recurrent layer's for its state, while
    that layer reads its input with others that have one."""
    reads = name.replace("weight_hh", "weight_ih")
    return name != reads and bool(flow.gradients.get(reads))


def warnings(model: nn.Module, trace: Trace, flows: Sequence[Flow]) -> Iterator[Finding]:
    """Find signals, gradients and correlations outside the limits, and units that stay alike."""
    losses = (
        signal_lost(trace, may_be_zero=True),
        gradient_lost(to_judge([flow.layers for flow in flows])),
        inputs_alike(flows[0].layers, trace),
    )
    for lost in filter(None, losses):
        yield Finding("warning", f"{lost.sentence}; use {REMEDIES[lost.kind]}", (lost.layer,))
    yield from _copies(model, flows[0])


def _copies(model: nn.Module, flow: Flow) -> Iterator[Finding]:
    """Find layers whose units are equal and get equal gradients."""
    parameters = dict(model.named_parameters())
    copies = []
    for name in flow.layers:
        weight, derivative = parameters[name].detach(), flow.derivatives.get(name)
        if derivative is None or len(weight) < 2 or bool((weight != weight[:1]).any()):
            continue
        apart = float((derivative - derivative[:1]).abs().amax())
        if apart < 1e-5 * float(derivative.abs().amax()):
            copies.append(name)
    if copies:
        yield Finding(
            "warning",
            f"{named(copies)}: all units are equal and get equal gradients, so they stay copies of "
            "each other; draw the weights at random",
            tuple(copies),
        )


def trained(rows: Sequence[TensorAudit], has_statistics: bool) -> Finding | None:
    """Return the note that weights look trained, and which of them look drawn again; None where
    they do not."""
    judged = [row for row in rows if row.fan_in and min(row.shape[0], row.fan_in) >= 16]
    structured = [row for row in judged if row.looks.is_structured]
    needed = 0.25 if has_statistics else 0.5
    if not structured or len(structured) < needed * len(judged):
        return None
    again = [row.tensor for row in judged if row.looks.is_drawn and not row.is_output]
    sentence = "the weights look trained, so that only errors are reported"
    if again:
        sentence += f"; freshly drawn look: {named(again)} (drawn again after loading?)"
    return Finding("note", sentence, tuple(again))
