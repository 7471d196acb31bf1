"""What the machine's processor is."""

import platform
from functools import cache
from pathlib import Path


@cache
def name() -> str:
    """Return the processor's name, such as "AMD EPYC 9005"."""
    return _field("model name") or platform.processor() or platform.machine()


@cache
def vendor() -> str:
    """Return who made the processor, such as "GenuineIntel" or "AuthenticAMD", as far as the system says so."""
    described = platform.processor()  # on Windows "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"
    return _field("vendor_id") or described.rpartition(", ")[2]


def _field(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
