"""How the process gets its memory from the system."""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of glibc's mallopt
LARGEST_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = (
    2**26,
    2**16,
)  # what glibc has by itself where blocks are large


@cache
def _glibc() -> Any:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Let the body use freed memory again, where the C library is glibc; afterwards the system gets
    it back.

    By itself glibc returns every block of 32 MB to the system at once and asks for another at the
    next step, which the system fills with zeros, page by page: a fifth of the CPU time of a step
    with large weights."""
    library = _glibc()
    if library is None:
        yield
        return
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        library.mallopt(MMAP_MAX, DEFAULT_MMAP_MAX)
        library.mallopt(TRIM_THRESHOLD, LARGEST_TRIM_THRESHOLD)
        library.malloc_trim(0)
