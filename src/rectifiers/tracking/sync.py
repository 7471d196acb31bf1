"""Bring W&B to what the records say: every run that was logged there and is not sent, or any record that is given."""

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from rectifiers.config import CONF, InputError
from rectifiers.runs import record as records
from rectifiers.runs.lock import held
from rectifiers.tracking import sent
from rectifiers.tracking.mirror import publish


def sync(runs: Path, say: Callable[[str], None]) -> int:
    """Send what is not sent of the runs in `runs`; say a line each, and return how many are not sent after that.

    Raises:
        InputError: where `runs` is no folder.
    """
    left = 0
    for folder in sent.logged(runs):
        with ExitStack() as stack:
            try:
                stack.enter_context(held(folder))
                record = records.load(folder / "record.json") if (folder / "record.json").exists() else None
                settings = _settings(folder)
            except InputError as fault:
                say(f"{folder.name}: not sent, {fault}")
                left += 1
                continue
            if record is None:
                say(f"{folder.name}: not finished; its command goes on with it and tells W&B")
                left += 1
            elif not sent.is_sent(folder, record):
                left += _send(record, folder, settings, say)
    return left


def send_records(paths: Iterable[Path], project: str, say: Callable[[str], None]) -> int:
    """Make the runs of records that may come from anywhere anew in W&B's `project`; as `sync` else."""
    settings = {**yaml.safe_load((CONF / "logger" / "wandb.yaml").read_text()), "project": project}
    left = 0
    for path in paths:
        record = records.load(path)
        if "members" in record:
            say(f"{record['run']}: an ensemble is no training, and W&B has its members")
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / record["run"]
            folder.mkdir()
            left += _send(record, folder, settings, say)
    return left


def _settings(folder: Path) -> dict[str, Any]:
    """The logger's settings that the run was made with."""
    try:
        return yaml.safe_load((folder / "config.yaml").read_text())["logger"]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as fault:
        raise InputError(f"{folder / 'config.yaml'} cannot be read ({fault})") from fault


def _send(record: dict[str, Any], folder: Path, settings: dict[str, Any], say: Callable[[str], None]) -> int:
    why = publish(record, folder, {**settings, "mode": "online"}, fall_back=False)
    say(why or f"{folder.name}: sent")
    return int(why is not None)
