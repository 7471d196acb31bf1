"""All runs as columns, for the page's list and its comparisons."""

import json
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rectifiers.results.comparison import MISSING, flat
from rectifiers.results.eligibility import exclusion_reason
from rectifiers.results.listing import Found, usual_protocol
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.page.charts import rounded
from rectifiers.results.page.predictions import labels_and_predictions
from rectifiers.results.statistics import Z_95
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.files import CHECKOUT

GROUPS = ("experiment", "model", "activation", "init", "data")
CURVES = ("val/top1_error_pct", "val/top5_error_pct", "train_loss")
TRAINING = {
    "status",
    "diverged",
    "epochs",
    "images",
    "drop_epochs",
    "wall_s",
    "images_per_second",
    "warnings",
}
MAX_MASK_DIGITS = 6_000_000  # in one page; above it protocols are left out, the usual one last


def column(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Return a column as its different values, in order of appearance, and each entry's place among
    them."""
    places: dict[Hashable, int] = {}
    different: list[Any] = []
    at: list[int] = []
    for value in values:
        key = value if isinstance(value, str) else json.dumps(value, sort_keys=True) + "\0"
        if key not in places:
            places[key] = len(different)
            different.append(value)
        at.append(places[key])
    return {"values": different, "at": at}


def _columns(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    keys = sorted({key for mapping in mappings for key in mapping})
    return {key: column(mapping.get(key, MISSING) for mapping in mappings) for key in keys}


def names(found: Sequence[Found]) -> list[str]:
    """Return what the page calls each run: by its name, but a committed record beside an own run by
    name and origin."""
    own = {each.record.run for each in found if each.folder}
    runs = [(each.record.run, each.folder is None) for each in found]
    return [f"{run} (committed)" if committed and run in own else run for run, committed in runs]


def rows(found: Sequence[Found], page: Path) -> dict[str, Any]:
    """Return what the list shows: columns over runs, and the results of each protocol."""
    records = [each.record for each in found]
    trainings = [record if isinstance(record, TrainingRecord) else None for record in records]
    protocols = sorted({name for record in records for name in record.protocols})
    return {
        "z": Z_95,
        "usual": usual_protocol(found),
        "run": names(found),
        "whose": column("committed" if each.folder is None else "yours" for each in found),
        "seed": [record and record.seed for record in trainings],
        "epochs": [record and record.epochs for record in trainings],
        "status": column(record.status for record in records),
        "code": column(map(code_of, records)),
        "machine": column(map(machine_of, records)),
        "groups": {
            group: column(record.choices.get(group) for record in records) for group in GROUPS
        },
        "link": column(_link(each, page) for each in found),
        "path": column(_shown(each.path).replace(each.record.run, "{}") for each in found),
        "exclusion_reason": column(map(exclusion_reason, records)),
        "protocols": {name: _results(name, records) for name in protocols},
    }


def _shown(path: Path) -> str:
    inside = CHECKOUT is not None and path.resolve().is_relative_to(CHECKOUT)
    return os.path.relpath(path, CHECKOUT) if inside else path.as_posix()


def _link(found: Found, page: Path) -> str:
    relative = Path(os.path.relpath(found.path.absolute(), page.absolute().parent)).as_posix()
    return quote(relative).replace(found.record.run, "{}")


def _results(name: str, records: Sequence[Record]) -> dict[str, Any]:
    tested = {
        i: record.protocols[name] for i, record in enumerate(records) if name in record.protocols
    }
    results = list(tested.values())
    return {
        "at": list(tested),
        "errors": [r.top1_errors for r in results],
        "top5": [
            None if r.top5_correct is None else r.num_images - r.top5_correct for r in results
        ],
        "num_images": column(r.num_images for r in results),
        "cost": column(r.multiply_adds for r in results),
        "code": column(r.code for r in results),
        "settings": column(r.settings for r in results),
        **{key: [rounded(getattr(r, key)) for r in results] for key in ("nll", "ece", "brier")},
    }


def details(found: Sequence[Found]) -> dict[str, Any]:
    """Return what is read only when a run is opened or compared."""
    records = [each.record for each in found]
    trainings = [record if isinstance(record, TrainingRecord) else None for record in records]
    labels, predictions = labels_and_predictions(found, names(found))
    return {
        "command": [record.command for record in records],
        "science": _columns([flat(record.science) for record in records]),
        "provenance": _columns(
            [{**flat(r.provenance.model_dump()), "codes": r.codes} for r in records]
        ),
        "training": _columns([_training(record) for record in records]),
        "curves": {
            key: [_curve(record, key) if record else [] for record in trainings] for key in CURVES
        },
        "slopes": [
            {layer: rounded(slope.mean) for layer, slope in record.slopes.items()} if record else {}
            for record in trainings
        ],
        "correct": _correct(dict(zip(names(found), records, strict=True)), usual_protocol(found)),
        "labels": labels,
        "predictions": predictions,
    }


def _training(record: Record) -> dict[str, Any]:
    values = {
        key: value
        for key, value in record.model_dump(include=TRAINING).items()
        if value not in (None, [])
    }
    values |= flat({"images": values.pop("images", {})})
    return {
        key: rounded(value) if isinstance(value, float) else value for key, value in values.items()
    }


def _curve(record: TrainingRecord, key: str) -> list[float | None]:
    values = [rounded(row.get(key)) for row in record.history]
    return values if any(value is not None for value in values) else []


def _correct(records: Mapping[str, Record], usual: str | None) -> dict[str, dict[str, str]]:
    """The masks of correct answers by protocol and run, as far as there is room."""
    room, masks_of = MAX_MASK_DIGITS, {}
    protocols = {name for record in records.values() for name in record.protocols}
    for name in sorted(protocols, key=lambda each: (each != usual, each)):
        masks = {
            run: r.protocols[name].correct_mask for run, r in records.items() if name in r.protocols
        }
        size = sum(map(len, masks.values()))
        if size <= room:
            room -= size
            masks_of[name] = masks
    return masks_of
