"""PReLU at about the cost of ReLU on a CPU: torch's layer over an operation of our own,
`torch.ops.rectifiers.prelu`, with a one-pass gradient. On any other device the layer is torch's.

torch's own backward pass writes a full-size gradient of the slopes and sums it afterwards, which
takes several times as long as ReLU's. Here one pass makes both gradients, and it needs the output,
which the next layer keeps anyway: where a slope a is positive, x = y / a. The input is kept
instead, as torch does, where that need not hold: with a slope that is not positive or so small that
y loses digits, with one above 1, by which y may overflow, and in float16, whose range is small.
What is left is an underflow of y, which changes the gradient of the slope by 2**-140 times that of
y at most.

Being an operation, it is one node to what looks at a training step: `torch.compile`, fake tensors,
autocast. Only `torch.func`'s transforms see the formula, whose pieces have every rule that they ask
for. In the graph of a compiled training step, `prelu_backward` stands for the gradients. What is
exported (TorchScript, `torch.export`, ONNX, `torch.fx`) holds torch's own PReLU instead, so that it
loads where this library is not installed. Where nothing but autograd looks, the layer calls the
kernels without the operation, whose dispatch takes as long as some thousands of numbers.
"""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.prelu import cpu
from rectifiers.runtime.torch_internals import (
    functorch_is_active,
    has_memory,
    is_exporting,
    is_followed,
)

MIN_NUMBERS = 2**14  # below, calling the kernel takes longer than torch's whole operation
MIN_SLOPE, MAX_SLOPE = 2.0**-10, 1.0  # the slopes for which the input is recomputed from the output
PLAIN = (Tensor, nn.Parameter)  # no set, which the compiler of torch 2.8 cannot follow

LIBRARY = torch.library.Library("rectifiers", "DEF")
LIBRARY.define("prelu(Tensor x, Tensor slopes) -> Tensor")
LIBRARY.define(
    "prelu_backward(Tensor v, Tensor grad, Tensor slopes, bool from_output) -> (Tensor, Tensor)"
)
LIBRARY.define("prelu_forward(Tensor x, Tensor slopes) -> Tensor")
prelu: Any = torch.ops.rectifiers.prelu.default
prelu_forward: Any = torch.ops.rectifiers.prelu_forward.default
prelu_backward: Any = torch.ops.rectifiers.prelu_backward.default


def has_kernel(dtype: torch.dtype) -> bool:
    """Return whether there is a kernel for inputs of this type."""
    return cpu.unavailable_reason() is None and dtype in cpu.DTYPES


def is_plain(*tensors: Any) -> bool:
    """Return whether all are torch's own tensors: none is fake, a subclass or no tensor."""
    for tensor in tensors:  # noqa: SIM110 - all() takes twice as long, before each call
        if type(tensor) not in PLAIN:
            return False
    return True


def is_invertible(low: float, high: float) -> bool:
    """Return whether inputs can be recomputed from outputs for slopes from `low` to `high`."""
    return low >= MIN_SLOPE and high <= MAX_SLOPE


class _PReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slopes: Tensor) -> Tensor:
        # other types have no numbers: those of torch.compile, of export, fake tensors
        has_numbers = is_plain(x, slopes) and x.device.type == "cpu"
        ctx.is_direct = has_numbers and _is_direct(x, slopes)
        if not has_numbers:
            y = _forward(x, slopes)
        else:
            y = (_forward_on_cpu if ctx.is_direct else prelu_forward)(x, slopes)

        is_inverted = False
        if has_numbers:
            low, high = slopes.aminmax()
            is_inverted = is_invertible(low.item(), high.item())
        ctx.from_output = is_inverted and x.dtype != torch.float16
        ctx.has_tangents = False
        ctx.save_for_backward(y if ctx.from_output else x, slopes)
        ctx.save_for_forward(x, slopes)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        v, slopes = ctx.saved_tensors
        is_differentiated = torch.is_grad_enabled() or ctx.has_tangents  # the gradients themselves
        by_kernel = not is_differentiated and v.device.type == "cpu" and has_kernel(v.dtype)
        if not by_kernel:
            return _backward_formula(v, grad, slopes, ctx.from_output)
        is_direct = ctx.is_direct and _is_direct(grad)
        gradients = _backward if is_direct else prelu_backward
        return gradients(v, grad, slopes, ctx.from_output)

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, dslopes: Tensor) -> Tensor:
        x, slopes = ctx.saved_tensors
        ctx.has_tangents = True
        return torch.where(x > 0, dx, _per_channel(slopes, x) * dx + _per_channel(dslopes, x) * x)


def _is_direct(*tensors: Tensor) -> bool:
    """Return whether nothing but autograd follows what is computed of these tensors, and their
    numbers can be read, so that the operation is not missed, whose call takes time."""
    return is_plain(*tensors) and not is_followed() and all(map(has_memory, tensors))


def _per_channel(slopes: Tensor, x: Tensor) -> Tensor:
    """Return slopes [channels] or [1] in the shape that broadcasts to `x` [N, channels, ...]."""
    return slopes.view(1, -1, *[1] * (x.dim() - 2)).to(x.dtype)


def _forward(x: Tensor, slopes: Tensor) -> Tensor:
    return torch.prelu(x, slopes.to(x.dtype))


def _forward_on_cpu(x: Tensor, slopes: Tensor) -> Tensor:
    by_kernel = x.dim() > 1 and has_kernel(x.dtype)
    return cpu.forward(x, slopes) if by_kernel else _forward(x, slopes)


def _forward_formula(x: Tensor, slopes: Tensor) -> Tensor:
    x = _autocast(x)
    return torch.where(x > 0, x, _per_channel(slopes, x) * x)


def _autocast(x: Tensor) -> Tensor:
    """Return `x` as torch's own PReLU takes it under autocast: every float but double precision in
    the lower one."""
    is_low = x.is_floating_point() and x.dtype != torch.float64
    is_cast = is_low and torch.is_autocast_enabled("cpu")
    return x.to(torch.get_autocast_dtype("cpu")) if is_cast else x


def _under_autocast(x: Tensor, slopes: Tensor) -> Tensor:
    return _PReLU.apply(_autocast(x), slopes)


def _backward(v: Tensor, grad: Tensor, slopes: Tensor, from_output: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients of the input, like `v`, and of the slopes.

    v: [N, channels, ...], the input, or the output where `from_output`; grad: the gradient of the
    output."""
    slopes = slopes.to(v.dtype).float()  # as rounded for the output
    return cpu.backward(v, grad, slopes, from_output)


def _backward_shapes(
    v: Tensor, grad: Tensor, slopes: Tensor, from_output: bool
) -> tuple[Tensor, Tensor]:
    grad_input = torch.empty_like(v, memory_format=cpu.memory_format(v))
    return grad_input, torch.empty_like(slopes, dtype=torch.float32)


def _backward_formula(
    v: Tensor, grad: Tensor, slopes: Tensor, from_output: bool
) -> tuple[Tensor, Tensor]:
    """Return PReLU's gradients by their formula, from operations that can be differentiated."""
    a = _per_channel(slopes, v)
    x = torch.where(v > 0, v, v / a) if from_output else v
    terms = torch.where(v > 0, torch.zeros_like(grad), grad * x).to(slopes.dtype)
    over = [dim for dim in range(v.dim()) if dim != 1 or len(slopes) == 1]
    return torch.where(v > 0, grad, a * grad), terms.sum(over).view_as(slopes)


# What each key of torch's dispatcher calls; a transform of `torch.func` comes first, autocast next,
# then autograd.
for key, function in {
    "FuncTorchDynamicLayerFrontMode": _forward_formula,
    "AutocastCPU": _under_autocast,
    "Autograd": _PReLU.apply,
    "CPU": _forward_on_cpu,
    "CompositeExplicitAutograd": _forward,  # also of tensors without numbers
}.items():
    LIBRARY.impl("prelu", function, key)
LIBRARY.impl("prelu_forward", _forward_on_cpu, "CPU")
LIBRARY.impl("prelu_forward", _forward, "CompositeExplicitAutograd")
for key, gradients in {
    "FuncTorchDynamicLayerFrontMode": _backward_formula,
    "CPU": _backward,
    "Meta": _backward_shapes,
}.items():
    LIBRARY.impl("prelu_backward", gradients, key)


class PReLU(nn.PReLU):
    """`torch.nn.PReLU` with a backward pass that reads memory once, on a CPU (section 2.1, Eq. 1 to
    3).

    The arguments are those of `torch.nn.PReLU`. Shape: input and output [N, channels, ...].

    The outputs equal torch's bit by bit, and the gradients up to rounding. torch's own operation is
    used on a GPU, if no gradient is needed, in double precision, for fewer than 16,384 numbers, and
    if there is no C compiler. The output must not be changed in place, as after `nn.ReLU`; torch's
    own PReLU allows that.

    Examples:
        >>> layer = PReLU(16)  # one slope per channel
        >>> layer(torch.full((1, 16, 8, 8), -1.0)).mean().item()
        -0.25
    """

    def forward(self, input: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            y = torch.prelu(input, self.weight)
        else:  # TorchScript does not compile this branch
            y = _call(input, self.weight)
        return y


class SquaredPReLU(PReLU):
    """PReLU(y)^2, as squared ReLU with learned slopes a: y^2 for y > 0, a^2 y^2 for y <= 0.

    Arguments, shapes and gradients are those of `PReLU`. On a CPU, `square` and PReLU keep the same
    map for the backward pass.

    Examples:
        >>> SquaredPReLU(1, init=0.5)(torch.tensor([[2.0, -2.0]])).tolist()
        [[4.0, 1.0]]
    """

    def forward(self, input: Tensor) -> Tensor:
        if torch.jit.is_scripting():  # which knows no super()
            y = torch.prelu(input, self.weight)
        else:
            y = _call(input, self.weight)
        return y.square()


def _call(x: Tensor, slopes: Tensor) -> Tensor:
    is_seen = not is_plain(x, slopes) or is_followed()
    if is_seen:
        is_graph = torch.jit.is_tracing() or is_exporting()
        is_proxy = not isinstance(x, Tensor)  # by which `torch.fx` writes the operations down
        if is_graph or is_proxy:
            return torch.prelu(x, slopes)
    if torch.is_grad_enabled() and _is_supported(x, slopes, is_seen):
        return prelu(x, slopes) if is_seen else _under_autocast(x, slopes)
    # replicas of nn.DataParallel share the method, and with it the slopes, of the swapped layer
    return torch.prelu(x, slopes.to(x.device))


def _is_supported(x: Tensor, slopes: Tensor, is_seen: bool) -> bool:
    is_compiling = is_seen and torch.compiler.is_compiling()
    # not all transforms of torch.func have a rule for torch's operation
    is_ours = is_compiling or (is_seen and functorch_is_active())
    return (
        x.device.type == "cpu"
        # a compiler would follow the search for a kernel; without one its graph has the formula
        and (is_compiling or has_kernel(x.dtype))
        and x.dim() > 1
        and (is_ours or x.numel() >= MIN_NUMBERS)
        and slopes.dtype == torch.float32
        and (x.dtype == torch.float32 or torch.is_autocast_enabled("cpu"))
        and slopes.shape[0] in (1, x.shape[1])
    )


def swap_prelu(model: nn.Module, *, relu: bool = False) -> nn.Module:
    """Let every `nn.PReLU` of `model` compute as `PReLU` does, in place, and return the model.

    Only the layers' `forward` is another. Their class is `nn.PReLU` afterwards, also that of a
    `PReLU`, and slopes and hooks stay, so optimisers and checkpoints stay valid, and the model is
    exported and quantised as before. A layer that was pickled has torch's `forward` again. No layer
    may change the output of an activation in place, which torch's own PReLU allows.

    relu: whether to make every `nn.ReLU`, too, a PReLU, with one slope of 0.25. An optimiser that
        was made before does not know these slopes. Make it afterwards, or give it the new
        parameters by `optimizer.add_param_group`, before a scheduler is made.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 8), nn.ReLU())
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> swap_prelu(model, relu=True)[3]
        PReLU(num_parameters=1)
        >>> optimizer.add_param_group({"params": model[3].parameters(), "weight_decay": 0.0})
    """
    for module in list(model.modules()):
        if relu and type(module) is nn.ReLU:
            new = nn.PReLU().train(module.training)
            if other := [p for p in model.parameters() if p.is_floating_point()]:
                new = new.to(other[0])
            module.__class__ = nn.PReLU  # type: ignore[assignment]
            # in place: the hooks stay, and a module that stands in two places stays one
            vars(module).update({k: v for k, v in vars(new).items() if "hook" not in k})
        if type(module) in (nn.PReLU, PReLU):
            module.__class__ = nn.PReLU  # torch.fx and its quantisation know no subclass
            module.forward = MethodType(PReLU.forward, module)
    return model
