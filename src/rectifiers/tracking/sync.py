"""Bring W&B to what the records say: every run that was logged there and is not sent, or any record that is given."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from rectifiers.runs import record as records
from rectifiers.runs.config import Logger
from rectifiers.runs.lock import held
from rectifiers.runs.record import EnsembleRecord, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import checked
from rectifiers.tracking import sync_state
from rectifiers.tracking.mirror import publish

Outcome = tuple[str, str | None]  # a run's name, and why W&B does not have it as it is recorded


def sync(runs: Path) -> Iterator[Outcome]:
    """Send what is not sent of the runs in `runs`, and yield each that was not.

    Raises:
        InputError: where `runs` is no folder.
    """
    for folder in sync_state.logged(runs):
        try:
            with held(folder):
                if not (folder / "record.json").exists():
                    yield folder.name, "it is not finished, and its own command goes on with it and tells W&B"
                    continue
                record = records.load_training(folder / "record.json")
                if not sync_state.is_sent(folder, record):
                    yield _send(record, folder, _settings(folder))
        except InputError as fault:
            yield folder.name, str(fault)


def send_records(paths: Iterable[Path], project: str) -> Iterator[Outcome]:
    """Make the runs of records, which may come from anywhere, in W&B's `project`, and yield each."""
    settings = checked(Logger, {"name": "wandb", "project": project}, "--")
    for path in paths:
        record = records.load(path)
        if isinstance(record, EnsembleRecord):
            yield record.run, "it is an ensemble and no training; W&B may have its members"
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / record.run
            sync_state.note_address(folder, id=record.run, project=project)  # the same rows, wherever they come from
            yield _send(record, folder, settings)


def _settings(folder: Path) -> Logger:
    """The logger's settings that the run was made with."""
    try:
        return checked(Logger, yaml.safe_load((folder / "config.yaml").read_text())["logger"], "logger.")
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as fault:
        raise InputError(f"{folder / 'config.yaml'} cannot be read ({fault})") from fault


def _send(record: TrainingRecord, folder: Path, settings: Logger) -> Outcome:
    return record.run, publish(record, folder, settings.model_copy(update={"mode": "online"}), fall_back=False)
