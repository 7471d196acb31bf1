"""PReLU's backward pass on the CPU: a C library, called through ctypes, which releases the GIL."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rectifiers.runtime.compiling import KERNELS

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}  # of the inputs, with their names in C
NUMBERS_PER_THREAD = 2**17  # at least: starting a thread takes as long as some thousands of them


@cache
def _library() -> ctypes.CDLL | str:
    """Return the library, or the reason why it cannot be used."""
    return KERNELS.open(_declare)


def _declare(library: ctypes.CDLL) -> None:
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    for name in DTYPES.values():
        for layout in ("maps", "last"):
            function = getattr(library, f"rectifiers_prelu_{layout}_{name}")
            function.argtypes, function.restype = (
                [pointer, pointer, pointer, count, pointer, pointer, *[count] * 3],
                None,
            )


def unavailable_reason() -> str | None:
    """Return None where the library can be used, else the reason why not."""
    library = _library()
    return library if isinstance(library, str) else None


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="prelu")


os.register_at_fork(
    after_in_child=_threads.cache_clear
)  # a forked child has none of its parent's threads


def memory_format(v: Tensor) -> torch.memory_format:
    """Return the memory format of [N, channels, ...] in which the kernels work."""
    last = (
        v.dim() == 4
        and not v.is_contiguous()
        and v.is_contiguous(memory_format=torch.channels_last)
    )
    return torch.channels_last if last else torch.contiguous_format


def backward(v: Tensor, grad: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of PReLU's input, like `v`, and sums [N, channels], float32, of grad * v
    over v <= 0.

    v: [N, channels, ...], the input, or the output where all slopes are positive; grad: the
    gradient of the output;
    slopes: float32 [channels] or [1]. The number of threads (torch's) changes no bit: each image
    has sums of its own."""
    order = memory_format(v)
    v, grad, slopes = (
        v.contiguous(memory_format=order),
        grad.contiguous(memory_format=order),
        slopes.contiguous(),
    )
    images, channels = v.shape[:2]
    inner = v.numel() // max(1, images * channels)
    grad_input, sums = torch.empty_like(v), torch.empty(images, channels, dtype=torch.float32)
    layout = "last" if order is torch.channels_last or inner == 1 else "maps"
    function: Any = getattr(_library(), f"rectifiers_prelu_{layout}_{DTYPES[v.dtype]}")
    stride = int(slopes.numel() > 1)

    def work(first: int, end: int) -> None:
        at, size = first * channels * inner, v.element_size()
        function(
            v.data_ptr() + at * size,
            grad.data_ptr() + at * size,
            slopes.data_ptr(),
            stride,
            grad_input.data_ptr() + at * size,
            sums.data_ptr() + first * channels * 4,
            end - first,
            channels,
            inner,
        )

    count = min(torch.get_num_threads(), images, max(1, v.numel() // NUMBERS_PER_THREAD))
    if count < 2:
        work(0, images)
    else:
        ends = [images * i // count for i in range(count + 1)]
        list(_threads(count).map(work, ends, ends[1:]))
    return grad_input, sums
