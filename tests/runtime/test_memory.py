"""Freed memory is used again while a run lasts, and goes back to the system afterwards."""

import platform
import sys

import pytest
import torch

import forkserver
from rectifiers.runtime import memory
from rectifiers.runtime.memory import keeping_freed_memory

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the C library is not glibc"
)
MEASURE = """
import resource
from pathlib import Path
import torch
from rectifiers.runtime.memory import keeping_freed_memory

def faults():  # pages that the system has to give for a tensor of 64 MiB that is made and freed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

with keeping_freed_memory():
    # Beside an aligned block glibc leaves a splinter. Its cache of freed ones, which holds seven,
    # keeps blocks apart.
    again = min(faults() for _ in range(16))
    within = resident()
print(again, faults(), within - resident())
"""


@needs_glibc
def test_freed_memory_is_used_again_and_given_back_at_the_end() -> None:
    """In a process of its own: what other tests have left in a heap decides where a block fits."""
    done = forkserver.run([sys.executable, "-c", MEASURE])
    again, otherwise, given_back = map(int, done.stdout.split())
    assert again < otherwise / 4, done.stderr
    assert given_back > 3 * 2**24


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    memory._glibc.cache_clear()
    try:
        with keeping_freed_memory():
            assert torch.ones(3).sum() == 3
    finally:
        memory._glibc.cache_clear()
