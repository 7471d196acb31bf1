"""The processor is named as the system names it, cores are free that nobody uses, and freed memory
is reused."""

import os
import platform
import subprocess
import sys

import pytest

from rectifiers.runtime import machine


@pytest.mark.parametrize(
    ("usable", "load", "free"), [(8, 0.2, 8), (8, 2.6, 5), (2, 2.6, 2), (2, 7.4, 1), (8, 30.0, 1)]
)
def test_free_cores_are_usable_and_idle(
    usable: int, load: float, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert machine.free_cores() == free


STEPS = """
import resource
from rectifiers.runtime.machine import keep_freed_memory

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        bytearray(2**26)[::4096]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = page_faults()
keep_freed_memory()
page_faults()
print(before, page_faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is for glibc")
def test_freed_memory_is_reused() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before / 100
