"""What W&B gets of a run: plain data from its configuration and record, without the client."""

import math
from collections.abc import Mapping
from typing import Any

from rectifiers.results.paper_comparison import paper_comparison
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Provenance

TAGS = ("activation", "init", "model")
MAX_TAG_LENGTH = 64  # of W&B
TITLE = ("model", "activation", "init", "data")


def group(choices: Mapping[str, Any]) -> str | None:
    """Return the table of the run's experiment, or its sweep, or None."""
    if choices.get("experiment"):
        return str(choices["experiment"]).partition("/")[0]
    return f"sweep {choices['sweep']}" if choices.get("sweep") else None


def start(
    run: str, choices: Mapping[str, Any], science: Mapping[str, Any], provenance: Provenance
) -> dict[str, Any]:
    """Return the displayed name, group, tags and config of a run, as `wandb.init` takes them.

    W&B writes the path of a nested key differently for grouping and for filtering; choices and
    seed, which are used for both, stand at the top of the config, science and provenance are
    nested."""
    chosen = {name: option for name, option in choices.items() if option is not None}
    machine = {f"machine_{key}": value for key, value in provenance.machine.model_dump().items()}
    where = provenance.model_dump(exclude={"machine", "versions"})
    nested = {"science": dict(science), "provenance": {**where, **machine}}
    return {
        "name": " ".join(str(choices[key]) for key in TITLE if choices.get(key)),
        "group": group(choices),
        "tags": [str(choices[key])[:MAX_TAG_LENGTH] for key in TAGS if choices.get(key)],
        "config": {**chosen, "run": run, "seed": science["seed"], **nested},
    }


def row(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of an epoch that are finite, as in the record."""
    return {
        key: value for key, value in epoch.items() if value is not None and math.isfinite(value)
    }


def summary(record: TrainingRecord) -> dict[str, Any]:
    """Return the run's row in W&B's table: how it ended, and each protocol's errors with their
    intervals."""
    row: dict[str, Any] = {
        "status": record.status,
        "epochs": record.epochs,
        "wall_s": record.wall_s,
    }
    for name, result in record.protocols.items():
        row |= {
            f"{name}/{key}": getattr(result, key)
            for key in ("top1_error_pct", "top5_error_pct", "num_images", "split")
        }
    for compared in paper_comparison(record):
        measure = compared.measure.replace("-", "")
        row |= {
            f"{compared.protocol}/{measure}_{end}_pct": getattr(compared, end)
            for end in ("low", "high")
        }
    return {key: value for key, value in row.items() if value is not None}
