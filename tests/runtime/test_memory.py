"""Freed memory is used again while a run lasts, and goes back to the system afterwards."""

import platform
import resource
from pathlib import Path

import pytest
import torch

from rectifiers.runtime import memory
from rectifiers.runtime.memory import keeping_freed_memory

NUMBERS = 2**24  # 64 MiB of float32
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def faults() -> int:
    """Return how many pages the system has to give for a tensor that is made and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(NUMBERS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@needs_glibc
def test_freed_memory_is_used_again_and_given_back_at_the_end() -> None:
    with keeping_freed_memory():
        again = min(faults() for _ in range(6))  # glibc may need room for two before it fits one, aligned, into it
        within = resident_bytes()
    assert resident_bytes() < within - 3 * NUMBERS
    assert again < faults() / 4


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    memory._glibc.cache_clear()
    try:
        with keeping_freed_memory():
            assert torch.ones(3).sum() == 3
    finally:
        memory._glibc.cache_clear()
