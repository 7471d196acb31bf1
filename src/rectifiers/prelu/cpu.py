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
NUMBERS_PER_MAP = 32  # at least: a map's own loop ends with a sum over the lanes of a vector


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


@cache
def _kernels(layout: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return the library's forward and backward functions for a layout and a type."""
    library, name = _library(), f"{layout}_{DTYPES[dtype]}"
    forward: Any = getattr(library, f"rectifiers_prelu_forward_{name}")
    backward: Any = getattr(library, f"rectifiers_prelu_backward_{name}")
    return forward, backward


def _arrange(v: Tensor, slopes: Tensor) -> tuple[str, Tensor, int]:
    """Return the layout of [N, channels, ...] in memory, the slopes of its channels there, and the
    numbers of each channel of an image.

    "maps": an image's numbers of one channel lie together; "last": those of one position do. A
    slope that all channels share is that of one channel, of which both layouts are the same. Where
    maps have few numbers, each position is a channel of its own, of which there is one number."""
    channels = slopes.shape[0]
    inner = v.numel() // max(1, v.shape[0] * channels)
    if channels == 1 or inner == 1 or not v.is_contiguous():
        return "last", slopes, inner
    if 0 < inner < NUMBERS_PER_MAP:
        return "last", slopes.repeat_interleave(inner), 1
    return "maps", slopes, inner


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

    y = torch.empty_like(x)
    layout, slopes, inner = _arrange(x, slopes.float().contiguous())
    function, channels = _kernels(layout, x.dtype)[0], slopes.shape[0]
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
    count = slopes.shape[0]
    layout, slopes, inner = _arrange(v, slopes.contiguous())
    channels = slopes.shape[0]
    grad_input, grad_slopes = torch.empty_like(v), torch.empty_like(slopes)
    if not v.numel():
        return grad_input, grad_slopes.zero_()

    images_per_part = max(1, NUMBERS_PER_PART // (channels * inner))
    parts = math.ceil(v.shape[0] / images_per_part)
    sums = torch.empty(parts, channels)

    function = _kernels(layout, v.dtype)[1]
    source, error, target = v.data_ptr(), grad.data_ptr(), grad_input.data_ptr()
    a, totals = slopes.data_ptr(), sums.data_ptr()
    image_bytes = channels * inner * v.element_size()

    def work(first: int, end: int) -> None:
        at = first * image_bytes
        part_sums = totals + first // images_per_part * channels * sums.element_size()
        sizes = (end - first, channels, inner, images_per_part)
        function(source + at, error + at, a, target + at, part_sums, *sizes)

    _in_parts(work, v, images_per_part)
    library: Any = _library()
    library.rectifiers_prelu_slopes(totals, a, grad_slopes.data_ptr(), parts, channels, from_output)
    if channels > count:
        grad_slopes = grad_slopes.view(count, -1).sum(1)
    return grad_input, grad_slopes
