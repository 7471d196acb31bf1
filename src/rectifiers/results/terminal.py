"""Runs as a list, and two of them side by side: as plain data, and as tables for the terminal."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rectifiers.results.frame import frame
from rectifiers.results.listing import Run
from rectifiers.runtime.console import printable

KEYS = ("experiment", "model", "activation", "init", "data", "seed", "optim.lr", "epochs")
NUMBERS = ("seed", "optim.lr", "epochs")
# of a result, with their words; its run's name does not tell them
ORIGIN = {"split": "tested on", "origin": "origin", "code": "code", "machine": "machine"}
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


def summaries(runs: Sequence[Run], protocol: str | None) -> list[dict[str, Any]]:
    """Return each run in a line, as plain data: what it is, and its error by `protocol`."""
    rows = frame([run.record for run in runs], protocol)
    rows = rows.drop(columns=["record", "result", "setting", "images"])
    rows["protocol"] = protocol
    rows["origin"] = [run.origin for run in runs]
    rows["path"] = [os.path.relpath(run.path) for run in runs]
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


def runs_table(rows: Sequence[Mapping[str, Any]], protocol: str | None) -> Group:
    """Return the summaries of runs as a table, a line each; what all of them share stands above
    it."""
    shared = {
        key: rows[0][key]
        for key in (*KEYS, *ORIGIN)
        if rows and all(row[key] == rows[0][key] for row in rows)
    }
    varying = [key for key in (*KEYS, *ORIGIN) if rows and key not in shared]
    shared = {key: value for key, value in shared.items() if value is not None}
    choices = " ".join(f"{key}={shared[key]}" for key in KEYS if key in shared)
    head = f"{len(rows)} run{'s' * (len(rows) != 1)}  {choices}".rstrip()
    parts: list[Any] = [plain(head, "bold")]
    if origin := [f"{ORIGIN[key]} {shared[key]}" for key in ORIGIN if key in shared]:
        parts.append(plain(", ".join(origin)))
    if rows:
        columns = [(ORIGIN.get(key, key), NUMBER if key in NUMBERS else TEXT) for key in varying]
        errors = [(f"{protocol} %", NUMBER), ("95 % interval", NUMBER)]
        table = _table(("run", {"no_wrap": True}), *columns, *errors)
        for row in rows:
            cells = [plain("-" if row[key] is None else row[key]) for key in ("run", *varying)]
            table.add_row(*cells, *_error(row))
        parts.append(table)
    if {"val", "test"} <= {row["split"] for row in rows}:
        parts.append(
            plain(
                "tested on val: the images that chose were tested too; such errors and others do "
                "not compare"
            )
        )
    return Group(*parts)


def _error(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["top1_error_pct"] is None:
        return ("-" if row["status"] == "finished" else row["status"]), "-"
    return f"{row['top1_error_pct']:.2f}", f"{row['low_pct']:.2f} to {row['high_pct']:.2f}"


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
