"""Files: where the configuration and the checkout are, git, and writing whole or not at all."""

import os
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def locate(package: Path) -> tuple[Path, Path | None]:
    """Return the folder of configurations and the checkout that contains the package, None where it is installed."""
    installed, checkout = package / "conf", package.parents[1]
    return (installed, None) if installed.is_dir() else (checkout / "conf", checkout)


CONF, CHECKOUT = locate(Path(__file__).parents[1])


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing and move it there at the end: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.part")  # the folder may be shared
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


def check_zip(path: Path) -> None:
    """Read a zip file that torch wrote to its end, and compare every part with its checksum.

    Raises:
        zipfile.BadZipFile: where a part is not what was written. Other damage has other exceptions.
    """
    with zipfile.ZipFile(path) as parts:
        # torch takes a part with such an attribute for a folder, and returns whatever its memory holds for the content
        wrong = parts.testzip() or next((part.filename for part in parts.infolist() if part.external_attr), None)
    if wrong is not None:
        raise zipfile.BadZipFile(f"the checksum of {wrong} does not fit")


def git(*arguments: str, at: Path) -> str | None:
    """Return the output of a git command in a folder, or None where it fails or git is not installed."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(at), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
