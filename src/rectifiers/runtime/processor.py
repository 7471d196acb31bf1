"""What the machine's processor is, and how much of it is free."""

import os
import platform
from functools import cache
from pathlib import Path


@cache
def name() -> str:
    """Return the processor's name, such as "AMD EPYC 9005"."""
    return _field("model name") or platform.processor() or platform.machine()


@cache
def vendor() -> str:
    """Return who made the processor, such as "GenuineIntel" or "AuthenticAMD", as far as the system
    says so."""
    # on Windows "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"
    return _field("vendor_id") or platform.processor().rpartition(", ")[2]


def instructions() -> str:
    """Return the instructions that torch's kernels use here, such as "AVX512": another set rounds
    otherwise."""
    from torch.backends import cpu  # takes seconds to import, and whoever asks has it

    return cpu.get_cpu_capability()


def free_cores() -> int:
    """Return how many cores this process may use and, by the load of the last minute, nobody else
    does; at least 1."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(usable, cores - round(os.getloadavg()[0])))


def _field(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
