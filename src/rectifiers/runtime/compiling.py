"""Compile the package's C sources: `make native`, or `python src/rectifiers/runtime/compiling.py`.

The libraries are neither in the repository nor in a source distribution. Each carries the hash of
its sources, so that an outdated one is not used. Only the standard library is imported, because
this runs before anything is installed."""

import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
FLAGS = "-std=gnu11 -O3 -Wall -Wextra -ffp-contract=off -fvisibility=hidden -fPIC -shared"


@dataclass(frozen=True)
class Library:
    """All C files of a folder, linked to `links`; `fallback` says what happens without the
    library."""

    folder: Path
    links: tuple[str, ...]
    fallback: str

    @property
    def path(self) -> Path:
        return self.folder / "library.so"

    def sources(self) -> list[Path]:
        return sorted(self.folder.glob("*.c"))

    def source_hash(self) -> str:
        """Return 16 hex digits of all C sources and headers."""
        content = hashlib.blake2b(digest_size=8)
        for path in sorted([*self.sources(), *self.folder.glob("*.h")]):
            content.update(path.read_bytes())
        return content.hexdigest()

    def compile(self) -> str | None:
        """Rebuild the library; return None, or the reason of a failure. The old library is deleted
        in any case."""
        self.path.unlink(missing_ok=True)
        part = self.path.with_suffix(f".{os.getpid()}.part")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        stamp = f'-DSOURCE_HASH="{self.source_hash()}"'
        sources = [str(path) for path in self.sources()]
        links = [f"-l{name}" for name in self.links]
        command = [*compiler, *FLAGS.split(), stamp, *sources, "-o", str(part), *links]

        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode == 0:
                part.replace(self.path)
                return None

            lines = done.stderr.splitlines() or [f"status {done.returncode}"]
            reason = next((line for line in lines if "error" in line), lines[0])
            return f"{compiler[0]} says: {reason}"
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        finally:
            part.unlink(missing_ok=True)

    def open(self, declare: Callable[[ctypes.CDLL], str | None]) -> ctypes.CDLL | str:
        """Return the library, or the reason why it cannot be used: it is missing, or older than its
        sources.

        declare: sets the signatures of its functions; it may return another reason.
        """
        try:
            library = ctypes.CDLL(str(self.path))
            library.rectifiers_source_hash.restype = ctypes.c_char_p
            if library.rectifiers_source_hash().decode() != self.source_hash():
                return "it is older than its sources"
            return declare(library) or library
        except (OSError, AttributeError) as error:
            return str(error)

    def is_current(self) -> bool:
        """Return whether the library is there, and of these sources."""
        return not isinstance(self.open(lambda _: None), str)


JPEG = Library(PACKAGE / "data" / "jpeg", ("jpeg", "m"), "images are read by Pillow")
PRELU = Library(PACKAGE / "prelu", (), "PReLU's gradient is torch's, several times slower")


def compile_all(*, outdated: bool = False) -> list[str]:
    """Compile every library; return a sentence for each one that failed.

    outdated: only those that are missing or older than their sources.
    """
    libraries = [lib for lib in (JPEG, PRELU) if not (outdated and lib.is_current())]
    return [
        f"{library.folder.name} was not built ({reason}); {library.fallback}."
        for library in libraries
        if (reason := library.compile())
    ]


if __name__ == "__main__":
    for sentence in compile_all():
        print(sentence, file=sys.stderr)
