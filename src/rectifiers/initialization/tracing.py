"""What arrives at every weight layer of any network, found by running it on an example.

Every tensor of the run carries a `Distribution`: the numbers that it would hold over draws of the
weights, as functions of a normal variable. A weight layer makes normal responses of whatever it
reads (its weights have mean zero, section 2.2 of the paper). A function of single numbers is
applied at the nodes of a quadrature rule; the parts of a sum of responses, a product or a
concatenation are taken as independent. What no rule here covers, such as normalisation, pooling,
attention and sums of what passed an activation, is measured in the run itself, in which all layers
before it have their weights already."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rectifiers.initialization import operations as op
from rectifiers.initialization.distributions import (
    SETTLED,
    Distribution,
    LayerCall,
    Table,
    Trace,
    after_function,
    after_module,
    combined,
    is_independent_sum,
    lengths,
    lengths_after,
    measured,
    new_root,
    normal,
)
from rectifiers.initialization.example import cannot_run, check
from rectifiers.initialization.flow import tensors_in
from rectifiers.initialization.modes import batch_stats_mode
from rectifiers.quadrature import is_elementwise
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.torch_internals import base

LABEL = "rectifiers_label"  # of tensors without a distribution: what they are, in words
LARGEST_BORDERS = 100.0  # of what borders add to ln E[y^2]: no number overflows
Respond = Callable[[], Tensor]  # computes a layer's responses, by its weight and bias as they are


def run(
    model: nn.Module,
    example: tuple[Any, ...],
    on_layer: Callable[[LayerCall, Respond], None] = lambda call, respond: None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    empirical: bool = False,
) -> Trace:
    """Run `model` on `example`, its positional arguments, and `kwargs`; return what was found.

    empirical: whether responses are followed with the mean square that is measured of them, and not
    with the one that follows from the weights.

    on_layer: called with every weight layer before it is used for the first time, and may fill its
    weight in place; it may compute the responses, too. Normalisation uses the batch's statistics,
    as in training, and dropout drops nothing. The buffers and the modes of the model are afterwards
    as before.

    Raises:
        InputError: where the model cannot be run on the example, or the example holds no numbers
        but 0.
    """
    named = dict(kwargs or {})
    check(model, (*example, *named.values()))
    tracer = _Tracer(model, on_layer, empirical)
    inputs = [x.clone() if isinstance(x, Tensor) else x for x in example]
    named = {name: x.clone() if isinstance(x, Tensor) else x for name, x in named.items()}
    for x in (*inputs, *named.values()):
        if isinstance(x, Tensor) and x.is_floating_point():
            _set(x, measured(x, "the input"))
        elif isinstance(x, Tensor) and not x.is_complex():
            kind = "booleans" if x.dtype == torch.bool else "integers"
            setattr(x, LABEL, f"{kind} of the input (measured)")
    # compiled modules run uncompiled: a compiler would look into the tracer
    with (
        batch_stats_mode(model),
        tracer.hooks(),
        torch.no_grad(),
        torch.compiler.set_stance("force_eager"),
        tracer,
    ):
        try:
            result = model(*inputs, **named)
        except InputError:
            raise
        except Exception as error:
            raise cannot_run(model, inputs, named, error) from error
    outputs = (x.detach() for x in tensors_in(result) if x.numel())
    tracer.trace.outputs = [_mean_square(x[~x.isinf()]) for x in outputs]
    return tracer.trace


def _get(value: Any) -> Distribution | None:
    return getattr(value, "rectifiers_distribution", None) if isinstance(value, Tensor) else None


def _read(x: Tensor) -> Distribution:
    """Return what a layer reads: measured where it does not come from numbers that were followed,
    as of embeddings."""
    source = getattr(x, LABEL, "numbers without a layer before them (measured)")
    return _get(x) or measured(x, source)


def _mean_square(x: Tensor) -> float:
    return float(x.detach().double().square().mean())


def _set(tensor: Tensor, dist: Distribution) -> None:
    tensor.rectifiers_distribution = dist  # type: ignore[attr-defined]


class _Tracer(TorchFunctionMode):
    def __init__(
        self, model: nn.Module, on_layer: Callable[[LayerCall, Respond], None], empirical: bool
    ) -> None:
        super().__init__()
        self.model, self.on_layer, self.trace = model, on_layer, Trace()
        self.empirical = empirical
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.inside: nn.Module | None = None  # a module that is one function of single numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if self.inside is not None:
            return func(*args, **kwargs)
        if name == "multi_head_attention_forward":
            return self._attention(func, args, kwargs)
        is_product = name in op.PRODUCTS and len(args) > 1
        if name in op.CONVOLUTIONS | op.TRANSPOSED | {"linear"} or (
            is_product and id(args[1]) in self.names and args[1].dim() > 1
        ):
            return self._layer(func, name, args, kwargs)
        inputs = op.tensors(args, kwargs)
        if name in op.VIEWS:  # of y.view_as(x), the numbers are those of y
            inputs = inputs[:1]
        dists = [dist for x in inputs if (dist := _get(x)) is not None]
        # before an in-place function changes its arguments
        new = self._function(func, name, args, kwargs, dists)
        out = func(*args, **kwargs)
        self._note_change_in_place(name, args, out)
        if dists:
            for part in out if isinstance(out, tuple | list) else (out,):
                if isinstance(part, Tensor) and part.is_floating_point():
                    self._keep(part, name, dists, new)
            self._note_scale(name, args, kwargs, out)
        else:
            self._pass_label(inputs, out)
        if new is None and name not in op.VIEWS and isinstance(out, Tensor):
            for x in inputs:
                if id(x) in self.names:
                    reason = f"{name} reads it, whose responses are measured"
                    self.trace.unexplained.setdefault(self.names[id(x)], reason)
        if name in op.LOOKUPS and isinstance(out, Tensor):
            _set(out, measured(out, f"{name} (measured)"))
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            if (key := self.names.get(id(weight))) is not None:
                table = Table(weight, kwargs.get("padding_idx"), partial(func, *args, **kwargs))
                self.trace.tables.setdefault(key, table)
        return out

    def _note_scale(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """Note the parameter that multiplies a result, as the scale of a normalisation does."""
        factors = [kwargs.get("weight")] if name in op.NORMS else []
        if name in op.MULTIPLICATIONS:
            factors = op.tensors(args, kwargs)
        for x in factors:
            root = x if x is None or base(x) is None else base(x)
            if id(root) in self.names and (dist := _get(out)):
                _set(out, replace(dist, scale=self.names[id(root)]))

    def _pass_label(self, inputs: Sequence[Tensor], out: Any) -> None:
        """Let what is computed from integers of the input, and not looked up by them, be known as
        such."""
        label = getattr(inputs[0], LABEL, None) if inputs else None
        if label and not any(id(x) in self.names for x in inputs):
            for part in out if isinstance(out, tuple | list) else (out,):
                if isinstance(part, Tensor):
                    setattr(part, LABEL, label)

    def _note_change_in_place(self, name: str, args: Any, out: Any) -> None:
        """Measure a tensor of which a part was written to: what was known of its numbers holds no
        more."""
        changed = args[0] if name == "__setitem__" else None
        if isinstance(out, Tensor) and args and out is args[0] and name not in op.VIEWS:
            changed = base(out)
        if isinstance(changed, Tensor) and (dist := _get(changed)):
            details = {"origins": dist.origins, **lengths([dist])}
            _set(changed, measured(changed, "a map written to in part (measured)", **details))

    def _keep(
        self, out: Tensor, name: str, dists: Sequence[Distribution], new: Distribution | None
    ) -> None:
        """Let the result of a function carry its distribution."""
        first = dists[0]
        if new is None and name in op.VIEWS:
            new = first
        elif new is None and name in op.PARTS:
            new = replace(first, root=new_root())
        elif new is None:
            new = self._measured(out, name, dists)
        _set(out, new)

    def _measured(self, out: Tensor, name: str, dists: Sequence[Distribution]) -> Distribution:
        first = dists[0]
        if name in op.NORMS and not first.functions:  # its size is another then, not its shape
            behind = {"origins": first.origins, **lengths(dists), **SETTLED}
            return measured(out, f"{name} (measured)", is_normal=first.is_normal, **behind)
        if is_independent_sum(name, dists):
            return measured(out, "a sum (measured)", **self.trace.residual_sum(*dists))
        for dist in dists:
            self.trace.consume(dist)
        details = lengths(dists) | (SETTLED if name in op.NORMS else {})
        if name in op.DIVISIONS and len(dists) == 2:
            details |= combined(dists, [1, -1])
        return measured(out, f"{name} (measured)", **details)

    def _function(
        self, func: Any, name: str, args: Any, kwargs: Any, dists: Sequence[Distribution]
    ) -> Distribution | None:
        """Return the distribution of a result that follows from theory, or None."""
        if not dists or name in op.VIEWS | op.PARTS | op.NORMS:
            return None
        slopes = args[1] if name == "prelu" and len(args) > 1 else None
        others = [x for x in op.tensors(args, kwargs) if x.numel() > 1 and x is not slopes]
        if len(dists) != len(others):  # a scale per channel, or a constant
            return None
        if name in op.CONCATENATIONS:
            return self.trace.concatenate(others, dists)
        if len({dist.root for dist in dists}) == 1:
            channels = 1 if slopes is None else slopes.numel()
            return self._elementwise(func, name, args, kwargs, dists, channels)
        if is_independent_sum(name, dists):
            factor = kwargs.get("alpha", 1) * (-1 if name in op.DIFFERENCES else 1)
            return self.trace.add(dists[0], dists[1], factor)
        if name in op.MULTIPLICATIONS and len(dists) == 2:
            for dist in dists:
                self.trace.consume(dist)
            one, other = dists
            mean, second = one.mean * other.mean, one.second * other.second
            details = lengths(dists) | combined(dists, [1, 1])
            return normal(mean, second, "a product", **details)
        return None

    def _elementwise(
        self,
        func: Any,
        name: str,
        args: Any,
        kwargs: Any,
        dists: Sequence[Distribution],
        channels: int,
    ) -> Distribution | None:
        """Return the distribution after a function of single numbers, or None where it is no such
        function."""
        places = [i for i, x in enumerate(args) if _get(x) is not None]
        if len(places) != len(dists):
            return None

        def of(*inputs: Tensor) -> Any:
            values = list(args)
            for i, x in enumerate(values):
                if isinstance(x, Tensor) and x.is_floating_point():
                    values[i] = x.to(inputs[0])
            for i, x in zip(places, inputs, strict=True):
                values[i] = x
            return func(*values, **kwargs)

        if not is_elementwise(of, [args[i] for i in places]):
            return None
        return after_function(name.strip("_"), of, dists, channels)

    def _layer(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        x, weight, bias = op.bound(name, args, kwargs)
        if weight.is_complex():
            name = self.names.get(id(weight), name)
            raise InputError(
                f"{name} is of {weight.dtype}, and only layers of real numbers can be filled or "
                "measured; hold real and imaginary parts in layers of their own"
            )
        dist, key = _read(x), self.names.get(id(weight))
        out: Tensor
        if key is None or not weight.numel():
            out = func(*args, **kwargs)
            _set(out, measured(out, f"{name} (measured)", **lengths_after([dist])))
            return out
        self.trace.consume(dist)
        fan_in, fan_out, taps = op.fans(func, name, x, weight, args, kwargs)
        is_behind_crelu = any(label.startswith("CReLU") for label in dist.functions[-1:])
        halves = is_behind_crelu and op.reads_halves(name, x, weight)
        call = LayerCall(key, weight, bias, fan_in, fan_out, dist, taps, halves)
        self._meet(call, lambda: func(*args, **kwargs))
        out = func(*args, **kwargs)
        self._respond(out, call, _mean_square(x))
        return out

    def _respond(self, out: Tensor, call: LayerCall, second_in: float) -> None:
        """Let the responses of a layer carry their distribution, which follows from its weights.

        Followed is E[y^2] as if every response had all its inputs, for stds leave borders out as
        the paper does; predicted is what is left of it."""
        reads, bias_second = call.reads, 0.0
        if call.bias is not None:
            bias_second = float(call.bias.double().square().mean())
        by_input = float(call.weight.double().square().mean()) * reads.second
        by_weight = call.fan_in * by_input
        second = by_weight + bias_second
        left = math.exp(min(reads.map_slope * reads.borders, LARGEST_BORDERS))
        predicted = call.taps * by_input * left + bias_second
        measured_second = _mean_square(out)
        if out.numel():  # no token may come to an expert
            self.trace.responses.setdefault(call.name, (predicted, measured_second))
            self.trace.sizes.setdefault(call.name, []).append((second_in, measured_second))

        details: dict[str, Any] = {"origins": (call.name,), "ends": (call.name,)}
        details |= lengths_after([reads], call.name)
        details["growth"] *= by_weight / second if 0 < second < math.inf else 1.0
        details["spread"] += reads.fluctuation / call.weight.shape[1]
        if self.empirical and out.numel():
            second = measured_second
        elif 0 < second < math.inf and 0 < predicted < math.inf:
            details["borders"] = math.log(predicted / second)
        _set(out, normal(0.0, second, call.name, **details))

    def _meet(self, call: LayerCall, respond: Respond) -> None:
        self.trace.uses[call.name] += 1
        if call.name not in self.trace.calls:
            self.trace.calls[call.name] = call
            self.on_layer(call, respond)

    def _attention(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`nn.MultiheadAttention`: three layers side by side, attention, which is measured, and a
        layer."""
        # (query, key, value, size, heads, weight and bias of the three, ..., those of the last
        # layer, ...)
        joint, joint_bias, last, last_bias = args[5], args[6], args[11], args[12]
        dists = [_read(x) for x in args[:3]]
        if joint is None or id(joint) not in self.names or id(last) not in self.names:
            out = func(*args, **kwargs)
            _set(out[0], measured(out[0], "attention (measured)"))
            return out
        names = [f"{self.names[id(joint)]}[{part}]" for part in "qkv"]
        biases = (None,) * 3 if joint_bias is None else joint_bias.chunk(3)
        parts = zip(names, args[:3], joint.chunk(3), biases, dists, strict=True)
        for name, x, weight, bias, dist in parts:
            self.trace.consume(dist)
            self.trace.feeds.setdefault(name, []).append((("attention",), 1.0))
            outputs, inputs = weight.shape
            call = LayerCall(name, weight, bias, inputs, outputs, dist, inputs)
            self._meet(call, partial(F.linear, x, weight, bias))
        plain = list(args)
        plain[11], plain[12] = torch.eye(len(last), dtype=last.dtype, device=last.device), None
        details = lengths_after(dists, *names)
        mixed = measured(func(*plain, **kwargs)[0], "attention (measured)", **details)
        name = self.names[id(last)]
        outputs, inputs = last.shape
        call = LayerCall(name, last, last_bias, inputs, outputs, mixed, inputs)
        self._meet(call, lambda: func(*args, **kwargs)[0])
        out = func(*args, **kwargs)
        self._respond(out[0], call, mixed.second)
        return out

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """See modules that are one function of single numbers, as activations are, as such."""
        new_dists: dict[nn.Module, Distribution] = {}

        def before(module: nn.Module, args: tuple[Any, ...]) -> None:
            dist = _get(args[0]) if len(args) == 1 else None
            if self.inside is None and dist is not None:
                self.inside = module  # what is tried here is no part of the run
                new = after_module(module, args[0], dist)
                self.inside = module if new else None
                if new:
                    new_dists[module] = new

        def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            if self.inside is module:
                self.inside = None
                _set(out, new_dists.pop(module))

        with ExitStack() as registered:
            for module in self.model.modules():
                has_weight = any(p.dim() > 1 for p in module.parameters())
                if has_weight or hasattr(module, "running_mean"):
                    continue
                # next to `forward`, so that what other hooks make of its numbers is part of the run
                registered.callback(module.register_forward_pre_hook(before).remove)
                registered.callback(module.register_forward_hook(after, prepend=True).remove)
            yield
