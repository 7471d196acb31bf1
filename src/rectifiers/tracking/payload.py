"""What W&B is told of a run: plain data from its configuration and record, without the client."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rectifiers.results.paper_comparison import Comparison, paper_comparison
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Provenance

TAGS = ("activation", "init", "model")
LONGEST_TAG = 64  # of W&B's
TITLE = ("model", "activation", "init", "data")
COMPARISON_COLUMNS = tuple(field.name for field in dataclasses.fields(Comparison))


def title(choices: Mapping[str, Any]) -> str:
    """Return the name that is shown; the run's identity is its id."""
    return " ".join(str(choices[group]) for group in TITLE if choices.get(group))


def tags(choices: Mapping[str, Any]) -> list[str]:
    """Return the activation, the initialiser and the model that were chosen."""
    return [str(choices[group])[:LONGEST_TAG] for group in TAGS if choices.get(group)]


def group(choices: Mapping[str, Any]) -> str | None:
    """Return the table that the run's experiment belongs to, or its sweep, or None."""
    if choices.get("experiment"):
        return str(choices["experiment"]).partition("/")[0]
    return f"sweep {choices['sweep']}" if choices.get("sweep") else None


def config(run: str, choices: Mapping[str, Any], science: Mapping[str, Any], provenance: Provenance) -> dict[str, Any]:
    """Return the run's config: the choices and the seed flat, for grouping; the science and where it was run, nested.

    W&B writes the path of a nested key in two ways, one to group by it and one to filter by it.
    """
    chosen = {name: option for name, option in choices.items() if option is not None}
    machine = {f"machine_{key}": value for key, value in provenance.machine.model_dump().items()}
    where = provenance.model_dump(exclude={"machine", "versions"})
    return {**chosen, "run": run, "seed": science["seed"], "science": dict(science), "provenance": {**where, **machine}}


def row(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Return an epoch's numbers as they are logged: those that are numbers, as in the record."""
    return {key: value for key, value in epoch.items() if value is not None and math.isfinite(value)}


def summary(record: TrainingRecord) -> dict[str, Any]:
    """Return what stands in the table of runs: how it ended, and errors with their interval for every protocol."""
    found: dict[str, Any] = {"status": record.status, "epochs": record.epochs, "wall_s": record.wall_s}
    for name, result in record.protocols.items():
        found |= {f"{name}/{key}": getattr(result, key) for key in ("top1_error_pct", "top5_error_pct", "num_images")}
    for compared in paper_comparison(record):
        measure = compared.measure.replace("-", "")
        found |= {f"{compared.protocol}/{measure}_low_pct": compared.low}
        found |= {f"{compared.protocol}/{measure}_high_pct": compared.high}
    return {key: value for key, value in found.items() if value is not None}


def comparison_rows(record: TrainingRecord) -> list[list[Any]]:
    """Return the rows of the table `paper_vs_measured`, under COMPARISON_COLUMNS."""
    return [list(dataclasses.astuple(compared)) for compared in paper_comparison(record)]
