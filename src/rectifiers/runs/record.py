"""The record of a run: one JSON file, whole or absent, that tables and reports are made of."""

import json
from pathlib import Path
from typing import Any

from rectifiers.runs.shape import validate
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text


def to_json(record: dict[str, Any], indent: int | None = None) -> str:
    """Return a record as JSON, which has no NaN.

    Raises:
        ValueError: where `parse` would refuse it.
    """
    if error := validate(record):
        raise ValueError(f"this is not a record: {error}")
    separators = (",", ":") if indent is None else None
    return json.dumps(record, indent=indent, separators=separators, sort_keys=True, allow_nan=False)


def parse(text: str | bytes) -> dict[str, Any]:
    """Return the record of a JSON text.

    Raises:
        ValueError: where it is none; the message names the field.
    """
    record = json.loads(text)
    if error := validate(record):
        raise ValueError(error)
    return record


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a valid record atomically."""
    write_text(path, to_json(record, indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        InputError: where the file cannot be read or is not a record of this schema.
    """
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a usable record ({error}); remove it, or give rerun=true") from error
