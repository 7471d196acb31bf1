"""A sweep on disk: a folder of cells, each a frozen configuration, whose state is read from the runs' own files."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from rectifiers.config import InputError
from rectifiers.runs import record as records
from rectifiers.runs.lock import is_held
from rectifiers.runs.lookup import finished, prepare, run_folder


class State(StrEnum):
    """What is known of a cell's run."""

    DONE = "done"
    DIVERGED = "diverged"
    RUNNING = "running"
    FAILED = "failed"
    WAITING = "waiting"  # for another run whose drop epochs it takes
    MISSING = "missing"


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what was typed for it, the configuration and choices that made, and what it costs.

    cost: multiply-adds of the whole training, forward and backward. code: of the source at the time of planning.
    """

    name: str
    overrides: list[str]
    config: dict[str, Any]
    choices: dict[str, Any]
    cost: int
    code: str

    def folder(self) -> Path | None:
        """Return its run's folder, or None while that waits for another run."""
        config = copy.deepcopy(self.config)
        try:
            prepare(config)
        except InputError:
            return None
        return run_folder(config)

    def record(self) -> dict[str, Any] | None:
        """Return the record of its run, with all that was asked for in it, or None."""
        config = copy.deepcopy(self.config)
        try:
            prepare(config)
            found = finished(config)
        except InputError:
            return None
        return None if found is None else found[0]


def write(sweep: Path, cells: Sequence[Cell]) -> None:
    """Keep the cells of a new sweep; one that is there already stays as it is.

    Raises:
        InputError: where the sweep exists with other cells.
    """
    names = {cell.name for cell in cells}
    known = {path.stem for path in (sweep / "cells").glob("*.yaml")}
    if known - names:
        raise InputError(
            f"{sweep} is another sweep, with {len(known - names)} cells that this one has not; name it anew"
        )
    for cell in cells:
        if cell.name not in known:
            records.write_text(sweep / "cells" / f"{cell.name}.yaml", yaml.safe_dump(asdict(cell), sort_keys=False))


def load_cell(path: Path) -> Cell:
    """Read one cell.

    Raises:
        InputError: where the file is none.
    """
    try:
        return Cell(**yaml.safe_load(path.read_text()))
    except (OSError, TypeError, yaml.YAMLError) as fault:
        raise InputError(f"{path} is no cell of a sweep ({fault}); plan the sweep anew") from fault


def load(sweep: Path) -> list[Cell]:
    """Read a sweep's cells, the cheapest first, and in the order of their names where they cost the same."""
    cells = [load_cell(path) for path in sorted((sweep / "cells").glob("*.yaml"))]
    if not cells:
        raise InputError(f"{sweep} holds no sweep; make one with scripts/sweep.py plan {sweep} <overrides>")
    return sorted(cells, key=lambda cell: (cell.cost, cell.name))


def log_path(sweep: Path, cell: Cell) -> Path:
    """Return where a local launch keeps what a cell printed; its exit status stands beside it, in `.exit`."""
    return sweep / "logs" / f"{cell.name}.log"


def state(sweep: Path, cell: Cell) -> State:
    """Read what has become of a cell from its run's folder, its lock and its last exit status."""
    folder = cell.folder()
    if folder is None:
        return State.WAITING
    if is_held(folder):
        return State.RUNNING
    record = cell.record()
    if record is not None:
        return State.DIVERGED if record["status"] == "diverged" else State.DONE
    ended = log_path(sweep, cell).with_suffix(".exit")
    return State.FAILED if ended.is_file() and ended.read_text().strip() != "0" else State.MISSING
