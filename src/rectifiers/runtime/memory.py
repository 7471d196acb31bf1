"""How the process gets its memory from the system."""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt(3)


def keep_freed_memory() -> None:
    """Let this process reuse freed memory instead of returning it to the system, on glibc.

    Otherwise glibc returns large blocks at once, and the system fills them with zeros at the next
    step: two layers of 4096 units took 0.12 s of CPU time a step of 8 images, and 0.066 s with it.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)
