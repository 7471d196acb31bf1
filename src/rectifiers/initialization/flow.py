"""What one forward and one backward pass on an example show of every weight layer.

The counterpart of `tracing`, which predicts: here nothing is assumed of the weights, and the
gradient is torch's own."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rectifiers.initialization import operations as op
from rectifiers.initialization.modes import batch_stats_mode
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed


@dataclass
class LayerFlow:
    """Signal and gradient at the responses y of a layer, at its first use.

    second: E[y^2] over the batch.
    correlation: of the responses to two examples, <y_i, y_j> / sqrt(<y_i, y_i> <y_j, y_j>), from
        the mean over all pairs; None for a single example, or where all responses are 0.
    correlation_in: that of what the layer reads.
    gradient: the sum of the squared derivatives with respect to the responses, divided by that of
        the outputs, whose derivatives are drawn from N(0, 1). 1 in a chain of orthogonal layers,
        whatever their widths and map sizes; 0 where nothing reaches them.
    alive: which of its units get a gradient on any example, bool [units]; None where none comes
        back.
    is_reached: whether the outputs depend on them for autograd: not where a function without a
        derivative, `detach` or `torch.no_grad` lies between.
    """

    second: float
    correlation: float | None
    correlation_in: float | None
    gradient: float = 0.0
    alive: Tensor | None = None
    is_reached: bool = False


@dataclass
class Flow:
    """What a run of a model on an example shows.

    layers: by the name of the weight, in the order of their first use.
    gradients: by the name of every parameter with requires_grad, the sum of its squared
        derivatives, in units of that of the outputs; None where the run does not depend on it.
    used: the names of the parameters that the run has read.
    idle: of those that it has read for no numbers alone, such as those of an expert without rows.
    derivatives: by parameter, the derivatives whose squares `gradients` sums.
    """

    layers: dict[str, LayerFlow]
    gradients: dict[str, float | None]
    used: set[str]
    derivatives: dict[str, Tensor | None]
    idle: set[str] = field(default_factory=set)


def measure(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Flow:
    """Run `model` forward and backward, and return what reaches each layer and parameter.

    Normalisation uses the batch's statistics, as in training, and dropout drops nothing. Weights,
    buffers, `.grad`, modes and torch's random numbers are afterwards as before.

    Raises:
        InputError: where the outputs hold no numbers.
    """
    watch = _Watch(model)
    with (
        batch_stats_mode(model),
        torch.enable_grad(),
        torch.compiler.set_stance("force_eager"),
    ):
        leaves = [_leaf(x) for x in args]
        named = {name: _leaf(x) for name, x in (kwargs or {}).items()}
        given = [x for x in (*leaves, *named.values()) if _is_real(x)]
        with watch:
            result = model(*map(_copy, leaves), **{name: _copy(x) for name, x in named.items()})
        results = list(tensors_in(result))
        if results and not any(x.numel() for x in results):
            raise InputError(
                f"the outputs of {type(model).__name__} hold no numbers on example_input; give an "
                "example on which they do"
            )
        outputs = [x for x in results if x.requires_grad and x.numel()]
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        found: tuple[Tensor | None, ...] = (None,) * len(parameters)
        # by a seed of its own, for an example of the outputs' shape may be drawn, too
        generator = torch.Generator().manual_seed(derive_seed("outputs"))
        draw = partial(torch.randn, generator=generator, device="cpu")
        weights = [draw(x.shape, dtype=x.dtype).to(x.device) for x in outputs]
        if outputs:
            # not `backward`, which would add to .grad
            sources = [*parameters.values(), *given]
            found = torch.autograd.grad(outputs, sources, weights, allow_unused=True)
            found = tuple(g.to_dense() if g is not None and g.is_sparse else g for g in found)
    total = sum(_sum_of_squares(x) for x in weights)
    for name, gradient in watch.gradients.items():
        watch.layers[name].gradient = gradient / total
        watch.layers[name].is_reached = True
    gradients = {
        name: None if g is None else _sum_of_squares(g) / total
        for name, g in zip(parameters, found, strict=False)
    }
    derivatives = dict(zip(parameters, found, strict=False))
    return Flow(watch.layers, gradients, watch.used, derivatives, watch.idle - watch.used)


class _Watch(TorchFunctionMode):
    """Notes the responses of every weight layer, and by hooks their gradients."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {id(p): name for name, p in model.named_parameters() if p.numel()}
        self.layers: dict[str, LayerFlow] = {}
        self.gradients: dict[str, float] = {}
        self.used: set[str] = set()
        self.idle: set[str] = set()  # what has read them gave empty tensors

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if given := op.tensors((out,), {}):  # not a shape or a type, which are no numbers
            read = [x for x in op.tensors(args, kwargs or {}) if id(x) in self.names]
            names = self.used if any(x.numel() for x in given) else self.idle
            names.update(self.names[id(x)] for x in read)
        name = getattr(func, "__name__", "")
        if name in op.PRODUCTS | op.CONVOLUTIONS | op.TRANSPOSED | {"linear"} and len(args) > 1:
            weight = self.names.get(id(args[1]))
            if weight is not None and weight not in self.layers and out.numel():
                sides = 0 if name in op.PRODUCTS else args[1].dim() - 2
                self._note(weight, args[0], out, out.dim() - 1 - sides)
        return out

    def _note(self, name: str, x: Tensor, out: Tensor, channels: int) -> None:
        """Note a layer that reads `x` and has its units in the dimension `channels` of `out`."""
        _, correlation_in = _signal(x.detach())
        layer = self.layers[name] = LayerFlow(*_signal(out.detach()), correlation_in)
        if out.requires_grad:

            def hook(gradient: Tensor) -> None:
                self.gradients[name] = _sum_of_squares(gradient)
                units = (gradient != 0).movedim(channels, 0)
                # an example without a batch dimension has one number a unit
                layer.alive = units.flatten(1).any(1) if units.dim() > 1 else units

            out.register_hook(hook)


def _signal(y: Tensor) -> tuple[float, float | None]:
    """Return E[y^2] of a batch, and the correlation of two of its examples."""
    rows = y.double().flatten(1) if y.dim() > 1 else y.double()[None]
    own = float(rows.square().sum())
    second, count = own / max(rows.numel(), 1), len(rows)
    if count < 2 or not 0 < own < math.inf:
        return second, None
    pairs = float(rows.sum(0).square().sum()) - own  # the sum over i != j of <y_i, y_j>
    return second, pairs / (count - 1) / own


def _sum_of_squares(x: Tensor) -> float:
    x = torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x.detach()
    if not x.is_floating_point():
        x = x.double()
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2


def _is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _leaf(x: Any) -> Any:
    """Let the numbers of an argument have gradients, so that frozen layers have some, too."""
    return x.detach().clone().requires_grad_() if _is_real(x) else x


def _copy(x: Any) -> Any:
    """A model may change its input in place, which no leaf allows."""
    return x.clone() if _is_real(x) else x


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of real numbers in a model's result, each once, in their order: in lists,
    dictionaries, and objects with fields. Any of these may hold each other."""
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item  # kept, so that nothing else gets its id
        if not isinstance(item, Tensor):
            waiting += reversed(_items(item))
        elif item.is_floating_point():
            yield item


def _items(value: Any) -> list[Any]:
    """Return what a list, a dictionary or an object with fields holds, and nothing of others."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if hasattr(value, "__dict__") and not isinstance(value, nn.Module | type | ModuleType):
        return list(vars(value).values())
    return []
