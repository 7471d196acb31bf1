"""The arguments of the functions that tensors are given to: where the weight of a layer is, and
what it multiplies."""

import math
from typing import Any

from torch import Tensor

CONVOLUTIONS = {f"conv{n}d" for n in (1, 2, 3)}
TRANSPOSED = {f"conv_transpose{n}d" for n in (1, 2, 3)}
PRODUCTS = {"matmul", "__matmul__", "mm", "bmm"}  # x @ w, whose weight is [..., inputs, outputs]


def tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors among arguments, and in lists among them."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        found += [
            x
            for x in (value if isinstance(value, tuple | list) else (value,))
            if isinstance(x, Tensor)
        ]
    return found


def bound(name: str, args: Any, kwargs: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (input, weight, bias) of a layer's function."""
    given = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **kwargs}
    return given["input"], given["weight"], None if name in PRODUCTS else given.get("bias")


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
    given = {**dict(zip(("input", "weight", "bias", "stride"), args, strict=False)), **kwargs}
    groups = args[6] if len(args) > 6 else kwargs.get("groups", 1)
    if name in CONVOLUTIONS:
        return weight.shape[1] * window, weight.shape[0] // groups * window
    stride = given.get("stride", 1)
    steps = math.prod(stride) if isinstance(stride, tuple | list) else stride ** (weight.dim() - 2)
    return max(1, round(weight.shape[0] // groups * window / steps)), weight.shape[1] * window
