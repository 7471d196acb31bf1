"""The processor is named as the system names it, cores are free that nobody uses, and freed memory
is reused."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rectifiers.runtime import machine

CPUINFO = "vendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC 9575F: 64 cores\n"
WINDOWS = "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"


@pytest.fixture(autouse=True)
def _without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (machine.name, machine.vendor):
        monkeypatch.setattr(machine, function.__name__, function.__wrapped__)


@pytest.mark.parametrize(
    ("cpuinfo", "processor", "name", "vendor"),
    [
        (CPUINFO, "", "AMD EPYC 9575F: 64 cores", "AuthenticAMD"),
        (None, WINDOWS, WINDOWS, "GenuineIntel"),
        (None, "", platform.machine(), ""),
    ],
)
def test_processor_is_named_as_the_system_names_it(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None, processor: str, name: str, vendor: str
) -> None:
    def read_text(_: Path) -> str:
        if cpuinfo is None:
            raise FileNotFoundError
        return cpuinfo

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(platform, "processor", lambda: processor)
    assert (machine.name(), machine.vendor()) == (name, vendor)


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
