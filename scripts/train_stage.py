"""The stage `train` of dvc.yaml: train.py with the keys of params.yaml, and what DVC shows of it.

DVC decides when it runs; a run that exists is trained again. conf/local is left out, because DVC
sees no change in it."""

import csv
import json
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from rectifiers.cli.composition import WITHOUT_LOCAL, compose_with_choices, override
from rectifiers.cli.hints import check_arguments
from rectifiers.cli.train import run_job
from rectifiers.runs.options import GROUPS
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.compiling import compile_all
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import atomic_file, read_yaml
from rectifiers.runtime.schema import JsonObject, flat
from rectifiers.tracking.loggers import logged, results

SHOWN, CHECKPOINT = Path("results/dvc"), Path("data/trained/last.ckpt")
COLUMNS = ("epoch", "lr", "train/loss", "val/loss", "val/error_top1")
BY_KEY = ("optim", "trainer")  # groups of which params.yaml has keys; of others it has the name
MORE = "overrides"  # its key for the other half: the keys of a model, the name of a trainer


def main() -> None:
    """Train, and write the metrics, the epochs and the checkpoint."""
    overrides = overrides_of(Path("params.yaml"))
    check_arguments(overrides)
    # DVC's copies of the checkout for queued experiments have none, and PReLU would round otherwise
    for warning in compile_all(outdated=True):
        print(warning, file=sys.stderr)

    composed, choices = compose_with_choices([*overrides, WITHOUT_LOCAL, "rerun=true"])
    record = run_job(composed, choices, overrides)
    if not isinstance(record, TrainingRecord):
        raise InputError("params.yaml: members makes an ensemble, which is no training")
    if world().rank != 0:
        return

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


def overrides_of(path: Path) -> list[str]:
    """Return the leaves of a YAML file as overrides of train.py."""
    remedy = "give a mapping such as activation: relu"
    try:
        params = read_yaml(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, remedy) from error
    if not isinstance(params, dict):
        raise InputError(f"{path} has no keys; {remedy}")

    more = params.pop(MORE, {})
    if not isinstance(more, dict):
        reason = f"{MORE}={more}: it has no keys (give -S ++{MORE}.model.dropout=0.3)"
        raise InputError(reason, status=2)
    check_groups(params, BY_KEY)
    check_groups(more, [group for group in GROUPS if group not in BY_KEY], within=f"{MORE}.")
    return [as_override(key, value) for half in (params, more) for key, value in flat(half).items()]


def check_groups(params: JsonObject, by_key: Collection[str], within: str = "") -> None:
    """Refuse a name of a group where its keys belong, and keys where the name belongs.

    DVC replaces the one by the other: `-S +model.dropout=0.3` removes `model: small30`, and another
    network would be trained."""
    other = "" if within else f"{MORE}."
    for group in sorted(params.keys() & set(GROUPS)):
        has_keys = isinstance(params[group], dict)
        if has_keys == (group in by_key):
            continue

        key, value = next(iter(flat({group: params[group]}).items()), (group, {}))
        kind = "name" if has_keys else "keys"
        remedy = f"git checkout params.yaml, then -S ++{other}{key}={value}"
        reason = f"{within}{key}={value}: params.yaml has the {kind} of {group} there ({remedy})"
        raise InputError(reason, status=2)


def as_override(key: str, value: object) -> str:
    """Return a key with its value as Hydra reads them."""
    if isinstance(value, str):
        return override(key, value)
    # Hydra takes a number in quotes for a word
    text = json.dumps(value, ensure_ascii=False, default=str).replace('"', "")
    return f"{key}={text}"


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
