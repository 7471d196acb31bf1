"""Runs on disk, chosen by what they are."""

import difflib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os.path import isfile  # unlike Path.is_file: False of a name that is too long for a path
from pathlib import Path
from typing import Any

from rectifiers.results.comparison import flat
from rectifiers.runs import record as records
from rectifiers.runs.record import Record
from rectifiers.runtime.errors import InputError

USUAL_PROTOCOL = "ten_view"  # of the paper's tables


@dataclass(frozen=True)
class Run:
    """A record with the file that it was read from."""

    record: Record
    path: Path

    @property
    def origin(self) -> str:
        """`own` for a run whose folder is here, `committed` for a record alone."""
        return "own" if self.path.name == "record.json" else "committed"


def read(paths: Iterable[Path]) -> list[Run]:
    """Return the records of files; one that holds none is left out, with a sentence on stderr."""
    runs = []
    for path in paths:
        try:
            runs.append(Run(records.load(path), path))
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
    return runs


def gather(*folders: Path) -> list[Run]:
    """Return the runs of folders that hold `*.json` or `*/record.json`, sorted by what they are.

    One name can have two results, an own one and a committed one, by other code or on another
    machine: both are kept, the own one first. A committed record that is equal to the own one is
    left out."""
    runs = []
    for folder in folders:
        runs += read(sorted([*folder.glob("*.json"), *folder.glob("*/record.json")]))
    own = {run.record.run: run.record for run in runs if run.origin == "own"}
    kept = [run for run in runs if run.origin == "own" or own.get(run.record.run) != run.record]
    return sorted(kept, key=_order)


def _order(run: Run) -> tuple[Any, ...]:
    choices, groups = run.record.choices, ("data", "experiment", "model", "activation", "init")
    names = [str(choices.get(group) or "") for group in groups]
    return (*names, run.record.seed, run.record.run, run.origin == "committed")


def find(runs: Sequence[Run], name: str) -> Run:
    """Return the run of a name, of the beginning of one, or of a record's path.

    A name that is of an own run and of a committed record is the own run's; the other one has a
    path.

    Raises:
        InputError: where there is none, or several.
    """
    path = Path(name)
    if path.suffix == ".json" or isfile(path / "record.json"):
        path = path / "record.json" if path.is_dir() else path
        return Run(records.load(path), path)
    by_name = {run.record.run: run for run in reversed(runs)}  # of two the first, the own one
    names = [run for run in reversed(by_name) if name and run.startswith(name)]
    if len(names) == 1:
        return by_name[names[0]]
    if names:
        raise InputError(
            f"{name} begins the names of {len(names)} runs, {', '.join(names[:5])}; give more "
            "digits"
        )
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}?" if near else "scripts/report.py show lists all"
    raise InputError(f"{name} is not a run, nor the path of a record; {meant}")


def facts(record: Record) -> dict[str, Any]:
    """Return what a run can be chosen by: its name and status, the choices, and the keys of its
    science."""
    names = {"run": record.run, "status": record.status, "protocol": sorted(record.protocols)}
    return {**flat(record.science), **record.choices, **names}


def select(runs: Sequence[Run], filters: Iterable[str]) -> list[Run]:
    """Return the runs that fit every `key=value`; `key=a,b` fits either value.

    Raises:
        InputError: for a key that no run has, or a value that no run has there.
    """
    selected = [(run, facts(run.record)) for run in runs]
    every = [keys for _, keys in selected]
    for text in filters:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{text} is not a filter; give key=value, as in activation=prelu")
        values = [keys[key] for keys in every if key in keys]
        if runs and not values:
            raise InputError(_unknown(key, sorted(set().union(*every))))
        options = [value] if any(_fits(x, value) for x in values) else value.split(",")
        for option in options:
            if runs and not any(_fits(x, option) for x in values):
                known = sorted({name for x in values for name in _texts(x)})
                raise InputError(f"no run has {key}={option}; there are: {', '.join(known[:20])}")
        selected = [
            (run, keys)
            for run, keys in selected
            if key in keys and any(_fits(keys[key], option) for option in options)
        ]
    return [run for run, _ in selected]


def _unknown(key: str, known: Sequence[str]) -> str:
    near = [name for name in known if name.rpartition(".")[2] == key]
    near = near or difflib.get_close_matches(key, known, n=3)
    meant = f"did you mean {' or '.join(near)}?" if near else f"the keys are: {', '.join(known)}"
    return f"{key} is not a key of these runs; {meant}"


def _texts(value: Any) -> list[str]:
    if value is None:
        return ["null"]
    if isinstance(value, bool):
        return [str(value).lower()]
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _fits(value: Any, text: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return text in _texts(value) or (
        isinstance(value, list) and text == str(value).replace(" ", "")
    )


def usual_protocol(runs: Sequence[Run]) -> str | None:
    """Return the protocol to show where none is asked for: the paper's ten views, or what most runs
    were tested by."""
    counts = Counter(name for run in runs for name in run.record.protocols)
    if USUAL_PROTOCOL in counts:
        return USUAL_PROTOCOL
    return max(sorted(counts), key=counts.__getitem__, default=None)
