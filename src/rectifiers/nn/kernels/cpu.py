"""The C library's side of PReLU, through ctypes, which lets other threads run while it works."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rectifiers.runtime.compiling import KERNELS, UnusableLibraryError

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
WORTH_A_THREAD = 2**17  # numbers: handing work over takes as long as some thousands


@cache
def _library() -> ctypes.CDLL | str:
    """Return the library, or why there is none."""
    try:
        library = KERNELS.load()
        place, count = ctypes.c_void_p, ctypes.c_int64
        for name in NAMES.values():
            for layout in ("maps", "last"):
                function = getattr(library, f"rectifiers_prelu_{layout}_{name}")
                function.argtypes, function.restype = [place, place, place, count, place, place, *[count] * 3], None
    except (OSError, AttributeError, UnusableLibraryError) as why:
        return str(why)
    return library


def fault() -> str | None:
    """Return None where the library is there, else why it is not."""
    library = _library()
    return library if isinstance(library, str) else None


def usable(x: Tensor) -> bool:
    """Whether `backward` can be asked for gradients of an input of this kind."""
    return x.dtype in NAMES


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="prelu")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads


def memory_format(v: Tensor) -> torch.memory_format:
    """Return in which order the numbers of [N, channels, ...] lie, or are to be brought."""
    last = v.dim() == 4 and not v.is_contiguous() and v.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def backward(v: Tensor, grad: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of PReLU's input, like `v`, and sums [N, channels], float32, of grad v over v <= 0.

    v: [N, channels, ...], the input, or the output where all slopes are positive; grad: that of the output; slopes:
    float32 [channels] or [1]. The number of threads (torch's) changes no bit: images are summed apart.
    """
    form = memory_format(v)
    v, grad, slopes = v.contiguous(memory_format=form), grad.contiguous(memory_format=form), slopes.contiguous()
    images, channels = v.shape[:2]
    inner = v.numel() // max(1, images * channels)
    found, sums = torch.empty_like(v), torch.empty(images, channels, dtype=torch.float32)
    layout = "last" if form is torch.channels_last or inner == 1 else "maps"
    function: Any = getattr(_library(), f"rectifiers_prelu_{layout}_{NAMES[v.dtype]}")
    stride = int(slopes.numel() > 1)

    def work(first: int, end: int) -> None:
        at, size = first * channels * inner, v.element_size()
        function(
            v.data_ptr() + at * size, grad.data_ptr() + at * size, slopes.data_ptr(), stride,
            found.data_ptr() + at * size, sums.data_ptr() + first * channels * 4, end - first, channels, inner,
        )  # fmt: skip

    count = min(torch.get_num_threads(), images, max(1, v.numel() // WORTH_A_THREAD))
    if count < 2:
        work(0, images)
    else:
        ends = [images * i // count for i in range(count + 1)]
        list(_threads(count).map(work, ends, ends[1:]))
    return found, sums
