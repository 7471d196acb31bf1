"""What loggers get of a run: plain data from its configuration and record, without any client."""

import math
from collections.abc import Mapping
from typing import Any

from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import without
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Provenance

# The history's keys (which records and criteria name) that loggers show under other names.
LOGGED_AS = {
    "train_loss": "train/loss",
    "val/top1_error_pct": "val/error_top1",
    "val/top5_error_pct": "val/error_top5",
}
# No two machines have these alike, and none of them can change a number.
PLACES = ("runs_dir", "cache_dir", "data.root", "logger", "rerun")
TAGS = ("activation", "init", "model")
MAX_TAG_LENGTH = 64  # of W&B
TITLE = ("model", "activation", "init", "data")


def logged(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the history under the names that loggers show; errors are in percent."""
    return {LOGGED_AS.get(key, key): value for key, value in row.items()}


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a row that are finite."""
    return {key: value for key, value in row.items() if value is not None and math.isfinite(value)}


def results(record: TrainingRecord) -> dict[str, float]:
    """Return every protocol's errors in percent, as `test/<protocol>/error_top1`."""
    errors = {}
    for name, result in record.protocols.items():
        errors[f"test/{name}/error_top1"] = result.top1_error_pct
        if result.top5_error_pct is not None:
            errors[f"test/{name}/error_top5"] = result.top5_error_pct
    return errors


def group(choices: Mapping[str, Any]) -> str | None:
    """Return the table of the run's experiment, or its search, or None."""
    if choices.get("experiment"):
        return str(choices["experiment"]).partition("/")[0]
    search = choices.get("hparams_search")
    return f"search {search}" if search else None


def description(config: RunConfig, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name, group and tags of a run in W&B."""
    chosen = [str(choices[key]) for key in TAGS if choices.get(key)]
    return {
        "name": " ".join(str(choices[key]) for key in TITLE if choices.get(key)),
        "group": group(choices),
        "tags": [tag[:MAX_TAG_LENGTH] for tag in dict.fromkeys((*chosen, *config.tags))],
    }


def hyperparameters(
    config: RunConfig, choices: Mapping[str, Any], run: str, provenance: Provenance
) -> dict[str, Any]:
    """Return the choices and the seed, the resolved configuration, and where the run comes from.

    W&B writes the path of a nested key differently for grouping and for filtering; so what is used
    for both stands at the top."""
    chosen = {name: option for name, option in choices.items() if option is not None}
    nested = {
        "config": without(config.as_dict(), PLACES),
        "provenance": provenance.model_dump(exclude={"versions"}),
    }
    return {**chosen, "run": run, "seed": config.seed, **nested}
