"""What a run's loggers wrote, read back from their files by the readers of each."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def csv_rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "metrics.csv").open()))


def tensorboard_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar with its (step, value) pairs in the order of the files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def wandb_lines(folder: Path) -> list[dict[str, Any]]:
    """What the run's one local file holds, as W&B's own reader shows it."""
    (file,) = [path for path in (folder / "wandb").glob("*run-*") if not path.is_symlink()]
    done = subprocess.run(
        [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", str(file)],
        env={**os.environ, "WANDB_ERROR_REPORTING": "false"},
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def wandb_rows(folder: Path) -> list[dict[str, Any]]:
    items = [line["history"]["item"] for line in wandb_lines(folder) if line["type"] == "history"]
    rows = [{key: value for key, value in item.items() if key[0] != "_"} for item in items]
    return [row for row in rows if row]


def wandb_summary(folder: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for line in wandb_lines(folder):
        merged |= line.get("summary", {}).get("update", {})
    return merged
