"""The record of a run: one JSON file, whole or absent, that tables and reports are made of."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rectifiers.config import InputError
from rectifiers.runs.shape import SCHEMA_VERSION, validate

__all__ = ["SCHEMA_VERSION", "atomic_file", "load", "validate", "write", "write_text"]


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


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a valid record atomically; JSON has no NaN, and neither has a record."""
    fault = validate(record)
    if fault:
        raise ValueError(f"this is not a record: {fault}")
    write_text(path, json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n")


def load(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        InputError: where the file cannot be read or is not a record of this schema.
    """
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise InputError(f"{path} cannot be read as a record ({fault}); remove it, or give rerun=true") from fault
    fault_found = validate(record)
    if fault_found:
        raise InputError(f"{path} is not a usable record: {fault_found}; remove it, or give rerun=true")
    return record
