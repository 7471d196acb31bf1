"""Runs as a list, and two of them side by side: as plain data, and as tables for the terminal."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rectifiers.results.listing import Found
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import printable

GROUPS = ("model", "activation", "init", "data")
RATE = "optim.lr"
TESTED = "tested on"
ORIGIN = (TESTED, "origin", "code", "machine")  # of a result; its run's name does not tell them
TEXT: dict[str, Any] = {"overflow": "fold"}
NUMBER: dict[str, Any] = {"justify": "right", "no_wrap": True}


def plain(value: Any, style: str = "") -> Text:
    """Return any value of a record as text that can neither colour nor command a terminal."""
    text = (
        value
        if isinstance(value, str)
        else f"{value:.6g}"
        if isinstance(value, float)
        else json.dumps(value)
    )
    return Text(printable(text), style)


def summary(found: Found, protocol: str | None) -> dict[str, Any]:
    """Return a run in a line: what it is, and its error by `protocol` where it was tested by
    that."""
    record = found.record
    training = record if isinstance(record, TrainingRecord) else None
    result = record.protocols.get(protocol) if protocol else None
    return {
        "run": record.run,
        "experiment": record.choices.get("experiment"),
        **{group: record.choices.get(group) for group in GROUPS},
        "seed": training and training.seed,
        RATE: training and training.science["optim"]["lr"],
        "epochs": training and training.epochs,
        "code": code_of(record),
        "machine": machine_of(record),
        "origin": found.origin,
        "status": record.status,
        "protocol": protocol,
        "top1_error_pct": result and result.top1_error_pct,
        "interval_pct": result and list(error_interval_pct(result.top1_errors, result.num_images)),
        "top5_error_pct": result and result.top5_error_pct,
        "num_images": result and result.num_images,
        TESTED: result and result.split,
        "record": os.path.relpath(found.path),
    }


def runs_table(runs: Sequence[Mapping[str, Any]], protocol: str | None) -> Group:
    """Return the summaries of runs as a table, a line each; what all of them share stands above
    it."""
    keys = ("experiment", *GROUPS, "seed", RATE, "epochs", *ORIGIN)
    varying = [key for key in keys if len({json.dumps(run[key]) for run in runs}) > 1]
    shared = {
        key: runs[0][key]
        for key in keys
        if runs and key not in varying and runs[0][key] is not None
    }
    choices = " ".join(f"{key}={value}" for key, value in shared.items() if key not in ORIGIN)
    parts: list[Any] = [
        plain(f"{len(runs)} run{'s' * (len(runs) != 1)}  {choices}".rstrip(), "bold")
    ]
    if origin := [f"{key} {shared[key]}" for key in ORIGIN if key in shared]:
        parts.append(plain(", ".join(origin)))
    if runs:
        columns = [(key, NUMBER if key in ("seed", RATE, "epochs") else TEXT) for key in varying]
        table = _table(
            ("run", {"no_wrap": True}),
            *columns,
            (f"{protocol} %", NUMBER),
            ("95 % interval", NUMBER),
        )
        for run in runs:
            table.add_row(
                *(plain("-" if run[key] is None else run[key]) for key in ("run", *varying)),
                *_error(run),
            )
        parts.append(table)
    if {"val", "test"} <= {run[TESTED] for run in runs}:
        parts.append(
            plain(
                f"{TESTED} val: the images that chose were tested too; such errors and others "
                "do not compare"
            )
        )
    return Group(*parts)


def _error(run: Mapping[str, Any]) -> tuple[str, str]:
    if run["top1_error_pct"] is None:
        return ("-" if run["status"] == "finished" else run["status"]), "-"
    low, high = run["interval_pct"]
    return f"{run['top1_error_pct']:.2f}", f"{low:.2f} to {high:.2f}"


def comparison_table(comparison: Mapping[str, Any]) -> Group:
    """Return what `comparison.compare` returns as tables."""
    runs = comparison["runs"]
    origins = zip(runs, comparison["origins"], strict=True)
    parts: list[Any] = [
        plain(f"{run}: code {origin['code']} on {origin['machine']}") for run, origin in origins
    ]
    for part in ("configuration", "training", "provenance"):
        table = _table(*((name, TEXT) for name in (part, *runs)))
        for key, pair in comparison[part].items():
            table.add_row(plain(key), *map(plain, pair))
        parts.append(table if comparison[part] else Text(f"{part}: no difference"))
    if comparison["results"]:
        parts.append(_results(comparison))
    if comparison["only_one_has"]:
        parts.append(plain(f"tested in one of them only: {', '.join(comparison['only_one_has'])}"))
    return Group(*parts)


def _results(comparison: Mapping[str, Any]) -> Table:
    numbers = [(name, NUMBER) for name in (*comparison["runs"], "difference")]
    paired = [("only one right", {"justify": "right"}), ("McNemar p", NUMBER)]
    table = _table(("top-1 error, %", TEXT), *numbers, *paired)
    for name, result in comparison["results"].items():
        pairs = zip(result["top1_error_pct"], result["interval_pct"], strict=True)
        errors = [f"{error:.2f}\n{low:.2f} to {high:.2f}" for error, (low, high) in pairs]
        test = (result["unpaired_reason"], "-")
        if only := result["paired"]:
            test = (f"{only['only_one_right']} / {only['only_other_right']}", f"{only['p']:.2g}")
        label = name if result["same_settings"] else f"{name} (other settings)"
        table.add_row(
            plain(label),
            *errors,
            "-" if result["difference"] is None else f"{result['difference']:+.2f}",
            *test,
        )
    return table


def _table(*columns: tuple[str, Mapping[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, options in columns:
        table.add_column(name, **options)
    return table
