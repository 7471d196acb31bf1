"""Compile the C sources of this package, by `make native` or `python src/rectifiers/runtime/compiling.py`.

A library is never part of the repository or of a source distribution. It carries the hash of the sources that it was
made of, so that one that is older than they are is not used. Nothing but the standard library is imported: this runs
before anything is installed.
"""

import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-shared")


class Unusable(Exception):
    """A library that is there and must not be used; the message says why."""


@dataclass(frozen=True)
class Library:
    """All C files of a folder, linked to `links`; without it, `otherwise`."""

    folder: Path
    links: tuple[str, ...]
    otherwise: str

    @property
    def path(self) -> Path:
        return self.folder / "library.so"

    def sources(self) -> list[Path]:
        """Return the C files in order."""
        return sorted(self.folder.glob("*.c"))

    def source_hash(self) -> str:
        """Return 16 hex digits of all C sources and headers."""
        content = hashlib.blake2b(digest_size=8)
        for path in sorted([*self.sources(), *self.folder.glob("*.h")]):
            content.update(path.read_bytes())
        return content.hexdigest()

    def compile(self) -> str | None:
        """Make it anew; return None, or why there is none. An older one is gone either way."""
        self.path.unlink(missing_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}.part")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        stamp = f'-DSOURCE_HASH="{self.source_hash()}"'
        links = [f"-l{link}" for link in self.links]
        try:
            done = subprocess.run(
                [*compiler, *FLAGS, stamp, *map(str, self.sources()), "-o", str(part), *links],
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode == 0:
                part.replace(self.path)
                return None
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            return f"{compiler[0]} says: {lines[0]}" if lines else f"{compiler[0]} ends with {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as fault:
            return str(fault)
        finally:
            part.unlink(missing_ok=True)

    def load(self) -> ctypes.CDLL:
        """Open it.

        Raises:
            OSError, AttributeError: where it is missing or something else.
            Unusable: where it is older than its sources.
        """
        library = ctypes.CDLL(str(self.path))
        library.rectifiers_source_hash.restype = ctypes.c_char_p
        if library.rectifiers_source_hash().decode() != self.source_hash():
            raise Unusable("it is older than its sources")
        return library


JPEG = Library(PACKAGE / "data" / "jpeg", ("jpeg", "m"), "images are read by Pillow")
KERNELS = Library(PACKAGE / "nn" / "kernels", (), "PReLU's gradient is torch's, several times slower")


def compile_all() -> list[str]:
    """Compile every library and return a sentence for each that could not be."""
    faults = [(library, library.compile()) for library in (JPEG, KERNELS)]
    return [f"{each.folder.name} was not built ({why}); {each.otherwise}." for each, why in faults if why]


if __name__ == "__main__":
    for fault in compile_all():
        print(fault, file=sys.stderr)
