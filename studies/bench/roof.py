"""Measure the highest rate of arithmetic of a processor or GPU, in operations per second.

`python studies/bench/roof.py [rounds]` prints a table and writes results/bench/<machine>.json. On a
CPU it measures matrix products, 3x3 convolutions in both layouts and a loop of fused multiply-adds
(fma.c), in float32 on one thread, in CPU time. If there is a GPU, it measures matrix products
there, in float32 and bfloat16, in wall-clock time."""

import ctypes
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import CLOCK, DEVICE, DTYPES, SIDE, Way, interleave, measure, medians, square_product
from torch import nn

from rectifiers.runtime.compiling import Library

ROUNDS = 5_000_000  # of the loop, some hundredths of a second
BATCH = 8
CONVOLUTIONS = ((128, 56), (256, 28))  # channels, side of the maps
LAYOUTS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}
Attempt = tuple[Way, float]  # with the number of its operations


def multiply_and_add() -> Attempt:
    """Return the loop of fma.c."""

    def declare(library: ctypes.CDLL) -> None:
        library.rectifiers_fma.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_float)]
        library.rectifiers_fma.restype = ctypes.c_double

    library = Library(Path(__file__).parent, (), "")
    opened = library.compile() or library.open(declare)
    if not isinstance(opened, ctypes.CDLL):
        sys.exit(f"error: fma.c was not built ({opened})")
    way = partial(opened.rectifiers_fma, ROUNDS, (ctypes.c_float * 2)(0.5, 1.0))
    return way, way()  # which returns the number of its operations


def attempts(precision: str) -> dict[str, Attempt]:
    """Return what may be fastest in `precision`, a name of `DTYPES`."""
    tried: dict[str, Attempt] = {
        "a product of matrices": (square_product(DTYPES[precision]), 2.0 * SIDE**3)
    }
    if DEVICE == "cuda":
        return tried
    for channels, side in CONVOLUTIONS:
        layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False).requires_grad_(False)
        x = torch.randn(BATCH, channels, side, side)
        operations = 2.0 * BATCH * 9 * channels**2 * side**2
        for layout, memory in LAYOUTS.items():
            way = partial(layer.to(memory_format=memory), x.to(memory_format=memory))
            tried[f"a 3x3 convolution of {channels} channels, {layout}"] = (way, operations)
    return {**tried, "a loop of fused multiply-adds": multiply_and_add()}


def main(rounds: int) -> dict[str, Any]:
    gflops = {}
    for precision in DTYPES if DEVICE == "cuda" else ("float32",):
        tried = attempts(precision)
        taken = interleave({name: way for name, (way, _) in tried.items()}, rounds, CLOCK)
        seconds = medians(taken)
        gflops[precision] = {name: n / seconds[name] / 1e9 for name, (_, n) in tried.items()}
    return {"gflops": gflops}


if __name__ == "__main__":
    measure(main, __doc__, DEVICE, rounds=9)
