"""All runs as columns, for the page's list and its comparisons."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rectifiers.results.comparison import MISSING, flat
from rectifiers.results.eligibility import exclusion_reason
from rectifiers.results.listing import Found, usual_protocol
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.page.blocks import short
from rectifiers.results.page.embedding import column
from rectifiers.results.page.images import classes_and_answers
from rectifiers.results.statistics import Z_95
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.files import CHECKOUT

GROUPS = ("experiment", "model", "activation", "init", "data")
CURVES = ("val/top1_error_pct", "val/top5_error_pct", "train_loss")
MOST_HITS = 6_000_000  # hexadecimal digits in one page; above it protocols are left out, the usual one last


def names(found: Sequence[Found]) -> list[str]:
    """Return what the page calls each run: by its name, but a committed record beside an own run by name and origin."""
    own = {each.record.run for each in found if each.origin == "own"}
    runs = [each.record.run for each in found]
    return [
        f"{run} (committed)" if each.origin == "committed" and run in own else run
        for run, each in zip(runs, found, strict=True)
    ]


def rows(found: Sequence[Found], page: Path) -> dict[str, Any]:
    """Return what the list shows: columns over runs, and the results of each protocol."""
    records = [each.record for each in found]
    protocols = sorted({name for record in records for name in record.protocols})
    return {
        "z": Z_95,
        "usual": usual_protocol(found),
        "run": names(found),
        "seed": [record.seed if isinstance(record, TrainingRecord) else None for record in records],
        "epochs": [record.epochs if isinstance(record, TrainingRecord) else None for record in records],
        "status": column([record.status for record in records]),
        "code": column([code_of(record) for record in records]),
        "machine": column([machine_of(record) for record in records]),
        "groups": {group: column([record.choices.get(group) for record in records]) for group in GROUPS},
        "link": column([_link(each, page) for each in found]),
        "path": column([_shown(each.path).replace(each.record.run, "{}") for each in found]),
        "left_out": column([exclusion_reason(record) for record in records]),
        "protocols": {name: _results(name, records) for name in protocols},
    }


def _shown(path: Path) -> str:
    inside = CHECKOUT is not None and path.resolve().is_relative_to(CHECKOUT)
    return os.path.relpath(path, CHECKOUT) if inside else path.as_posix()


def _link(found: Found, page: Path) -> str:
    relative = Path(os.path.relpath(found.path.absolute(), page.absolute().parent)).as_posix()
    return quote(relative).replace(found.record.run, "{}")


def _results(name: str, records: Sequence[Record]) -> dict[str, Any]:
    tested = [(i, record.protocols[name]) for i, record in enumerate(records) if name in record.protocols]
    results = [result for _, result in tested]
    return {
        "at": [i for i, _ in tested],
        "errors": [r.top1_errors for r in results],
        "top5": [None if r.top5_correct is None else r.num_images - r.top5_correct for r in results],
        "seen": column([r.num_images for r in results]),
        "cost": column([r.multiply_adds for r in results]),
        "code": column([r.code for r in results]),
        "settings": column([r.settings for r in results]),
        "nll": [_short(r.nll) for r in results],
        "ece": [_short(r.ece) for r in results],
        "brier": [_short(r.brier) for r in results],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else short(value)


def details(found: Sequence[Found]) -> dict[str, Any]:
    """Return what is read only when a run is opened or compared."""
    records = [each.record for each in found]
    called = names(found)
    labels, answers = classes_and_answers(found, called)
    return {
        "command": [record.command for record in records],
        "science": _columns([flat(record.science) for record in records]),
        "provenance": _columns([{**flat(r.provenance.model_dump()), "codes": r.codes} for r in records]),
        "training": _columns([_training(record) for record in records]),
        "curves": {key: [_curve(record, key) for record in records] for key in CURVES},
        "slopes": [
            {k: short(s.mean) for k, s in record.slopes.items()} if isinstance(record, TrainingRecord) else {}
            for record in records
        ],
        "hits": _hits(dict(zip(called, records, strict=True)), usual_protocol(found)),
        "labels": labels,
        "answers": answers,
    }


def _training(record: Record) -> dict[str, Any]:
    keys = ("status", "diverged", "epochs", "train_images", "drop_epochs", "wall_s", "images_per_second", "warnings")
    kept = {key: value for key, value in record.model_dump(include=set(keys)).items() if value not in (None, [])}
    return {key: short(value) if isinstance(value, float) else value for key, value in kept.items()}


def _columns(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    keys = sorted({key for table in tables for key in table})
    return {key: column([table.get(key, MISSING) for table in tables]) for key in keys}


def _curve(record: Record, key: str) -> list[float | None]:
    values = [row.get(key) for row in record.history] if isinstance(record, TrainingRecord) else []
    return [_short(value) for value in values] if any(v is not None for v in values) else []


def _hits(records: Mapping[str, Record], usual: str | None) -> dict[str, dict[str, str]]:
    """The masks of correct answers by protocol and run, as far as there is room."""
    room, kept = MOST_HITS, {}
    protocols = {name for record in records.values() for name in record.protocols}
    for name in sorted(protocols, key=lambda each: (each != usual, each)):
        masks = {run: r.protocols[name].correct_mask for run, r in records.items() if name in r.protocols}
        size = sum(map(len, masks.values()))
        if size <= room:
            room -= size
            kept[name] = masks
    return kept
