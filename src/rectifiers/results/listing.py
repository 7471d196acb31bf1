"""Runs on disk, chosen by what they are."""

import difflib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os.path import isfile  # unlike Path.is_file: False of a name that is too long for a path
from pathlib import Path
from typing import Any

from rectifiers.results.comparison import flat
from rectifiers.runs import record as records
from rectifiers.runs.record import Record
from rectifiers.runtime.errors import InputError

DIRECT = ("run", "status", "protocol")  # besides the choices and the keys of the science
USUAL_PROTOCOL = "ten_view"  # of the paper's tables


@dataclass(frozen=True)
class Found:
    """A record, the file that it was read from, and the run's folder where that is here: then it is
    the user's own."""

    record: Record
    path: Path
    folder: Path | None = None

    @property
    def origin(self) -> str:
        """`own` for a run that is here, `committed` for a record alone."""
        return "committed" if self.folder is None else "own"


def _read(path: Path) -> Found:
    return Found(records.load(path), path, path.parent if path.name == "record.json" else None)


def read(paths: Iterable[Path]) -> Iterator[Found]:
    """Yield the records of files; a file that holds none is left out, with a sentence on stderr."""
    for path in paths:
        try:
            yield _read(path)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)


def gather(*folders: Path) -> list[Found]:
    """Return the runs of folders that hold `*.json` or `*/record.json`.

    One name can have two results, an own one and a committed one, by other code or on another
    machine: both are kept, the own one first. A committed record that is equal to the own one is
    left out."""
    paths = [
        path
        for folder in folders
        for path in sorted([*folder.glob("*.json"), *folder.glob("*/record.json")])
    ]
    found = list(read(paths))
    own = {each.record.run: each.record for each in found if each.folder}
    kept = [each for each in found if each.folder or own.get(each.record.run) != each.record]
    return sorted(kept, key=_order)


def _order(found: Found) -> tuple[Any, ...]:
    choices = found.record.choices
    groups = (
        str(choices.get(group) or "")
        for group in ("data", "experiment", "model", "activation", "init")
    )
    return (*groups, found.record.seed, found.record.run, found.folder is None)


def find(found: Sequence[Found], name: str) -> Found:
    """Return the run of a name, of the beginning of one, or of a record's path.

    A name that is of an own run and of a committed record is the own run's; the other one has a
    path.

    Raises:
        InputError: where there is none, or several.
    """
    path = Path(name)
    if path.suffix == ".json" or isfile(path / "record.json"):
        path = path / "record.json" if path.is_dir() else path
        return _read(path)
    by_name = {
        each.record.run: each for each in reversed(found)
    }  # of two the first, which is the own one
    names = [
        run
        for run in dict.fromkeys(each.record.run for each in found)
        if name and run.startswith(name)
    ]
    if len(names) == 1:
        return by_name[names[0]]
    if names:
        raise InputError(
            f"{name} begins the names of {len(names)} runs, {', '.join(names[:5])}; give more "
            "digits"
        )
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.5)
    meant = (
        f"did you mean {' or '.join(near)}?"
        if near
        else "scripts/report.py show prints what there is"
    )
    raise InputError(f"{name} is not a run, nor the path of a record; {meant}")


def facts(record: Record) -> dict[str, Any]:
    """Return what a run can be chosen by: its name and status, the choices, and the keys of its
    science."""
    return {
        **flat(record.science),
        **record.choices,
        "run": record.run,
        "status": record.status,
        "protocol": sorted(record.protocols),
    }


def select(found: Sequence[Found], filters: Iterable[str]) -> list[Found]:
    """Return the runs that fit every `key=value`; `key=a,b` fits either value.

    Raises:
        InputError: for a key that no run has, or a value that no run has there.
    """
    runs, fitting = [(each, facts(each.record)) for each in found], []
    for text in filters:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{text} is not a filter; give key=value, as in activation=prelu")
        values = [of_run[key] for _, of_run in runs if key in of_run]
        if found and not values:
            raise InputError(_unknown(key, sorted({name for _, of_run in runs for name in of_run})))
        alternatives = [value] if any(_fits(each, value) for each in values) else value.split(",")
        for one in alternatives:
            if found and not any(_fits(each, one) for each in values):
                known = sorted({name for each in values for name in _texts(each)})
                raise InputError(f"no run has {key}={one}; there are: {', '.join(known[:20])}")
        fitting.append((key, alternatives))
    return [
        each
        for each, of_run in runs
        if all(
            key in of_run and any(_fits(of_run[key], one) for one in ones) for key, ones in fitting
        )
    ]


def _unknown(key: str, known: Sequence[str]) -> str:
    near = [name for name in known if name.rpartition(".")[2] == key] or difflib.get_close_matches(
        key, known, n=3
    )
    meant = f"did you mean {' or '.join(near)}?" if near else f"the keys are: {', '.join(known)}"
    return f"{key} is not a key of these runs; {meant}"


def _texts(value: Any) -> list[str]:
    if value is None or isinstance(value, bool):
        return [str(value).lower() if value is not None else "null"]
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


def usual_protocol(found: Sequence[Found]) -> str | None:
    """Return the protocol to show where none is asked for: the paper's ten views, or what most runs
    were tested by."""
    counts = Counter(name for each in found for name in each.record.protocols)
    return (
        USUAL_PROTOCOL
        if USUAL_PROTOCOL in counts
        else max(sorted(counts), key=counts.__getitem__, default=None)
    )
