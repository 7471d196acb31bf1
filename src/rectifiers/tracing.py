"""What arrives at every weight layer of any network, found by running it on an example.

Every tensor of the run carries a `Signal`: the numbers that it would hold over draws of the
weights, as functions of a normal variable. A weight layer makes normal responses of whatever it
reads (its weights have mean zero, section 2.2 of the paper). A function of single numbers is
applied at the nodes of a quadrature rule; the parts of a sum of responses, a product or a
concatenation are taken as independent. What no rule here covers, such as normalisation, pooling,
attention and sums of what passed an activation, is measured in the run itself, in which all layers
before it have their weights already."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rectifiers.activations import acts_on_single_numbers
from rectifiers.arguments import CONVOLUTIONS, PRODUCTS, TRANSPOSED, bound, fans, tensors
from rectifiers.isolation import as_in_training, check
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.torch_internals import base
from rectifiers.signals import (
    Signal,
    after_function,
    after_module,
    lengths,
    lengths_after,
    measured,
    new_root,
    normal,
)

NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
DIFFERENCES = {"sub", "__sub__", "__isub__", "sub_", "subtract"}
MULTIPLICATIONS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"}
CONCATENATIONS = {"cat", "concat", "concatenate", "stack"}
# What keeps every number, and what keeps some of them.
VIEWS = {
    "flatten",
    "view",
    "reshape",
    "permute",
    "transpose",
    "contiguous",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "expand",
    "to",
    "float",
    "clone",
    "movedim",
    "t",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "__get__",
}
PARTS = {
    "__getitem__",
    "chunk",
    "split",
    "unbind",
    "narrow",
    "select",
    "roll",
    "flip",
    "tensor_split",
}


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
    measured) E[y^2].
    unexplained: by parameter, why its layer was not recognised. uses: by layer, how often the run
    came to it."""

    calls: dict[str, LayerCall] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    feeds: dict[str, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    sums: int = 0
    residual: list[tuple[str, ...]] = field(default_factory=list)
    responses: dict[str, tuple[float, float]] = field(default_factory=dict)
    unexplained: dict[str, str] = field(default_factory=dict)


Respond = Callable[[], Tensor]  # computes a layer's responses, by its weight and bias as they are


def run(
    model: nn.Module,
    example: tuple[Any, ...],
    on_layer: Callable[[LayerCall, Respond], None] = lambda call, respond: None,
) -> Trace:
    """Run `model` on `example`, its positional arguments, and return what was found.

    on_layer: called with every weight layer before it is used for the first time, and may fill its
    weight in place; it may compute the responses, too. Normalisation uses the batch's statistics,
    as in training, and dropout drops nothing. The buffers and the modes of the model are afterwards
    as before.

    Raises:
        InputError: where the model cannot be run on the example, or the example holds no numbers
        but 0.
    """
    check(model, example)
    numbers = [x for x in example if isinstance(x, Tensor) and x.is_floating_point()]
    if numbers and not any(bool(x.any()) for x in numbers):
        raise InputError(
            "example_input is all zeros, which no weights can scale; give a batch of data or "
            "torch.randn"
        )
    tracer, given = (
        _Tracer(model, on_layer),
        [x.clone() if isinstance(x, Tensor) else x for x in example],
    )
    for x in given:
        if isinstance(x, Tensor) and x.is_floating_point():
            _set(x, measured(x, "the input"))
    # compiled modules run uncompiled: a compiler would look into the tracer
    with (
        as_in_training(model),
        tracer.hooks(),
        torch.no_grad(),
        torch.random.fork_rng(devices=()),
        torch.compiler.set_stance("force_eager"),
        tracer,
    ):
        try:
            model(*given)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{type(model).__name__} cannot be run on example_input "
                f"({type(error).__name__}: {error}); give a "
                "tensor, or a tuple of what its forward method takes, with at least 2 examples"
            ) from error
    return tracer.trace


def _get(value: Any) -> Signal | None:
    return getattr(value, "rectifiers_signal", None) if isinstance(value, Tensor) else None


def _read(x: Tensor) -> Signal:
    """Return what a layer reads: measured where it does not come from numbers that were followed,
    as of embeddings."""
    return _get(x) or measured(x, "numbers without a layer before them (measured)")


def _set(tensor: Tensor, signal: Signal) -> None:
    tensor.rectifiers_signal = signal  # type: ignore[attr-defined]


class _Tracer(TorchFunctionMode):
    def __init__(self, model: nn.Module, on_layer: Callable[[LayerCall, Respond], None]) -> None:
        super().__init__()
        self.model, self.on_layer, self.trace = model, on_layer, Trace()
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.inside: nn.Module | None = None  # a module that is one function of single numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if self.inside is not None:
            return func(*args, **kwargs)
        if name == "multi_head_attention_forward":
            return self._attention(func, args, kwargs)
        if name in CONVOLUTIONS | TRANSPOSED | {"linear"} or (
            name in PRODUCTS and self._is_weight(args[1:2])
        ):
            return self._layer(func, name, args, kwargs)
        signals = [signal for x in tensors(args, kwargs) if (signal := _get(x)) is not None]
        new = self._function(
            func, name, args, kwargs, signals
        )  # before an in-place function changes what it is given
        out = func(*args, **kwargs)
        self._note_change_in_place(name, args, out)
        if signals:
            for part in out if isinstance(out, tuple | list) else (out,):
                if isinstance(part, Tensor) and part.is_floating_point():
                    self._keep(part, name, signals, new)
        if new is None and name not in VIEWS and isinstance(out, Tensor):
            for x in tensors(args, kwargs):
                if id(x) in self.names:
                    said = f"{name} reads it, whose responses are measured"
                    self.trace.unexplained.setdefault(self.names[id(x)], said)
        if name == "embedding":
            _set(out, measured(out, "embedding (measured)"))
        return out

    def _note_change_in_place(self, name: str, args: Any, out: Any) -> None:
        """Measure a tensor of which a part was written to: what was known of its numbers holds no
        more."""
        changed = args[0] if name == "__setitem__" else None
        if isinstance(out, Tensor) and args and out is args[0] and name not in VIEWS:
            changed = base(out)
        if isinstance(changed, Tensor) and (signal := _get(changed)):
            known = {"origins": signal.origins, **lengths([signal])}
            _set(changed, measured(changed, "a map written to in part (measured)", **known))

    def _keep(self, out: Tensor, name: str, signals: Sequence[Signal], new: Signal | None) -> None:
        """Let the result of a function carry its signal."""
        first = signals[0]
        if new is None and name in VIEWS and len(signals) == 1:
            new = first
        elif new is None and name in PARTS:
            new = replace(first, root=new_root())
        elif new is None:
            new = self._measured(out, name, signals)
        _set(out, new)

    def _measured(self, out: Tensor, name: str, signals: Sequence[Signal]) -> Signal:
        first = signals[0]
        if name in NORMS and not first.functions:  # its size is another then, not its shape
            what: dict[str, Any] = {"origins": first.origins, "is_normal": first.is_normal}
            return measured(out, f"{name} (measured)", **what, **lengths(signals))
        if self._is_independent_sum(name, signals):
            return measured(out, "a sum (measured)", **self._residual(*signals))
        for signal in signals:
            self._consume(signal)
        return measured(out, f"{name} (measured)", **lengths(signals))

    def _consume(self, signal: Signal) -> None:
        """Note what the responses are read by, for the backward conditions."""
        for layer in signal.origins:
            self.trace.feeds.setdefault(layer, []).append(
                (signal.functions, signal.derivative_second)
            )

    def _function(
        self, func: Any, name: str, args: Any, kwargs: Any, signals: Sequence[Signal]
    ) -> Signal | None:
        """Return the signal of a result that follows from theory, or None."""
        if not signals or name in VIEWS | PARTS | NORMS:
            return None
        given = [x for x in tensors(args, kwargs) if x.numel() > 1]
        slopes = args[1] if name == "prelu" and len(args) > 1 else None
        others = [x for x in given if x is not slopes]
        if len(signals) != len(others):  # a scale per channel, or a constant
            return None
        if name in CONCATENATIONS:
            return self._concatenation(others, signals)
        if len({signal.root for signal in signals}) == 1:
            return self._elementwise(
                func, name, args, kwargs, signals, 1 if slopes is None else slopes.numel()
            )
        if self._is_independent_sum(name, signals):
            factor = kwargs.get("alpha", 1) * (-1 if name in DIFFERENCES else 1)
            return self._sum(signals[0], signals[1], factor)
        if name in MULTIPLICATIONS and len(signals) == 2:
            for signal in signals:
                self._consume(signal)
            one, other = signals
            return normal(
                one.mean * other.mean, one.second * other.second, "a product", **lengths(signals)
            )
        return None

    def _elementwise(
        self, func: Any, name: str, args: Any, kwargs: Any, signals: Sequence[Signal], channels: int
    ) -> Signal | None:
        """Return the signal after a function of single numbers, or None where it is no such
        function."""
        places = [i for i, x in enumerate(args) if _get(x) is not None]
        if len(places) != len(signals):
            return None

        def of(*inputs: Tensor) -> Any:
            given = [
                x.to(inputs[0]) if isinstance(x, Tensor) and x.is_floating_point() else x
                for x in args
            ]
            for i, x in zip(places, inputs, strict=True):
                given[i] = x
            return func(*given, **kwargs)

        label = name.strip("_")
        if not acts_on_single_numbers(of, [args[i] for i in places]):
            return None
        return after_function(label, of, signals, channels)

    def _concatenation(self, tensors: Sequence[Tensor], signals: Sequence[Signal]) -> Signal:
        shares = [x.numel() / sum(x.numel() for x in tensors) for x in tensors]
        mean = sum(share * signal.mean for share, signal in zip(shares, signals, strict=True))
        second = sum(share * signal.second for share, signal in zip(shares, signals, strict=True))
        source = f"{len(signals)} concatenated maps"
        return normal(mean, second, source, origins=self._carried(signals), **lengths(signals))

    def _carried(self, signals: Sequence[Signal]) -> tuple[str, ...]:
        """Return the layers whose responses go on unchanged; the others end here, in a function
        that was applied."""
        for signal in signals:
            if signal.functions:
                self._consume(signal)
        return tuple(
            layer for signal in signals if not signal.functions for layer in signal.origins
        )

    def _is_independent_sum(self, name: str, signals: Sequence[Signal]) -> bool:
        """Whether two numbers are added or subtracted of which no layer makes a part of both."""
        if name not in SUMS | DIFFERENCES or len(signals) != 2:
            return False
        return not set(signals[0].origins) & set(signals[1].origins)

    def _sum(self, one: Signal, other: Signal, factor: float) -> Signal | None:
        """one + factor * other, independent; None where it is not normal, because a part of it
        passed an activation.

        What is read behind a chain of such sums depends on their distribution, which is then
        measured: the positive numbers that an activation leaves are not halved by the next one, as
        normal numbers would be."""
        if not all(signal.is_normal and not signal.functions for signal in (one, other)):
            return None
        mean = one.mean + factor * other.mean
        second = one.second + factor**2 * other.second + 2 * factor * one.mean * other.mean
        return normal(mean, second, "a sum", **self._residual(one, other))

    def _residual(self, one: Signal, other: Signal) -> dict[str, Any]:
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
            self.trace.residual.append(within if branch.ends else ())
            self.trace.branches.update(dict.fromkeys(branch.ends, len(branch.ends)))
        longest = lengths([one, other])
        longest["sums"] += one.layers != other.layers
        self.trace.sums = max(self.trace.sums, longest["sums"])
        return {"origins": self._carried([one, other]), "ends": ends, **longest}

    def _is_weight(self, given: Sequence[Any]) -> bool:
        return all(id(x) in self.names and x.dim() > 1 for x in given) and bool(given)

    def _layer(self, func: Any, name: str, args: Any, kwargs: Any) -> Tensor:
        x, weight, bias = bound(name, args, kwargs)
        signal, key = _read(x), self.names.get(id(weight))
        out: Tensor
        if key is None:
            out = func(*args, **kwargs)
            _set(out, measured(out, f"{name} (measured)", **lengths_after([signal])))
            return out
        self._consume(signal)
        call = LayerCall(key, weight, bias, *fans(name, weight, args, kwargs), signal)
        self._meet(call, lambda: func(*args, **kwargs))
        out = func(*args, **kwargs)
        self._respond(out, call)
        return out

    def _respond(self, out: Tensor, call: LayerCall) -> None:
        """Let the responses of a layer carry their signal, which follows from its weights as they
        are."""
        second = call.fan_in * float(call.weight.double().square().mean()) * call.signal.second
        if call.bias is not None:
            second += float(call.bias.double().square().mean())
        self.trace.responses.setdefault(
            call.name, (second, float(out.detach().double().square().mean()))
        )
        longest = lengths_after([call.signal], call.name)
        _set(
            out, normal(0.0, second, call.name, origins=(call.name,), ends=(call.name,), **longest)
        )

    def _meet(self, call: LayerCall, respond: Respond) -> None:
        self.trace.uses[call.name] += 1
        if call.name not in self.trace.calls:
            self.trace.calls[call.name] = call
            self.on_layer(call, respond)

    def _attention(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`nn.MultiheadAttention`: three layers side by side, attention, which is measured, and a
        layer."""
        # (query, key, value, size, heads, weight and bias of the three, ..., weight and bias of the
        # last layer, ...)
        inputs, in_bias, last, bias = args[5], args[6], args[11], args[12]
        signals = [_read(x) for x in args[:3]]
        if inputs is None or id(inputs) not in self.names or id(last) not in self.names:
            out = func(*args, **kwargs)
            _set(out[0], measured(out[0], "attention (measured)"))
            return out
        biases = (None,) * 3 if in_bias is None else in_bias.chunk(3)
        parts = zip("qkv", args[:3], inputs.chunk(3), biases, signals, strict=True)
        for part, x, weight, its_bias, signal in parts:
            self._consume(signal)
            name = f"{self.names[id(inputs)]}[{part}]"
            call = LayerCall(name, weight, its_bias, weight.shape[1], weight.shape[0], signal)
            self._meet(call, partial(F.linear, x, weight, its_bias))
        plain = list(args)
        plain[11], plain[12] = torch.eye(len(last), dtype=last.dtype, device=last.device), None
        longest = lengths_after(signals, *(f"{self.names[id(inputs)]}[{part}]" for part in "qkv"))
        mixed = measured(func(*plain, **kwargs)[0], "attention (measured)", **longest)
        call = LayerCall(self.names[id(last)], last, bias, last.shape[1], last.shape[0], mixed)
        self._meet(call, lambda: func(*args, **kwargs)[0])
        out = func(*args, **kwargs)
        self._respond(out[0], call)
        return out

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """See modules that are one function of single numbers, as activations are, as such."""
        found: dict[nn.Module, Signal] = {}

        def before(module: nn.Module, args: tuple[Any, ...]) -> None:
            signal = _get(args[0]) if len(args) == 1 else None
            if self.inside is None and signal is not None:
                self.inside = module  # what is tried here is no part of the run
                new = after_module(module, args[0], signal)
                self.inside = module if new else None
                if new:
                    found[module] = new

        def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            if self.inside is module:
                self.inside = None
                _set(out, found.pop(module))

        with ExitStack() as registered:
            for module in self.model.modules():
                if not any(p.dim() > 1 for p in module.parameters()) and not hasattr(
                    module, "running_mean"
                ):
                    # next to `forward`, so that what other hooks make of its numbers is part of the
                    # run
                    registered.callback(module.register_forward_pre_hook(before).remove)
                    registered.callback(module.register_forward_hook(after, prepend=True).remove)
            yield
