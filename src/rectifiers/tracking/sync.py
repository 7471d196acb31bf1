"""Send to W&B what it lacks: runs that were logged and not sent, or any records."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rectifiers.runs import record as records
from rectifiers.runs.folder import run_lock
from rectifiers.runs.record import EnsembleRecord, TrainingRecord
from rectifiers.runs.sections import Logger
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_yaml, refuse_link
from rectifiers.runtime.schema import checked
from rectifiers.tracking import client
from rectifiers.tracking.mirror import publish

Outcome = tuple[str, str | None]  # a run's name, and why W&B does not have all of its record


def sync(runs: Path) -> Iterator[Outcome]:
    """Send the runs in `runs` that were not sent, and yield each of them.

    Raises:
        InputError: where `runs` is no folder.
    """
    if not runs.is_dir():
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")
    for folder in sorted(path.parent for path in runs.glob("*/wandb") if path.is_dir()):
        try:
            refuse_link(folder / "wandb")
            with run_lock(folder):
                if not (folder / "record.json").exists():
                    yield (
                        folder.name,
                        "it is not finished; the command that started it continues it and sends it",
                    )
                    continue
                record = records.load_training(folder / "record.json")
                if not client.is_sent(folder, record):
                    yield _send(record, folder, _settings(folder))
        except InputError as error:
            yield folder.name, str(error)


def send_records(paths: Iterable[Path], project: str) -> Iterator[Outcome]:
    """Send records from anywhere to W&B's `project` as runs, and yield each."""
    settings = checked(Logger, {"name": "wandb", "project": project}, "--")
    for path in paths:
        record = records.load(path)
        if isinstance(record, EnsembleRecord):
            yield record.run, "it is an ensemble, not a training; W&B may have its members"
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / record.run
            client.note_address(
                folder, id=record.run, project=project
            )  # the same rows, wherever they come from
            yield _send(record, folder, settings)


def _settings(folder: Path) -> Logger:
    """Return the logger's settings that the run was made with."""
    try:
        return checked(Logger, read_yaml(folder / "config.yaml")["logger"], "logger.")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / 'config.yaml'} cannot be read ({error})") from error


def _send(record: TrainingRecord, folder: Path, settings: Logger) -> Outcome:
    return record.run, publish(
        record, folder, settings.model_copy(update={"mode": "online"}), fall_back=False
    )
