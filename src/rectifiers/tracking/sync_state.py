"""A run's place in W&B: its address there, and whether W&B has the run as it is recorded."""

import hashlib
import json
from pathlib import Path
from typing import Any

from rectifiers.runs.identity import canonical_json
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.files import write_text

SYNC = "python scripts/report.py sync"
ADDRESS, NOTE = "address.json", "sent.json"


def place(folder: Path) -> Path:
    return folder / "wandb"


def address(folder: Path, project: str) -> dict[str, Any]:
    """Return the run's id in W&B and its project, and its entity where that is not the account's own.

    The id is the run's name. A rerun is another run there, `<name>-2` and so on, because W&B keeps rows and does not
    reuse the id of a deleted run. A sweep's agent gives its own id, which was noted.
    """
    try:
        return json.loads((place(folder) / ADDRESS).read_text())
    except (OSError, ValueError):
        earlier = len(list((folder.parent / "replaced").glob(f"{folder.name}-*")))
        return {"id": f"{folder.name}-{earlier + 1}" if earlier else folder.name, "project": project}


def note_address(folder: Path, **known: str | None) -> None:
    """Note the run's address in W&B, which a sweep may decide."""
    address = {name: value for name, value in known.items() if value}
    write_text(place(folder) / ADDRESS, json.dumps(address, indent=1) + "\n")


def mark(folder: Path, record: TrainingRecord, url: str | None) -> None:
    """Note that W&B has `record` of the run of `folder`, at `url`."""
    write_text(place(folder) / NOTE, json.dumps({"record": _digest(record), "url": url}, indent=1) + "\n")


def is_sent(folder: Path, record: TrainingRecord) -> bool:
    """Return whether W&B has this record; tests that were added later make it another record."""
    try:
        return json.loads((place(folder) / NOTE).read_text())["record"] == _digest(record)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(record: TrainingRecord) -> str:
    return hashlib.sha256(canonical_json(record.model_dump()).encode()).hexdigest()[:16]
