"""Torch's functions by name: those that make layers of weights, and those that carry numbers on."""

import math
from typing import Any

from torch import Tensor

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
PARTS = {
    *("__getitem__", "chunk", "split", "tensor_split", "unbind", "narrow", "select"),
    *("roll", "flip"),
}


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
