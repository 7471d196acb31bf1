"""What a processor or GPU can do at most: the largest rate among what has nothing to do but
multiply and add."""

import ctypes
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import torch
from harness import DEVICE, Seconds, Way, medians, waiting
from torch import nn

from rectifiers.runtime.compiling import Library

SIDE = 8192 if DEVICE == "cuda" else 2048  # of the product
ROUNDS = 5_000_000  # of the loop, some hundredths of a second
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@cache
def _loop() -> ctypes.CDLL:
    def declare(library: ctypes.CDLL) -> None:
        library.rectifiers_fma.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_float)]
        library.rectifiers_fma.restype = ctypes.c_double

    library = Library(Path(__file__).parent, (), "")
    opened = library.compile() or library.open(declare)
    return (
        opened
        if isinstance(opened, ctypes.CDLL)
        else sys.exit(f"error: fma.c was not built ({opened})")
    )


def _multiply_and_add(_: int) -> float:
    """Return the number of operations."""
    return _loop().rectifiers_fma(ROUNDS, (ctypes.c_float * 2)(0.5, 1.0))


def _loops(threads: ThreadPoolExecutor, count: int) -> None:
    list(threads.map(_multiply_and_add, range(count)))


def attempts(precision: str, threads: int = 1) -> dict[str, tuple[Way, float]]:
    """Return what may be fastest in "float32" or "bfloat16", each with its number of operations."""
    dtype = DTYPES[precision]
    a, b = (torch.randn(SIDE, SIDE, device=DEVICE, dtype=dtype) for _ in range(2))
    found = {"a product of matrices": (waiting(partial(torch.mm, a, b)), 2.0 * SIDE**3)}
    if DEVICE == "cuda":
        return found
    for channels, side in ((128, 56), (256, 28)):
        layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False, dtype=dtype).requires_grad_(
            False
        )
        x = torch.randn(8, channels, side, side, dtype=dtype)
        count = 2.0 * 8 * 9 * channels**2 * side**2
        for layout in (torch.contiguous_format, torch.channels_last):
            way = partial(layer.to(memory_format=layout), x.to(memory_format=layout))
            name = "channels last" if layout is torch.channels_last else "NCHW"
            found[f"a 3x3 convolution of {channels} channels, {name}"] = (way, count)
    if precision == "float32":
        count = threads * _multiply_and_add(0)
        found["a loop of fused multiply-adds"] = (
            partial(_loops, ThreadPoolExecutor(threads), threads),
            count,
        )
    return found


def rates(seconds: Seconds, tried: Mapping[str, tuple[Way, float]]) -> dict[str, float]:
    """Return each attempt's operations per second, from the seconds of its way; the largest is the
    roof."""
    middle = medians(seconds)
    return {name: count / middle[name] for name, (_, count) in tried.items()}
