"""Which runs W&B has as they are recorded: a note beside the client's own files, made when all was taken."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rectifiers.config import InputError
from rectifiers.runs import record as records
from rectifiers.runs.identity import canonical_json

NOTE = Path("wandb") / "sent.json"
SYNC = "python scripts/report.py sync"


def mark(folder: Path, record: Mapping[str, Any], url: str | None) -> None:
    """Note that W&B has `record` of the run of `folder`, and where."""
    records.write_text(folder / NOTE, json.dumps({"record": _digest(record), "url": url}, indent=1) + "\n")


def is_sent(folder: Path, record: Mapping[str, Any]) -> bool:
    """Return whether W&B has this record; a run that was tested by more since then is not sent."""
    try:
        return json.loads((folder / NOTE).read_text())["record"] == _digest(record)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def logged(runs: Path) -> Iterator[Path]:
    """Yield the folders of the runs of `runs` that were logged to W&B.

    Raises:
        InputError: where `runs` is no folder.
    """
    if not runs.is_dir():
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")
    yield from (path.parent for path in sorted(runs.glob("*/wandb")) if path.is_dir())


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(record).encode()).hexdigest()[:16]
