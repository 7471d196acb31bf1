"""PReLU on the CPU: a C library, called through ctypes, which releases the GIL.

torch's own forward pass is as fast as ReLU's for contiguous maps in float32, and for nothing else.
With channels last its inner loop is over the channels, which are too few to fill a vector: in
bfloat16 the forward pass alone takes four times as long as ReLU's."""

import ctypes
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rectifiers.runtime.compiling import PRELU

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}  # of the inputs, with their names in C
NUMBERS_PER_THREAD = 2**17  # at least: starting a thread takes as long as some thousands of them
NUMBERS_PER_PART = 2**15  # at most, of several images that share a sum


@cache
def _library() -> ctypes.CDLL | str:
    """Return the library, or the reason why it cannot be used."""
    return PRELU.open(_declare)


def _declare(library: ctypes.CDLL) -> None:
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    for name in DTYPES.values():
        for layout in ("maps", "last"):
            forward = getattr(library, f"rectifiers_prelu_forward_{layout}_{name}")
            backward = getattr(library, f"rectifiers_prelu_backward_{layout}_{name}")
            forward.argtypes = [pointer] * 3 + [count] * 3
            backward.argtypes = [pointer] * 5 + [count] * 4
            forward.restype = backward.restype = None
    library.rectifiers_prelu_slopes.argtypes = [pointer] * 3 + [count] * 3
    library.rectifiers_prelu_slopes.restype = None


def unavailable_reason() -> str | None:
    """Return None where the library can be used, else the reason why not."""
    library = _library()
    return library if isinstance(library, str) else None


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="prelu")


# a forked child has none of its parent's threads
os.register_at_fork(after_in_child=_threads.cache_clear)


def memory_format(v: Tensor) -> torch.memory_format:
    """Return the memory format of [N, channels, ...] in which the kernels work."""
    has_channels_last = (
        v.dim() == 4
        and not v.is_contiguous()
        and v.is_contiguous(memory_format=torch.channels_last)
    )
    return torch.channels_last if has_channels_last else torch.contiguous_format


def _layout(v: Tensor, slopes: Tensor) -> tuple[str, int, int]:
    """Return the layout of [N, channels, ...] in memory, its channels, and the numbers of each
    channel of an image.

    "maps": an image's numbers of one channel lie together; "last": those of one position do. A
    slope that all channels share is that of one channel, of which both layouts are the same."""
    images = v.shape[0]
    channels = v.shape[1] if len(slopes) > 1 else 1
    inner = v.numel() // max(1, images * channels)
    is_last = channels == 1 or inner == 1 or not v.is_contiguous()
    return "last" if is_last else "maps", channels, inner


def _in_parts(work: Callable[[int, int], None], v: Tensor, images_per_part: int) -> None:
    """Call `work(first, end)` for ranges of images, by as many threads as torch has; each range
    begins with a part, so that no two threads share a part's sums."""
    images = v.shape[0]
    parts = math.ceil(images / images_per_part)
    count = min(torch.get_num_threads(), parts, max(1, v.numel() // NUMBERS_PER_THREAD))
    if count < 2:
        work(0, images)
        return
    bounds = [min(images, parts * i // count * images_per_part) for i in range(count + 1)]
    list(_threads(count).map(work, bounds, bounds[1:]))  # a list, so that errors are raised here


def forward(x: Tensor, slopes: Tensor) -> Tensor:
    """Return PReLU of `x` [N, channels, ...] for slopes [channels] or [1], bit for bit as torch's.

    Slopes are rounded to the type of `x`, and memory is laid out like that of `x`."""
    slopes = slopes.to(x.dtype)
    if not x.is_contiguous(memory_format=memory_format(x)):
        return torch.prelu(x, slopes)

    slopes = slopes.float().contiguous()
    y = torch.empty_like(x)
    layout, channels, inner = _layout(x, slopes)
    function: Any = getattr(_library(), f"rectifiers_prelu_forward_{layout}_{DTYPES[x.dtype]}")
    source, target, a = x.data_ptr(), y.data_ptr(), slopes.data_ptr()
    image_bytes = channels * inner * x.element_size()

    def work(first: int, end: int) -> None:
        at = first * image_bytes
        function(source + at, a, target + at, end - first, channels, inner)

    _in_parts(work, x, 1)
    return y


def backward(
    v: Tensor, grad: Tensor, slopes: Tensor, from_output: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the gradients of PReLU's input, like `v`, and of its slopes, float32.

    v: [N, channels, ...], the input, or the output where `from_output`, with all slopes positive;
    grad: the gradient of the output; slopes: float32 [channels] or [1]. The number of threads
    (torch's) changes no bit: each part, some images, has sums of its own."""
    order = memory_format(v)
    v, grad = v.contiguous(memory_format=order), grad.contiguous(memory_format=order)
    slopes = slopes.contiguous()
    grad_input, grad_slopes = torch.empty_like(v), torch.empty_like(slopes)
    if not v.numel():
        return grad_input, grad_slopes.zero_()

    layout, channels, inner = _layout(v, slopes)
    images_per_part = max(1, NUMBERS_PER_PART // (channels * inner))
    parts = math.ceil(v.shape[0] / images_per_part)
    sums = torch.empty(parts, channels, dtype=torch.float32)

    library: Any = _library()
    function = getattr(library, f"rectifiers_prelu_backward_{layout}_{DTYPES[v.dtype]}")
    pointers = [tensor.data_ptr() for tensor in (v, grad, grad_input)]
    a, totals = slopes.data_ptr(), sums.data_ptr()
    image_bytes = channels * inner * v.element_size()

    def work(first: int, end: int) -> None:
        source, error, target = (pointer + first * image_bytes for pointer in pointers)
        part_sums = totals + first // images_per_part * channels * sums.element_size()
        sizes = (end - first, channels, inner, images_per_part)
        function(source, error, a, target, part_sums, *sizes)

    _in_parts(work, v, images_per_part)
    library.rectifiers_prelu_slopes(totals, a, grad_slopes.data_ptr(), parts, channels, from_output)
    return grad_input, grad_slopes
