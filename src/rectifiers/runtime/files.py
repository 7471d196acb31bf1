"""Writing files whole or not at all."""

import os
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
