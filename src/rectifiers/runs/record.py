"""The record of a run: one JSON file, whole or absent, that tables and reports are made of."""

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rectifiers.config import InputError

SCHEMA_VERSION = 1
REQUIRED = {
    "schema_version": int,
    "run": str,
    "status": str,
    "choices": dict,
    "science": dict,
    "protocols": dict,
    "codes": list,
    "provenance": dict,
}
OF_A_TRAINING = {
    "network": dict,
    "ledger": list,
    "slopes": dict,
    "drop_epochs": list,
    "epochs": int,
    "history": list,
    "train_images": int,
    "images_per_second": (int, float, type(None)),
    "wall_s": (int, float),
}
OF_AN_ENSEMBLE = {"members": list}
OF_A_RESULT = {
    "seen": int,
    "top1_correct": int,
    "top1_error_pct": (int, float),
    "settings": dict,
    "multiply_adds": int,
    **dict.fromkeys(("top5_error_pct", "nll", "brier", "ece"), (int, float, type(None))),
}
STATUSES = ("finished", "diverged")


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


def validate(record: Any) -> str | None:
    """Return what keeps `record` from being one, or None."""
    if not isinstance(record, dict):
        return "it is not a JSON object"
    if record.get("schema_version") != SCHEMA_VERSION:
        return f"its schema_version is {record.get('schema_version')!r} and this code reads {SCHEMA_VERSION}"
    own = OF_AN_ENSEMBLE if "members" in record else OF_A_TRAINING
    fault = _missing(record, REQUIRED | own)
    if fault is None and not re.fullmatch(r"\w+", record["run"]):
        return f"its run is named {record['run']!r}"
    for name, result in {} if fault else record["protocols"].items():
        within = _missing(result, OF_A_RESULT) if isinstance(result, dict) else "it is no JSON object"
        fault = fault or (f"of {name}, {within}" if within else None)
    if fault:
        return fault
    if record["status"] not in STATUSES:
        return f"its status is {record['status']!r}, not one of {', '.join(STATUSES)}"
    return None


def _missing(node: dict[str, Any], kinds: Mapping[str, Any]) -> str | None:
    for key, kind in kinds.items():
        if key not in node:
            return f"it has no {key}"
        if not isinstance(node[key], kind):
            return f"its {key} is a {type(node[key]).__name__}"
    return None


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
