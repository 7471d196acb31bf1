"""Torch's functions by name: those that make layers of weights, and those that carry numbers on."""

import math
from typing import Any

import torch
from torch import Tensor

# Names of torch's functions. The weight of x @ w is [..., inputs, outputs].
PRODUCTS = {"matmul", "__matmul__", "mm", "bmm"}
CONVOLUTIONS = {f"conv{n}d" for n in (1, 2, 3)}
TRANSPOSED = {f"conv_transpose{n}d" for n in (1, 2, 3)}
# the arguments of both
CONVOLVES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
SPREADS = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
LOOKUPS = {"embedding", "embedding_bag"}
NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_"}
DIFFERENCES = {"sub", "__sub__", "__isub__", "sub_", "subtract"}
MULTIPLICATIONS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"}
DIVISIONS = {"div", "__truediv__", "__itruediv__", "div_", "divide", "true_divide"}
CONCATENATIONS = {"cat", "concat", "concatenate", "stack"}
# what keeps every number, and what keeps some of them
VIEWS = (
    {"flatten", "unflatten", "ravel", "view", "reshape", "squeeze", "unsqueeze", "expand"}
    | {"view_as", "reshape_as", "expand_as", "type_as"}
    | {"permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "__get__"}
    | {"to", "float", "double", "half", "bfloat16", "clone", "contiguous"}
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


def reads_halves(name: str, x: Tensor, weight: Tensor) -> bool:
    """Return whether the second dimension of a layer's weight is the channels of its input, in
    order, and each place of the input is 0 in one half of them, as CReLU gives it."""
    channels = -1 if name == "linear" else 1 - weight.dim()
    is_plain = name == "linear" or name in CONVOLUTIONS
    if not is_plain or weight.shape[1] != x.shape[channels] or weight.shape[1] % 2:
        return False  # the other layers have groups, or another order of dimensions
    one, other = x.chunk(2, dim=channels)
    return not bool(((one != 0) & (other != 0)).any())


def fans(
    func: Any, name: str, x: Tensor, weight: Tensor, args: Any, kwargs: Any
) -> tuple[int, int, float]:
    """Return (fan_in, fan_out, taps): how many inputs make a response, how many responses an input
    reaches, and how many inputs a response really has on maps of this size, on average.

    As in the paper, strides and borders do not count in the fans of a convolution; a transposed one
    is a convolution backwards. Where the maps are so small that no response of a transposed
    convolution has its fan-in, as on 1 x 1 maps, the inputs that there are count."""
    if name in PRODUCTS:
        return weight.shape[-2], weight.shape[-1], weight.shape[-2]
    if name == "linear":
        return weight.shape[1], weight.shape[0], weight.shape[1]

    window = math.prod(weight.shape[2:])
    names = CONVOLVES if name in CONVOLUTIONS else SPREADS
    settings = dict(zip(names, args, strict=False)) | kwargs
    groups = settings.get("groups", 1)
    counts = _window_counts(func, settings, x, weight)
    mean, largest = float(counts.mean()), float(counts.max())
    if name in CONVOLUTIONS:
        channels = weight.shape[1]
        return channels * window, weight.shape[0] // groups * window, channels * mean

    channels = weight.shape[0] // groups
    stride = settings.get("stride", 1)
    steps = math.prod(stride) if isinstance(stride, tuple | list) else stride ** (weight.dim() - 2)
    usual = window / steps
    fan_in = max(1, round(channels * (mean if largest < usual else usual)))
    return fan_in, weight.shape[1] * window, channels * mean


def _window_counts(func: Any, settings: dict[str, Any], x: Tensor, weight: Tensor) -> Tensor:
    """Return how many places of an input map are read by a response, at every place: what ones make
    of ones."""
    sides = weight.dim() - 2
    ones = {
        "input": torch.ones(1, 1, *x.shape[x.dim() - sides :], device="cpu"),
        "weight": torch.ones(1, 1, *weight.shape[2:], device="cpu"),
    }
    counts: Tensor = func(**settings | ones | {"bias": None, "groups": 1})
    return counts
