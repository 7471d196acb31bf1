"""Runs as a list, and two of them side by side, on the terminal and as plain data."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from rectifiers.results.listing import Found
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.record import TrainingRecord

GROUPS = ("model", "activation", "init", "data")
ORIGIN = ("origin", "code", "machine")  # of a result; its run's name does not tell them


def plain(value: Any) -> Text:
    """Return any value of a record as text that can neither colour nor command a terminal."""
    text = value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
    return Text("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text))


def summary(found: Found, protocol: str | None) -> dict[str, Any]:
    """Return a run in a line: what it is, and its error by `protocol` where it was tested by that."""
    record = found.record
    told: dict[str, Any] = {
        "run": record.run,
        "experiment": record.choices.get("experiment"),
        **{group: record.choices.get(group) for group in GROUPS},
        "seed": record.seed if isinstance(record, TrainingRecord) else None,
        "epochs": record.epochs if isinstance(record, TrainingRecord) else None,
        "code": code_of(record),
        "machine": machine_of(record),
        "origin": found.origin,
        "status": record.status,
        "protocol": protocol,
        "top1_error_pct": None,
        "interval_pct": None,
        "top5_error_pct": None,
        "num_images": None,
        "record": os.path.relpath(found.path),
    }
    result = record.protocols.get(protocol) if protocol else None
    if result:
        low, high = error_interval_pct(result.top1_errors, result.num_images)
        told |= {key: getattr(result, key) for key in ("top1_error_pct", "top5_error_pct", "num_images")}
        told["interval_pct"] = [low, high]
    return told


def list_runs(found: Sequence[Found], protocol: str | None, console: Console) -> None:
    """Print runs as a table, a line each; what all of them share stands above it."""
    told = [summary(each, protocol) for each in found]
    columns = ("experiment", *GROUPS, "seed", "epochs", *ORIGIN)
    apart = [key for key in columns if len({json.dumps(line[key]) for line in told}) > 1]
    shared = [key for key in columns if told and key not in apart and told[0][key] is not None]
    given = " ".join(f"{key}={told[0][key]}" for key in shared if key not in ORIGIN)
    console.print(plain(f"{len(told)} run{'s' * (len(told) != 1)}  {given}".rstrip()), style="bold")
    if origin := [f"{key} {told[0][key]}" for key in ORIGIN if key in shared]:
        console.print(plain(", ".join(origin)))
    if not told:
        return
    table = _table()
    for column in ("run", *apart):
        numeric = column in ("seed", "epochs")
        table.add_column(
            column, no_wrap=numeric or column == "run", justify="right" if numeric else "left", overflow="fold"
        )
    for column in (f"{protocol} %", "95 % interval"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in told:
        cells = [plain("-" if line[key] is None else line[key]) for key in ("run", *apart)]
        table.add_row(*cells, *_error(line))
    console.print(table)


def _error(line: Mapping[str, Any]) -> tuple[str, str]:
    if line["top1_error_pct"] is None:
        return ("-" if line["status"] == "finished" else line["status"]), "-"
    low, high = line["interval_pct"]
    return f"{line['top1_error_pct']:.2f}", f"{low:.2f} to {high:.2f}"


def print_comparison(told: Mapping[str, Any], console: Console) -> None:
    """Print what `comparison.compare` returns."""
    origins = zip(told["runs"], told["origins"], strict=True)
    parts: list[Any] = [plain(f"{run}: code {origin['code']} on {origin['machine']}") for run, origin in origins]
    for part in ("configuration", "training", "provenance"):
        if told[part]:
            parts.append(_pairs(part, told["runs"], told[part]))
        else:
            parts.append(Text(f"{part}: no difference"))
    if told["results"]:
        parts.append(_results(told))
    if told["only_one_has"]:
        parts.append(plain(f"tested in one of them only: {', '.join(told['only_one_has'])}"))
    console.print(Group(*parts), highlight=False)


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _pairs(title: str, runs: Sequence[str], pairs: Mapping[str, Sequence[Any]]) -> Table:
    table = _table()
    for column in (title, *runs):
        table.add_column(column, overflow="fold")
    for key, pair in pairs.items():
        table.add_row(plain(key), *map(plain, pair))
    return table


def _results(told: Mapping[str, Any]) -> Table:
    table = _table()
    table.add_column("top-1 error, %", overflow="fold")
    for column in (*told["runs"], "difference", "only one right", "McNemar p"):
        table.add_column(column, justify="right", no_wrap=column != "only one right")
    for name, result in told["results"].items():
        errors = [
            f"{error:.2f}\n{low:.2f} to {high:.2f}"
            for error, (low, high) in zip(result["top1_error_pct"], result["interval_pct"], strict=True)
        ]
        paired = result["paired"]
        apart = (
            (f"{paired['only_one_right']} / {paired['only_other_right']}", f"{paired['p']:.2g}")
            if paired
            else (result["why_not_paired"], "-")
        )
        label = name if result["same_settings"] else f"{name} (other settings)"
        table.add_row(plain(label), *errors, f"{result['difference']:+.2f}", *apart)
    return table
