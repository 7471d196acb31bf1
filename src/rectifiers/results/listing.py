"""Runs on disk: found, filtered, listed, and two of them compared."""

import difflib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from os.path import isfile
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console

from rectifiers.results.frame import frame
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct, mcnemar
from rectifiers.runs import record as records
from rectifiers.runs.folder import record_paths
from rectifiers.runs.identity import settings
from rectifiers.runs.links import LATEST
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.console import duration, printable, say, table
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject, flat

USUAL_PROTOCOL = "ten_view"  # of the paper's tables
MISSING = "(not there)"
# of runs that nobody knows the date of
ORDER = ("data", "experiment", "model", "activation", "init")
MIXED = "one was tested on the images that chose (data.protocol=paper), the other on unseen images"
RUN_KEYS = ("wall_s", "images_per_second", "epochs", "drop_epochs", "status")
COLUMNS = ("experiment", "model", "activation", "init", "data", "seed", "optim.lr", "epochs")
ORIGIN = {"split": "tested on", "origin": "origin", "code": "code", "machine": "machine"}
EFFORT = ("date", "duration", "command")
LATEST_DATE = 2**33  # s since 1970; a file's may be later than a calendar has
MIXED_NOTE = "tested on val: these images chose the learning rate's drops; do not compare with test"
WIDEST = 10_000  # characters of a line


@dataclass(frozen=True)
class Run:
    """A record with the file that it was read from. written_s: when that was written, s since 1970;
    0 for a committed record, whose file is as old as the checkout."""

    record: Record
    path: Path
    written_s: float = 0.0

    @property
    def origin(self) -> str:
        """`own` for a run whose folder exists, `committed` for a record alone."""
        return "own" if self.path.name == "record.json" else "committed"

    @property
    def date(self) -> str | None:
        """When the record was written, in ISO 8601 and local time, or None."""
        if not self.written_s:
            return None
        return datetime.fromtimestamp(self.written_s).isoformat(" ", "minutes")


def read(paths: Iterable[Path]) -> list[Run]:
    """Return the records of files; an unusable file is left out with a message on stderr."""
    runs = []
    for path in paths:
        try:
            is_own = path.name == "record.json"
            written_s = os.stat(path).st_mtime if is_own else 0.0
            runs.append(Run(records.load(path), path, max(0.0, min(written_s, LATEST_DATE))))
        except (InputError, OSError) as error:
            say(f"left out: {error}")
    return runs


def gather(*folders: Path, nested: bool = False) -> list[Run]:
    """Return the runs of folders that hold `*.json` or runs, the newest first; those that have no
    date, as committed records, come last, sorted by their choices. A committed record that is equal
    to an own one is left out.

    nested: whether runs in folders within are among them; see `record_paths`."""
    runs = []
    for folder in folders:
        runs += read([*sorted(folder.glob("*.json")), *record_paths(folder, nested=nested)])
    own = {run.record.run: run.record for run in runs if run.origin == "own"}
    kept = [run for run in runs if run.origin == "own" or own.get(run.record.run) != run.record]

    def order(run: Run) -> tuple[object, ...]:
        names = [str(run.record.choices.get(group) or "") for group in ORDER]
        return (-run.written_s, *names, run.record.seed, run.record.run)

    return sorted(kept, key=order)


def find(runs: Sequence[Run], name: str) -> Run:
    """Return the run of a name, of the beginning of one, of `latest`, or of a record's path; of an
    own run and a committed record of one name, the own run."""
    if name == LATEST:
        places = (run.path.parent.with_name(LATEST) for run in runs if run.origin == "own")
        name = str(next((place for place in places if isfile(place / "record.json")), name))
    path = Path(name)
    if path.suffix == ".json" or isfile(path / "record.json"):
        path = path / "record.json" if path.is_dir() else path
        return Run(records.load(path), path)
    by_name = {run.record.run: run for run in reversed(runs)}  # the own run replaces the committed
    names = [run for run in reversed(by_name) if name and run.startswith(name)]
    if len(names) == 1:
        return by_name[names[0]]
    if names:
        first = ", ".join(names[:5])
        raise InputError(f"{name} begins the names of {len(names)} runs, {first}; give more digits")
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "scripts/report.py show lists all"
    raise InputError(f"{name} is not a run, nor the path of a record; {hint}")


def facts(record: Record) -> JsonObject:
    """Return what a run can be filtered by: name, status, protocols, choices, keys of science."""
    names = {"run": record.run, "status": record.status, "protocol": sorted(record.protocols)}
    return {**settings(record.science), **record.choices, **names}


def select(runs: Sequence[Run], filters: Iterable[str]) -> list[Run]:
    """Return the runs that fit every `key=value`; `key=a,b` fits either value."""
    selected, all_facts = list(runs), {run.path: facts(run.record) for run in runs}
    for text in filters if runs else ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{text} is not a filter; give key=value, as in activation=prelu")
        values = [keys.get(key, MISSING) for keys in all_facts.values()]
        if set(map(str, values)) == {MISSING}:
            raise InputError(_unknown(key, sorted(set().union(*all_facts.values()))))

        # a value may hold a comma itself
        options = [value] if any(_fits(x, value) for x in values) else value.split(",")
        for option in options:
            if not any(_fits(x, option) for x in values):
                items = [item for x in values for item in (x if isinstance(x, list) else [x])]
                known = ", ".join(sorted({*map(_cell, items)} - {MISSING})[:20])
                raise InputError(f"no run has {key}={option}; there are: {known}")

        selected = [
            run
            for run in selected
            if any(_fits(all_facts[run.path].get(key, MISSING), option) for option in options)
        ]
    return selected


def _unknown(key: str, known: Sequence[str]) -> str:
    near = [name for name in known if name.rpartition(".")[2] == key]
    near = near or difflib.get_close_matches(key, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the keys are: {', '.join(known)}"
    return f"{key} is not a key of these runs; {hint}"


def _fits(value: object, text: str) -> bool:
    """Whether a filter's text is a value of a run, or an item of it, as text or as JSON."""
    with suppress(ValueError):
        if json.loads(text) == value:
            return True
    return text in (value if isinstance(value, list) else [value])


def usual_protocol(runs: Sequence[Run]) -> str | None:
    """Return the protocol to show by default: the paper's ten views, or that of most runs."""
    counts = Counter(sorted(name for run in runs for name in run.record.protocols))
    return max(counts, key=lambda name: (name == USUAL_PROTOCOL, counts[name]), default=None)


def summaries(runs: Sequence[Run], protocol: str | None) -> list[JsonObject]:
    """Return one row per run, as plain data: what it is, and its error by `protocol`."""
    rows = frame([run.record for run in runs], protocol)
    rows = rows.drop(columns=["record", "result", "setting", "images"])
    rows["protocol"] = protocol
    rows["origin"] = [run.origin for run in runs]
    rows["path"] = [os.path.relpath(run.path) for run in runs]
    rows["date"] = [run.date for run in runs]
    rows["wall_s"] = [getattr(run.record, "wall_s", None) for run in runs]
    rows["command"] = [run.record.command for run in runs]
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


def runs_table(rows: Sequence[JsonObject], protocol: str | None) -> str:
    """Return the summaries of runs as a table; what all of them share stands above it."""
    rows = [row | {"duration": _duration(row["wall_s"])} for row in rows]
    columns = (*COLUMNS, *ORIGIN, *EFFORT)
    shared = {k: rows[0][k] for k in columns if rows and all(r[k] == rows[0][k] for r in rows)}
    before = [key for key in (EFFORT[0], *COLUMNS, *ORIGIN) if key not in shared]
    after = [key for key in EFFORT[1:] if key not in shared]
    choices = [f"{key}={shared[key]}" for key in COLUMNS if shared.get(key) is not None]
    named = ORIGIN | {key: key for key in EFFORT}
    origin = [f"{named[key]} {shared[key]}" for key in named if shared.get(key) is not None]
    head = f"{len(rows)} run{'' if len(rows) == 1 else 's'}  {' '.join(choices)}".rstrip()
    parts = [printable(text) for text in (head, ", ".join(origin)) if text]

    if rows:
        lines = []
        for row in rows:
            cells = {key: "-" if value is None else value for key, value in row.items()}
            line = [cells[key] for key in ("run", *before)]
            lines.append([*line, *_error_cells(row), *(cells[key] for key in after)])
        names = [ORIGIN.get(key, key) for key in before]
        head_cells = ["run", *names, f"{protocol} %", "95 % interval", *after]
        parts.append(f"\n{text_table(head_cells, lines)}")
    if {"val", "test"} <= {row["split"] for row in rows}:
        parts.append(MIXED_NOTE)
    return "\n".join(parts)


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)


def _error_cells(row: JsonObject) -> tuple[str, str]:
    """A run's error and its interval; how it ended where it was not tested."""
    if row["top1_error_pct"] is None:
        return ("-" if row["status"] == "finished" else row["status"]), "-"
    return f"{row['top1_error_pct']:.2f}", f"{row['low_pct']:.2f} to {row['high_pct']:.2f}"


def text_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as wide as its cells."""
    cells = [[_cell(value) for value in row] for row in rows]
    console = Console(file=StringIO(), width=WIDEST)
    with console.capture() as printed:
        console.print(table(head, cells, box=SIMPLE_HEAD, show_edge=False))
    return "\n".join(map(str.rstrip, printed.get().splitlines()))


def _cell(value: object) -> str:
    if not isinstance(value, str):
        return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
    return value


def differences(one: JsonObject, other: JsonObject) -> dict[str, tuple[object, object]]:
    """Return (value in one, value in the other) of every key that differs, sorted by key."""
    keys = sorted(one.keys() | other.keys())
    pairs = {key: (one.get(key, MISSING), other.get(key, MISSING)) for key in keys}
    return {key: (a, b) for key, (a, b) in pairs.items() if a != b}


def compare(one: Record, other: Record) -> JsonObject:
    """Return all that differs between two runs, as plain data. `results` has of each protocol that
    both were tested by the errors in percent with their intervals (Wilson, 95 %), the difference in
    points (None where only one is of `data.protocol=paper`), and McNemar's test where both have the
    same images."""
    pair = (one, other)
    training = []
    for record in pair:
        images = record.images.model_dump() if isinstance(record, TrainingRecord) else {}
        facts_of_run = {key: getattr(record, key, None) for key in RUN_KEYS}
        training.append(facts_of_run | flat({"images": images}))

    shared = sorted(one.protocols.keys() & other.protocols.keys())
    return {
        "runs": [record.run for record in pair],
        "origins": [{"code": code_of(r), "machine": machine_of(r)} for r in pair],
        "configuration": differences(settings(one.science), settings(other.science)),
        "training": differences(*training),
        "provenance": differences(*(flat(record.provenance.model_dump()) for record in pair)),
        "results": {name: _compare_results(one, other, name) for name in shared},
        "only_one_has": sorted(one.protocols.keys() ^ other.protocols.keys()),
    }


def _compare_results(one: Record, other: Record, protocol: str) -> JsonObject:
    pair = one.protocols[protocol], other.protocols[protocol]
    errors = [result.top1_error_pct for result in pair]
    reason, paired = None, None
    if pair[0].split != pair[1].split:
        reason = MIXED
    elif one.provenance.data != other.provenance.data or pair[0].num_images != pair[1].num_images:
        reason = "other images"
    else:
        first, second, p = mcnemar(*(result.is_correct() for result in pair))
        paired = {"only_one_right": first, "only_other_right": second, "p": p}

    return {
        "top1_error_pct": errors,
        "interval_pct": [error_interval_pct(r.top1_errors, r.num_images) for r in pair],
        "difference": None if reason == MIXED else errors[1] - errors[0],
        "paired": paired,
        "unpaired_reason": reason,
        "same_settings": pair[0].settings == pair[1].settings,
    }


def comparison_table(comparison: JsonObject) -> str:
    """Return what `compare` returns as tables for a terminal."""
    runs = comparison["runs"]
    parts = []
    for run, origin in zip(runs, comparison["origins"], strict=True):
        parts.append(printable(f"{run}: code {origin['code']} on {origin['machine']}"))
    for part in ("configuration", "training", "provenance"):
        rows = [[key, *pair] for key, pair in comparison[part].items()]
        parts.append(f"\n{text_table([part, *runs], rows)}" if rows else f"\n{part}: no difference")

    rows = []
    for name, result in comparison["results"].items():
        pairs = zip(result["top1_error_pct"], result["interval_pct"], strict=True)
        errors = [f"{error:.2f} ({low:.2f} to {high:.2f})" for error, (low, high) in pairs]
        difference = "-" if result["difference"] is None else f"{result['difference']:+.2f}"
        test = (result["unpaired_reason"], "-")
        if only := result["paired"]:
            test = (f"{only['only_one_right']} / {only['only_other_right']}", f"{only['p']:.2g}")
        label = name if result["same_settings"] else f"{name} (other settings)"
        rows.append([label, *errors, difference, *test])

    if rows:
        head = ["top-1 error, %", *runs, "difference", "only one right", "McNemar p"]
        parts.append(f"\n{text_table(head, rows)}")
    if names := ", ".join(comparison["only_one_has"]):
        parts.append(f"\ntested in one of them only: {printable(names)}")
    return "\n".join(parts)
