"""The numbers that a tensor holds over draws of the weights, as functions of one normal variable,
and torch's functions that make layers of weights or carry numbers on."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.gains import Moments, is_elementwise, normal_rule

# Names of torch's functions. The weight of x @ w is [..., inputs, outputs].
PRODUCTS = {"matmul", "__matmul__", "mm", "bmm"}
CONVOLUTIONS = {f"conv{n}d" for n in (1, 2, 3)}
TRANSPOSED = {f"conv_transpose{n}d" for n in (1, 2, 3)}
NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
DIFFERENCES = {"sub", "__sub__", "__isub__", "sub_", "subtract"}
MULTIPLICATIONS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"}
DIVISIONS = {"div", "__truediv__", "__itruediv__", "div_", "divide", "true_divide"}
CONCATENATIONS = {"cat", "concat", "concatenate", "stack"}
# what keeps every number, and what keeps some of them
VIEWS = (
    {"flatten", "unflatten", "view", "reshape", "squeeze", "unsqueeze", "expand", "contiguous"}
    | {"permute", "transpose", "movedim", "t", "to", "float", "clone", "__get__"}
    | {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"}
)
PARTS = {"__getitem__", "chunk", "split", "tensor_split", "unbind", "narrow", "select"}
PARTS |= {"roll", "flip"}

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
    moments: of f, where quadrature cannot find them. is_normal: whether y is normal, as a
    sum of responses is. response: y at the nodes. growth: what a relative error of the mean square
    of the network's input is multiplied by in E[y^2]; step: the same from the last layer to y.
    spread: the variance of ln E[y^2] over draws of the weights before, by their finite width."""

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
    moments: Moments | None = None
    is_normal: bool = True
    response: Tensor | None = None
    growth: float = 1.0
    step: float = 1.0
    spread: float = 0.0

    @property
    def mean(self) -> float:
        """E[f(y)]."""
        return expectation(self.values)

    @property
    def second(self) -> float:
        """E[f(y)^2], the mean over channels."""
        return self.moments.second if self.moments else expectation(self.values.square())

    @property
    def derivative_second(self) -> float:
        """E[f'(y)^2], the mean over channels."""
        return self.moments.derivative_second if self.moments else expectation(self.slopes.square())

    @property
    def map_slope(self) -> float:
        """d ln E[f(y)^2] / d ln E[y^2]; 1 where it is not known."""
        if self.moments or self.response is None or not self.functions:
            return self.moments.map_slope if self.moments else 1.0
        change = expectation(self.values * self.slopes * self.response)
        slope = change / self.second if self.second else math.nan
        return slope if math.isfinite(slope) else 1.0

    @property
    def fluctuation(self) -> float:
        """Var[f(y)^2] / E[f(y)^2]^2, which a layer of n inputs passes on by 1 / n."""
        fourth, second = expectation(self.values**4), expectation(self.values**2)
        v = fourth / second / second - 1 if second else math.nan
        return v if math.isfinite(v) else 0.0

    def growth_to(self, factor: float) -> float | None:
        """Return E[f(y)^2] where E[y^2] is `factor` times as large, in units of E[f(y)^2]; None
        where it is not known."""
        if self.moments or not self.functions:
            return None
        nodes, weights = normal_rule()
        # weights of the normal density that is wider by the root of the factor
        wider = weights * torch.exp(nodes**2 * (1 - 1 / factor) / 2) / math.sqrt(factor)
        return float((wider * self.values.square().mean(1)).sum()) / self.second

    def __str__(self) -> str:
        return " of ".join([*reversed(self.functions), self.source])


SETTLED = {"growth": 0.0, "step": 0.0, "spread": 0.0}  # behind a normalisation


def expectation(values: Tensor) -> float:
    """Return the expectation of numbers [nodes, channels] at the nodes of `normal_rule`."""
    return float((normal_rule()[1] * values.mean(1)).sum())


def normal(mean: float, second: float, source: str, **more: Any) -> Signal:
    """Return normal numbers of this mean and mean square."""
    nodes = normal_rule()[0][:, None]
    values = mean + math.sqrt(max(second - mean**2, 0.0)) * nodes
    return Signal(values, torch.ones_like(values), new_root(), source, response=values, **more)


def measured(tensor: Tensor, source: str, *, is_normal: bool = False, **more: Any) -> Signal:
    """Return numbers that are distributed as those of a tensor.

    Their quantiles are the tensor's, for what stood behind an activation is no normal variable, and
    their mean and mean square are those of all its numbers."""
    numbers, nodes = tensor.detach().flatten().double(), normal_rule()[0]
    mean, std = float(numbers.mean()), float(numbers.std(correction=0))
    if len(numbers) > SAMPLE:
        drawn = torch.randint(len(numbers), (SAMPLE,), generator=torch.Generator().manual_seed(0))
        numbers = numbers[drawn.to(numbers.device)]
    ranks = torch.special.ndtr(nodes) * (len(numbers) - 1)
    ordered, below = numbers.cpu().sort().values, ranks.long()
    above = (below + 1).clamp(max=len(ordered) - 1)
    values = torch.lerp(ordered[below], ordered[above], ranks - below)[:, None]
    variance = expectation((values - expectation(values)).square())
    scale = std / math.sqrt(variance) if variance > 0 else 1.0
    values = mean + scale * (values - expectation(values))
    more |= {"is_normal": is_normal, "response": values}
    return Signal(values, torch.ones_like(values), new_root(), source, **more)


def after_module(module: nn.Module, x: Tensor, signal: Signal) -> Signal | None:
    """Return the signal after a module that is one function of single numbers, or says its moments
    itself."""
    label = type(module).__name__ if any(True for _ in module.children()) else repr(module)
    if callable(getattr(module, "moments", None)):
        moments: Moments = module.moments()  # type: ignore[operator]
        if abs(moments.map_slope - 1) > 1e-6 and abs(signal.second - 1) > 0.1:
            return None  # they hold for a mean square of 1, and for rectifiers in proportion
        moments = replace(moments, second=moments.second * signal.second)
        functions = (*signal.functions, label)
        return replace(signal, functions=functions, moments=moments, ends=(), root=new_root())
    forward = module.forward
    if not is_elementwise(forward, [x]):
        return None
    if torch.equal(forward(x.clone()), x):  # dropout, for example
        return signal
    exact = copy.deepcopy(module).cpu().double().requires_grad_(False)
    sizes = [x.numel() for x in chain(module.parameters(), module.buffers())]
    return after_function(label, exact.forward, [signal], max(sizes, default=1))


def after_function(
    label: str, function: Callable[..., Tensor], signals: Sequence[Signal], channels: int = 1
) -> Signal | None:
    """Return the signal after a function of single numbers of one response; None where it takes no
    such numbers."""
    if any(signal.moments for signal in signals):
        return None  # of these numbers the moments alone are known
    columns = max(channels, *(signal.values.shape[1] for signal in signals), 1)
    with torch.enable_grad():
        values = [signal.values.expand(-1, columns).clone().requires_grad_() for signal in signals]
        try:  # copies, because it may work in place
            if function(*(x[:2].clone() for x in values)).shape != (2, columns):
                return None  # a scale per channel of maps, which broadcasts
            out = function(*(x.clone() for x in values))
        except Exception:  # a module that takes maps only
            return None
        partials: Sequence[Tensor] = [torch.zeros_like(x) for x in values]  # of a step function
        if out.requires_grad:
            partials = torch.autograd.grad(
                out.sum(), values, allow_unused=True, materialize_grads=True
            )
    slopes = torch.zeros_like(out)
    for partial, signal in zip(partials, signals, strict=True):
        slopes = slopes + partial * signal.slopes
    longest = max(signals, key=lambda signal: len(signal.functions))
    functions = (*longest.functions, label)
    return replace(
        longest, values=out.detach(), slopes=slopes.detach(), functions=functions, ends=()
    )


def lengths(signals: Sequence[Signal]) -> dict[str, Any]:
    """Return what lies behind any of `signals`, and the lengths of the longest way there, as fields
    of a Signal."""
    return {
        "layers": max(signal.layers for signal in signals),
        "sums": max(signal.sums for signal in signals),
        "behind": tuple(dict.fromkeys(chain.from_iterable(signal.behind for signal in signals))),
        "growth": max(signal.growth * signal.map_slope for signal in signals),
        "step": max(signal.step * signal.map_slope for signal in signals),
        "spread": max(signal.spread * signal.map_slope**2 for signal in signals),
    }


def combined(signals: Sequence[Signal], weights: Sequence[float]) -> dict[str, float]:
    """Return the growth and the step of what depends on all `signals`, on each by its weight."""
    slopes = [weight * x.map_slope for weight, x in zip(weights, signals, strict=True)]
    return {
        "growth": sum(slope * x.growth for slope, x in zip(slopes, signals, strict=True)),
        "step": sum(slope * x.step for slope, x in zip(slopes, signals, strict=True)),
    }


def parts(signals: Sequence[Signal], shares: Sequence[float] | None = None) -> dict[str, float]:
    """Return the same of a sum or a concatenation, of which each signal is a part."""
    seconds = [
        x.second * share for x, share in zip(signals, shares or [1.0] * len(signals), strict=True)
    ]
    total = sum(seconds)
    if not 0 < total < math.inf:
        return {}
    return combined(signals, [second / total for second in seconds])


def lengths_after(signals: Sequence[Signal], *layers: str) -> dict[str, Any]:
    """Return the same behind `layers`, side by side, that read `signals`."""
    longest = lengths(signals)
    more = {"layers": longest["layers"] + 1, "behind": (*longest["behind"], *layers)}
    return longest | more | {"step": 1.0}


@dataclass(frozen=True)
class LayerCall:
    """A weight layer as it is met: `signal` is what it reads, `fan_in` and `fan_out` count as for
    `initializers.Layer`.

    weight: the parameter, or the part of it that makes these responses. bias: the same, or None.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    fan_in: int
    fan_out: int
    signal: Signal


@dataclass
class Trace:
    """What a run found.

    calls: every weight layer, in the order of its first use. feeds: by layer, what reads its
    responses: (functions, E[f'^2]). branches: the layers at the end of a branch of a residual sum,
    with the number of layers that share it.
    sums: the largest number of residual sums on one way. residual: by such sum the layers of its
    branch, in order; none where it does not end in a layer. responses: by layer, (predicted,
    measured) E[y^2], at its first use; last: measured at its last use.
    unexplained: by parameter, why its layer was not recognised. uses: by layer, how often the run
    came to it."""

    calls: dict[str, LayerCall] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    feeds: dict[str, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    sums: int = 0
    residual: list[tuple[str, ...]] = field(default_factory=list)
    responses: dict[str, tuple[float, float]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    unexplained: dict[str, str] = field(default_factory=dict)

    def consume(self, signal: Signal) -> None:
        """Note what the responses are read by, for the backward conditions."""
        for layer in signal.origins:
            fed = (signal.functions, signal.derivative_second)
            self.feeds.setdefault(layer, []).append(fed)

    def add(self, one: Signal, other: Signal, factor: float) -> Signal | None:
        """one + factor * other, independent; None where it is not normal, because a part of it
        passed an activation.

        What is read behind a chain of such sums depends on their distribution, which is then
        measured: the positive numbers that an activation leaves are not halved by the next one, as
        normal numbers would be."""
        if not all(signal.is_normal and not signal.functions for signal in (one, other)):
            return None
        mean = one.mean + factor * other.mean
        second = one.second + factor**2 * other.second + 2 * factor * one.mean * other.mean
        return normal(mean, second, "a sum", **self.residual_sum(one, other))

    def residual_sum(self, one: Signal, other: Signal) -> dict[str, Any]:
        """Return what else is known of a sum; the part with more layers behind it is a branch, the
        other its shortcut.

        A branch's last layers are noted.
        """
        ends: tuple[str, ...] = ()
        if one.layers == other.layers:
            ends = one.ends + other.ends
        else:
            shortcut, branch = sorted((one, other), key=lambda signal: signal.layers)
            within = tuple(name for name in branch.behind if name not in shortcut.behind)
            self.residual.append(within if branch.ends else ())
            self.branches.update(dict.fromkeys(branch.ends, len(branch.ends)))
        longest = lengths([one, other])
        longest["sums"] += one.layers != other.layers
        self.sums = max(self.sums, longest["sums"])
        longest |= parts([one, other])
        return {"origins": self.carried([one, other]), "ends": ends, **longest}

    def concatenate(self, tensors: Sequence[Tensor], signals: Sequence[Signal]) -> Signal:
        shares = [x.numel() / sum(x.numel() for x in tensors) for x in tensors]
        mean = sum(share * signal.mean for share, signal in zip(shares, signals, strict=True))
        second = sum(share * signal.second for share, signal in zip(shares, signals, strict=True))
        source = f"{len(signals)} concatenated maps"
        details = lengths(signals) | parts(signals, shares)
        return normal(mean, second, source, origins=self.carried(signals), **details)

    def carried(self, signals: Sequence[Signal]) -> tuple[str, ...]:
        """Return the layers whose responses go on unchanged; the others end here, in a function
        that was applied."""
        for signal in signals:
            if signal.functions:
                self.consume(signal)
        unchanged = [signal.origins for signal in signals if not signal.functions]
        return tuple(chain.from_iterable(unchanged))


def is_independent_sum(name: str, signals: Sequence[Signal]) -> bool:
    """Whether two numbers are added or subtracted of which no layer makes a part of both."""
    if name not in SUMS | DIFFERENCES or len(signals) != 2:
        return False
    return not set(signals[0].origins) & set(signals[1].origins)


def tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors among arguments, and in lists among them."""
    result: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        values = value if isinstance(value, tuple | list) else (value,)
        result += [x for x in values if isinstance(x, Tensor)]
    return result


def bound(name: str, args: Any, kwargs: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (input, weight, bias) of a layer's function."""
    named = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **kwargs}
    return named["input"], named["weight"], None if name in PRODUCTS else named.get("bias")


def fans(name: str, weight: Tensor, args: Any, kwargs: Any) -> tuple[int, int]:
    """Return (fan_in, fan_out): how many inputs make a response, and how many responses an input
    reaches.

    As in the paper, strides and borders do not count for convolutions; a transposed convolution is
    one backwards."""
    window = math.prod(weight.shape[2:])
    if name in PRODUCTS:
        return weight.shape[-2], weight.shape[-1]
    if name == "linear":
        return weight.shape[1], weight.shape[0]
    groups = args[6] if len(args) > 6 else kwargs.get("groups", 1)
    if name in CONVOLUTIONS:
        return weight.shape[1] * window, weight.shape[0] // groups * window
    stride = args[3] if len(args) > 3 else kwargs.get("stride", 1)
    steps = math.prod(stride) if isinstance(stride, tuple | list) else stride ** (weight.dim() - 2)
    return max(1, round(weight.shape[0] // groups * window / steps)), weight.shape[1] * window
