"""The stage `train` of dvc.yaml: train.py with the keys of params.yaml, and what DVC shows of it.

DVC decides when it runs; a run that exists is trained again."""

import csv
import json
import shutil
from pathlib import Path

import yaml

from rectifiers.cli.composition import compose_with_choices
from rectifiers.cli.hints import check_arguments
from rectifiers.cli.train import run_job
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file
from rectifiers.runtime.schema import JsonObject, flat
from rectifiers.tracking.loggers import logged, results

SHOWN, CHECKPOINT = Path("results/dvc"), Path("data/trained/last.ckpt")
COLUMNS = ("epoch", "lr", "train/loss", "val/loss", "val/error_top1")


def main() -> None:
    """Train, and write the metrics, the epochs and the checkpoint."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    overrides = [f"{key}={json.dumps(value)}" for key, value in flat(params).items()]
    overrides = [text.replace('"', "") for text in overrides]
    check_arguments(overrides)
    composed, choices = compose_with_choices([*overrides, "rerun=true"])
    record = run_job(composed, choices, overrides)
    if not isinstance(record, TrainingRecord):
        raise InputError("params.yaml: members makes an ensemble, which is no training")

    rows = [logged(row) for row in record.history]
    SHOWN.mkdir(parents=True, exist_ok=True)
    with open(SHOWN / "epochs.csv", "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)

    errors = results(record) | {key: rows[-1][key] for key in COLUMNS[2:]}
    (SHOWN / "metrics.json").write_text(json.dumps(nested(errors), indent=1) + "\n")

    with atomic_file(CHECKPOINT) as target:
        source = Path(composed.runs_dir) / record.run / "last.ckpt"
        with open(source, "rb") as file:
            shutil.copyfileobj(file, target)


def nested(numbers: JsonObject) -> JsonObject:
    """Return {"test": {"center": {"error_top1": 1.0}}} of {"test/center/error_top1": 1.0}."""
    tree: JsonObject = {}
    for name, number in numbers.items():
        *groups, last = name.split("/")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = number
    return tree


if __name__ == "__main__":
    with cli_errors("interrupted; dvc repro goes on from the last checkpoint"):
        main()
