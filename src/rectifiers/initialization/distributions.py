"""What a tensor holds over draws of the weights, as functions of one normal variable."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rectifiers.initialization.operations import DIFFERENCES, SUMS
from rectifiers.quadrature import Moments, is_elementwise, normal_rule

SAMPLE = 2**16  # numbers that the distribution of a tensor is read from
Residual = Literal["share", "zero", "depth"]  # what the ends of residual branches get
_roots = count()


def new_root() -> int:
    """Return the number of a normal variable that no distribution is a function of yet."""
    return next(_roots)


@dataclass(frozen=True)
class Distribution:
    """The numbers of a tensor, f(y) of a response y.

    values, slopes: f(y) and f'(y) at the nodes of `normal_rule`, float64 [nodes, channels], or
        [nodes, 1] where all channels are alike.
    root: y's own number; distributions of one root are functions of the same y.
    source, functions: y and the functions in f, in words.
    origins: the layers whose responses y is the sum of.
    ends: the layers whose responses these numbers are, unchanged.
    scale: the parameter that multiplies these numbers, unchanged since; "" for none.
    layers, sums: how many weight layers, and how many sums, lie behind it on the longest way.
    behind: all layers behind it, in the order of the run.
    moments: of f, where quadrature cannot find them.
    is_normal: whether y is normal, as a sum of responses is.
    response: y at the nodes.
    growth: what a relative error of the mean square of the network's input is multiplied by in
        E[y^2]; step: the same from the last layer to y.
    spread: the variance of ln E[y^2] over draws of the weights before, by their finite width.
    borders: what borders add to ln E[y^2], which `values` leave out, as a layer's std does.
    """

    values: Tensor
    slopes: Tensor
    root: int
    source: str
    functions: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    scale: str = ""
    layers: int = 0
    sums: int = 0
    behind: tuple[str, ...] = ()
    moments: Moments | None = None
    is_normal: bool = True
    response: Tensor | None = None
    growth: float = 1.0
    step: float = 1.0
    spread: float = 0.0
    borders: float = 0.0

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


def normal(mean: float, second: float, source: str, **more: Any) -> Distribution:
    """Return normal numbers of this mean and mean square."""
    nodes = normal_rule()[0][:, None]
    values = mean + math.sqrt(max(second - mean**2, 0.0)) * nodes
    return Distribution(
        values, torch.ones_like(values), new_root(), source, response=values, **more
    )


def measured(tensor: Tensor, source: str, *, is_normal: bool = False, **more: Any) -> Distribution:
    """Return numbers that are distributed as those of a tensor.

    Their quantiles are the tensor's, for what stood behind an activation is no normal variable, and
    their mean and mean square are those of all its numbers."""
    numbers, nodes = tensor.detach().flatten().double(), normal_rule()[0]
    if not len(numbers):  # what a layer without outputs gives
        numbers = torch.zeros(1, dtype=torch.float64, device="cpu")
    mean, std = float(numbers.mean()), float(numbers.std(correction=0))
    if len(numbers) > SAMPLE:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(len(numbers), (SAMPLE,), generator=generator, device="cpu")
        numbers = numbers[drawn.to(numbers.device)]
    ranks = torch.special.ndtr(nodes) * (len(numbers) - 1)
    ordered, below = numbers.cpu().sort().values, ranks.long()
    above = (below + 1).clamp(max=len(ordered) - 1)
    values = torch.lerp(ordered[below], ordered[above], ranks - below)[:, None]
    variance = expectation((values - expectation(values)).square())
    scale = std / math.sqrt(variance) if variance > 0 else 1.0
    values = mean + scale * (values - expectation(values))
    more |= {"is_normal": is_normal, "response": values, "borders": 0.0}  # they are measured, too
    return Distribution(values, torch.ones_like(values), new_root(), source, **more)


def after_module(module: nn.Module, x: Tensor, dist: Distribution) -> Distribution | None:
    """Return what follows a module that is one function of single numbers, or says its moments
    itself."""
    label = type(module).__name__ if any(True for _ in module.children()) else repr(module)
    if callable(getattr(module, "moments", None)):
        moments: Moments = module.moments()  # type: ignore[operator]
        if abs(moments.map_slope - 1) > 1e-6 and abs(dist.second - 1) > 0.1:
            return None  # they hold for a mean square of 1, and for rectifiers in proportion
        moments = replace(moments, second=moments.second * dist.second)
        functions = (*dist.functions, label)
        return replace(
            dist, functions=functions, moments=moments, ends=(), scale="", root=new_root()
        )
    forward = module.forward
    if not is_elementwise(forward, [x]):
        return None
    if torch.equal(forward(x.clone()), x):  # dropout, for example
        return dist
    exact = copy.deepcopy(module).cpu().double().requires_grad_(False)
    sizes = [x.numel() for x in chain(module.parameters(), module.buffers())]
    return after_function(label, exact.forward, [dist], max(sizes, default=1))


def after_function(
    label: str, function: Callable[..., Tensor], dists: Sequence[Distribution], channels: int = 1
) -> Distribution | None:
    """Return what follows a function of single numbers of one response; None where it takes no such
    numbers."""
    if any(dist.moments for dist in dists):
        return None  # of these numbers the moments alone are known
    columns = max(channels, *(dist.values.shape[1] for dist in dists), 1)
    with torch.enable_grad():
        values = [dist.values.expand(-1, columns).clone().requires_grad_() for dist in dists]
        try:  # copies, because it may work in place
            if function(*(x[:2].clone() for x in values)).shape != (2, columns):
                return None  # a scale per channel of maps, which broadcasts
            out = function(*(x.clone() for x in values))
            partials: Sequence[Tensor] = [torch.zeros_like(x) for x in values]  # of a step function
            if out.requires_grad:
                partials = torch.autograd.grad(
                    out.sum(), values, allow_unused=True, materialize_grads=True
                )
        except Exception:  # takes maps only, or changes in place what a derivative needs
            return None

    slopes = torch.zeros_like(out)
    for partial, dist in zip(partials, dists, strict=True):
        slopes = slopes + partial * dist.slopes
    longest = max(dists, key=lambda dist: len(dist.functions))
    functions = (*longest.functions, label)
    return replace(
        longest,
        values=out.detach(),
        slopes=slopes.detach(),
        functions=functions,
        ends=(),
        scale="",
    )


def lengths(dists: Sequence[Distribution]) -> dict[str, Any]:
    """Return what lies behind any of `dists`, and the lengths of the longest way there, as fields
    of a Distribution."""
    return {
        "layers": max(dist.layers for dist in dists),
        "sums": max(dist.sums for dist in dists),
        "behind": tuple(dict.fromkeys(chain.from_iterable(dist.behind for dist in dists))),
        "growth": max(dist.growth * dist.map_slope for dist in dists),
        "step": max(dist.step * dist.map_slope for dist in dists),
        "spread": max(dist.spread * dist.map_slope**2 for dist in dists),
    }


def combined(dists: Sequence[Distribution], weights: Sequence[float]) -> dict[str, float]:
    """Return the growth, the step and the borders of what depends on all `dists`, on each by its
    weight."""
    slopes = [weight * x.map_slope for weight, x in zip(weights, dists, strict=True)]
    return {
        name: sum(slope * getattr(x, name) for slope, x in zip(slopes, dists, strict=True))
        for name in ("growth", "step", "borders")
    }


def parts(dists: Sequence[Distribution], shares: Sequence[float] | None = None) -> dict[str, float]:
    """Return the same of a sum or a concatenation, of which each distribution is a part."""
    seconds = [
        x.second * share for x, share in zip(dists, shares or [1.0] * len(dists), strict=True)
    ]
    total = sum(seconds)
    if not 0 < total < math.inf:
        return {}
    return combined(dists, [second / total for second in seconds])


def lengths_after(dists: Sequence[Distribution], *layers: str) -> dict[str, Any]:
    """Return the same behind `layers`, side by side, that read `dists`."""
    longest = lengths(dists)
    more = {"layers": longest["layers"] + 1, "behind": (*longest["behind"], *layers)}
    return longest | more | {"step": 1.0}


@dataclass(frozen=True)
class LayerCall:
    """A weight layer as it is met.

    weight: the parameter, or the part of it that makes these responses. bias: the same, or None.
    fan_in, fan_out: as for `initializers.Layer`.
    reads: what the layer reads.
    taps: how many inputs make a response on these maps, borders and all, on average.
    reads_halves: whether CReLU's two halves are those of what it reads, and of its weight.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    fan_in: int
    fan_out: int
    reads: Distribution
    taps: float
    reads_halves: bool = False


@dataclass(frozen=True)
class Table:
    """A table of embeddings.

    padding: the row of what is no token, which stays 0. read: computes what its first use gives.
    """

    weight: Tensor
    padding: int | None
    read: Callable[[], Tensor]


@dataclass
class Trace:
    """What a run found.

    calls: every weight layer, in the order of its first use. feeds: by layer, what reads its
    responses: (functions, E[f'^2]). branches: the layers at the end of a branch of a residual sum,
    with the number of layers that share it; places: the same layers, with the place of their sum
    among those on its way, from 1.
    sums: the largest number of residual sums on one way. scales: by such sum the parameter that
    multiplies what its branch gives; "" where the branch ends in a layer of its own, None where it
    ends in neither.
    responses: by layer, (predicted, measured) E[y^2], at its first use; sizes: at every use,
    (E[x^2], E[y^2]), measured; outputs: E[y^2] of each tensor that the network returned, without
    infinite numbers; NaN where it holds NaN, or nothing that is finite. unexplained: by parameter,
    why its layer was not recognised. uses: by layer, how often the run came to it. tables: those of
    embeddings, by name, in the order of their first use."""

    calls: dict[str, LayerCall] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    feeds: dict[str, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    sums: int = 0
    scales: list[str | None] = field(default_factory=list)
    responses: dict[str, tuple[float, float]] = field(default_factory=dict)
    sizes: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    outputs: list[float] = field(default_factory=list)
    unexplained: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    def share(self, layer: str, residual: Residual = "share") -> float:
        """Return the mean square that the responses of `layer` should have: 1, or less at the end
        of a residual branch, by default 1 / the number of residual sums on the longest way, divided
        among the layers that end this branch."""
        if layer not in self.branches:
            return 1.0
        if residual == "zero":
            return 0.0
        count = self.places[layer] if residual == "depth" else max(1, self.sums)
        return 1 / count / self.branches[layer]

    def consume(self, dist: Distribution) -> None:
        """Note what the responses are read by, for the backward conditions."""
        for layer in dist.origins:
            fed = (dist.functions, dist.derivative_second)
            self.feeds.setdefault(layer, []).append(fed)

    def add(self, one: Distribution, other: Distribution, factor: float) -> Distribution | None:
        """one + factor * other, independent; None where it is not normal, because a part of it
        passed an activation.

        What is read behind a chain of such sums depends on their distribution, which is then
        measured: the positive numbers that an activation leaves are not halved by the next one, as
        normal numbers would be."""
        if not all(dist.is_normal and not dist.functions for dist in (one, other)):
            return None
        mean = one.mean + factor * other.mean
        second = one.second + factor**2 * other.second + 2 * factor * one.mean * other.mean
        return normal(mean, second, "a sum", **self.residual_sum(one, other))

    def residual_sum(self, one: Distribution, other: Distribution) -> dict[str, Any]:
        """Return what else is known of a sum; the part with more layers behind it is a branch, the
        other its shortcut.

        A branch's last layers are noted.
        """
        ends: tuple[str, ...] = ()
        if one.layers == other.layers:
            ends = one.ends + other.ends
        else:
            shortcut, branch = sorted((one, other), key=lambda dist: dist.layers)
            has_end = branch.ends and set(branch.behind) - set(shortcut.behind)
            self.scales.append(branch.scale or ("" if has_end else None))
            for end in branch.ends:
                self.places.setdefault(end, max(one.sums, other.sums) + 1)
            self.branches.update(dict.fromkeys(branch.ends, len(branch.ends)))
        longest = lengths([one, other])
        longest["sums"] += one.layers != other.layers
        self.sums = max(self.sums, longest["sums"])
        longest |= parts([one, other])
        return {"origins": self.carried([one, other]), "ends": ends, **longest}

    def concatenate(self, tensors: Sequence[Tensor], dists: Sequence[Distribution]) -> Distribution:
        shares = [x.numel() / sum(x.numel() for x in tensors) for x in tensors]
        mean = sum(share * dist.mean for share, dist in zip(shares, dists, strict=True))
        second = sum(share * dist.second for share, dist in zip(shares, dists, strict=True))
        source = f"{len(dists)} concatenated maps"
        details = lengths(dists) | parts(dists, shares)
        return normal(mean, second, source, origins=self.carried(dists), **details)

    def carried(self, dists: Sequence[Distribution]) -> tuple[str, ...]:
        """Return the layers whose responses go on unchanged; the others end here, in a function
        that was applied."""
        for dist in dists:
            if dist.functions:
                self.consume(dist)
        unchanged = [dist.origins for dist in dists if not dist.functions]
        return tuple(chain.from_iterable(unchanged))


def is_independent_sum(name: str, dists: Sequence[Distribution]) -> bool:
    """Whether two numbers are added or subtracted of which no layer makes a part of both."""
    if name not in SUMS | DIFFERENCES or len(dists) != 2:
        return False
    return not set(dists[0].origins) & set(dists[1].origins)
