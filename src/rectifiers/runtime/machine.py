"""The machine: what its processor is, how much of it is free, how loaders start processes, and how
memory is reused."""

import atexit
import ctypes
import gc
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt(3)


@cache
def name() -> str:
    """Return the processor's name, such as "AMD EPYC 9005"."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def vendor() -> str:
    """Return the processor's vendor, such as "GenuineIntel" or "AuthenticAMD"; empty where the
    system does not say."""
    # on Windows "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"
    return _cpuinfo("vendor_id") or platform.processor().rpartition(", ")[2]


def generation() -> str:
    """Return the numbers of the processor's family and model, such as "6-207", in which processors
    of one name may differ; empty where the system does not say."""
    return "-".join(filter(None, (_cpuinfo("cpu family"), _cpuinfo("model\t"))))


def instructions() -> str:
    """Return the instruction set of torch's kernels, such as "AVX512": another one rounds
    otherwise."""
    from torch.backends import cpu  # imported late: it takes seconds

    return cpu.get_cpu_capability()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores() -> int:
    """Return how many cores this process may use and, by the load of the last minute, nobody else
    does; at least 1."""
    idle = (os.cpu_count() or 1) - round(os.getloadavg()[0])
    return max(1, min(usable_cores(), idle))


def keep_freed_memory() -> None:
    """Let this process reuse freed memory instead of returning it to the system, on glibc.

    Otherwise glibc returns large blocks at once, and the system fills them with zeros at the next
    step: two layers of 4096 units took 0.12 s of CPU time a step of 8 images, and 0.066 s with it.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import in the body what makes many objects and no garbage, which Python then leaves out when
    it looks for some: walking through all of torch again and again takes a second of a run.

    Only the first call of a process does so, because later ones would keep the garbage of runs. At
    exit the objects are freed as usual; a library reports those that are not."""
    with no_garbage_collection():
        yield
        # nothing is frozen before the first call
        if gc.get_freeze_count() == 0:
            gc.freeze()
            atexit.register(gc.unfreeze)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no garbage in the body, as where much is read in a process of seconds."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
