"""The record of a run: one JSON file, whole or absent, that tables and reports are made of."""

import json
from pathlib import Path
from typing import Any

from rectifiers.runs.shape import validate
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text


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
