"""Compile the C sources beside this file, by `make native` or `python src/rectifiers/data/native/build.py`.

The library is never part of the repository or of a source distribution. It carries the hash of the sources that it was
made of, so that one that is older than they are is not used.
"""

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "library.so"
FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-shared")


def sources() -> list[Path]:
    """Return the C files in order."""
    return sorted(HERE.glob("*.c"))


def source_hash() -> str:
    """Return 16 hex digits of all C sources and headers."""
    content = hashlib.blake2b(digest_size=8)
    for path in sorted([*sources(), *HERE.glob("*.h")]):
        content.update(path.read_bytes())
    return content.hexdigest()


def compile_library() -> str | None:
    """Make `LIBRARY` anew; return None, or why there is none. An older one is gone either way."""
    LIBRARY.unlink(missing_ok=True)
    part = LIBRARY.with_suffix(f".{os.getpid()}.part")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    stamp = f'-DSOURCE_HASH="{source_hash()}"'
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, stamp, *map(str, sources()), "-o", str(part), "-ljpeg", "-lm"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode == 0:
            part.replace(LIBRARY)
            return None
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        return f"{compiler[0]} says: {lines[0]}" if lines else f"{compiler[0]} ends with {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as fault:
        return str(fault)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    why_not = compile_library()
    if why_not:
        print(f"The fast JPEG decoder was not built ({why_not}); images are read by Pillow.", file=sys.stderr)
