"""The numbers that a tensor holds over draws of the weights, as functions of one normal
variable."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.activations import acts_on_single_numbers
from rectifiers.nonlinearities import Moments
from rectifiers.quadrature import normal_rule

SAMPLE = 2**16  # numbers that the distribution of a tensor is read from
_roots = count()


def new_root() -> int:
    """Return the number of a normal variable that no signal is a function of yet."""
    return next(_roots)


@dataclass(frozen=True)
class Signal:
    """The numbers of a tensor, f(y) of a response y.

    values, slopes: f(y) and f'(y) at the nodes of `normal_rule`, float64 [nodes, channels], or
        [nodes, 1] where all channels are alike. root: y's own number; signals of one root are
        functions of the same y.
    source, functions: y and the functions in f, in words. origins: the layers whose responses y is
    the sum of.
    ends: the layers whose responses these numbers are, unchanged. layers, sums: how many weight
        layers, and how many sums, lie behind it on the longest way. behind: all layers behind it,
        in the order of the run.
    known: the moments of f where quadrature cannot find them. is_normal: whether y is normal, as a
    sum of responses is."""

    values: Tensor
    slopes: Tensor
    root: int
    source: str
    functions: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    layers: int = 0
    sums: int = 0
    behind: tuple[str, ...] = ()
    known: Moments | None = None
    is_normal: bool = True

    @property
    def mean(self) -> float:
        """E[f(y)]."""
        return expectation(self.values)

    @property
    def second(self) -> float:
        """E[f(y)^2], the mean over channels."""
        return self.known.second if self.known else expectation(self.values.square())

    @property
    def derivative_second(self) -> float:
        """E[f'(y)^2], the mean over channels."""
        return self.known.derivative_second if self.known else expectation(self.slopes.square())

    def __str__(self) -> str:
        return " of ".join([*reversed(self.functions), self.source])


def expectation(values: Tensor) -> float:
    """Return the expectation of numbers [nodes, channels] at the nodes of `normal_rule`."""
    return float((normal_rule()[1] * values.mean(1)).sum())


def normal(mean: float, second: float, source: str, **more: Any) -> Signal:
    """Return normal numbers of this mean and mean square."""
    nodes = normal_rule()[0][:, None]
    values = mean + math.sqrt(max(second - mean**2, 0.0)) * nodes
    return Signal(values, torch.ones_like(values), new_root(), source, **more)


def measured(tensor: Tensor, source: str, *, is_normal: bool = False, **more: Any) -> Signal:
    """Return numbers that are distributed as those of a tensor.

    Their quantiles are the tensor's, for what stood behind an activation is no normal variable, and
    their mean and mean square are those of all its numbers."""
    numbers, nodes = tensor.detach().flatten().double(), normal_rule()[0]
    mean, std = float(numbers.mean()), float(numbers.std(correction=0))
    if len(numbers) > SAMPLE:
        some = torch.randint(len(numbers), (SAMPLE,), generator=torch.Generator().manual_seed(0))
        numbers = numbers[some.to(numbers.device)]
    ranks = torch.special.ndtr(nodes) * (len(numbers) - 1)
    ordered, below = numbers.cpu().sort().values, ranks.long()
    values = torch.lerp(
        ordered[below], ordered[(below + 1).clamp(max=len(ordered) - 1)], ranks - below
    )[:, None]
    found = expectation((values - expectation(values)).square())
    scale = std / math.sqrt(found) if found > 0 else 1.0
    values = mean + scale * (values - expectation(values))
    return Signal(values, torch.ones_like(values), new_root(), source, is_normal=is_normal, **more)


def after_module(module: nn.Module, x: Tensor, signal: Signal) -> Signal | None:
    """Return the signal after a module that is one function of single numbers, or says its moments
    itself."""
    label = type(module).__name__ if any(True for _ in module.children()) else repr(module)
    if callable(getattr(module, "moments", None)):
        own: Moments = module.moments()  # type: ignore[operator]
        if abs(own.map_slope - 1) > 1e-6 and abs(signal.second - 1) > 0.1:
            return None  # they hold for a mean square of 1, and for rectifiers in proportion
        known = replace(own, second=own.second * signal.second)
        return replace(
            signal, functions=(*signal.functions, label), known=known, ends=(), root=new_root()
        )
    forward = module.forward
    if not acts_on_single_numbers(forward, [x]):
        return None
    if torch.equal(forward(x.clone()), x):  # dropout, for example
        return signal
    exact = copy.deepcopy(module).cpu().double().requires_grad_(False)
    state = chain(module.parameters(), module.buffers())
    return after_function(
        label, exact.forward, [signal], max([x.numel() for x in state], default=1)
    )


def after_function(
    label: str, function: Callable[..., Tensor], signals: Sequence[Signal], channels: int = 1
) -> Signal | None:
    """Return the signal after a function of single numbers of one response; None where it takes no
    such numbers."""
    columns = max(channels, *(signal.values.shape[1] for signal in signals), 1)
    with torch.enable_grad():
        values = [signal.values.expand(-1, columns).clone().requires_grad_() for signal in signals]
        try:
            made = function(*(x.clone() for x in values))  # copies, because it may work in place
        except Exception:  # a module that takes maps only
            return None
        partial = [torch.zeros_like(x) for x in values]  # of a step function
        if made.requires_grad:
            partial = list(
                torch.autograd.grad(made.sum(), values, allow_unused=True, materialize_grads=True)
            )
    slopes = sum(
        (slope * signal.slopes for slope, signal in zip(partial, signals, strict=True)),
        torch.zeros_like(made),
    ).detach()
    longest = max(signals, key=lambda signal: len(signal.functions))
    return replace(
        longest, values=made.detach(), slopes=slopes, functions=(*longest.functions, label), ends=()
    )


def lengths(signals: Sequence[Signal]) -> dict[str, Any]:
    """Return what lies behind any of `signals`, and the lengths of the longest way there, as fields
    of a Signal."""
    return {
        "layers": max(signal.layers for signal in signals),
        "sums": max(signal.sums for signal in signals),
        "behind": tuple(dict.fromkeys(chain.from_iterable(signal.behind for signal in signals))),
    }


def lengths_after(signals: Sequence[Signal], *layers: str) -> dict[str, Any]:
    """Return the same behind `layers`, side by side, that read `signals`."""
    found = lengths(signals)
    return found | {"layers": found["layers"] + 1, "behind": (*found["behind"], *layers)}
