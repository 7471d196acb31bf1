"""Freed memory is reused by the process."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
from rectifiers.runtime.memory import keep_freed_memory

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
