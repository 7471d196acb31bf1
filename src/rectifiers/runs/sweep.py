"""A sweep on disk: a folder of cells, each a frozen configuration, whose state is read from the runs' own files."""

import copy
import functools
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from rectifiers.runs.lock import is_held
from rectifiers.runs.lookup import NotYet, finished, prepare, run_folder
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.signals import INTERRUPTED, TRY_AGAIN

LEFT = (0, TRY_AGAIN, INTERRUPTED)  # ends of a start that are no failure
SECONDS_A_QUESTION = 5  # to a scheduler


class State(StrEnum):
    """What is known of a cell's run."""

    DONE = "done"
    DIVERGED = "diverged"
    RUNNING = "running"
    FAILED = "failed"
    QUEUED = "queued"  # at a scheduler
    WAITING = "waiting"  # for another run whose drop epochs it takes
    PRINTED = "printed"  # its command was, for a scheduler that is not known here
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
            write_text(sweep / "cells" / f"{cell.name}.yaml", yaml.safe_dump(asdict(cell), sort_keys=False))


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
    """Read a sweep's cells, the cheapest first; of those that cost the same, seed by seed, then by name."""
    cells = [load_cell(path) for path in sorted((sweep / "cells").glob("*.yaml"))]
    if not cells:
        raise InputError(f"{sweep} holds no sweep; make one with scripts/sweep.py plan {sweep} <overrides>")
    return sorted(cells, key=lambda cell: (cell.cost, cell.config["seed"], cell.name))


def log_path(sweep: Path, cell: Cell) -> Path:
    """Return where a local launch keeps what a cell printed."""
    return sweep / "logs" / f"{cell.name}.log"


def _end_path(sweep: Path, cell: Cell) -> Path:
    return log_path(sweep, cell).with_suffix(".exit")


def _job_path(sweep: Path, cell: Cell) -> Path:
    return log_path(sweep, cell).with_suffix(".job")


def note_start(sweep: Path, cell: Cell) -> None:
    """Forget how the last start of a cell ended."""
    _end_path(sweep, cell).unlink(missing_ok=True)


def note_end(sweep: Path, cell: Cell, status: int, said: str = "") -> None:
    """Keep how the last start of a cell ended, and in which words."""
    write_text(_end_path(sweep, cell), f"{status}\n{said}\n")


def note_job(sweep: Path, cell: Cell, where: str) -> None:
    """Keep where a cell was handed to: `slurm <job>`, `local <process>`, or `printed`."""
    note_start(sweep, cell)
    write_text(_job_path(sweep, cell), where)


def last_words(sweep: Path, cell: Cell) -> str:
    """Return what a failed cell said last."""
    for path in (_end_path(sweep, cell), log_path(sweep, cell)):
        said = path.read_text().strip().splitlines()[-1:] if path.is_file() else []
        if said and not said[0].lstrip("-").isdigit():
            return said[0]
    return ""


def state(sweep: Path, cell: Cell) -> State:
    """Read what has become of a cell from its run's folder, its lock, its last end, and the scheduler that has it."""
    config = copy.deepcopy(cell.config)
    try:
        prepare(config)
    except NotYet:
        return State.WAITING
    except InputError:  # the run that it refers to has diverged, say; starting it tells
        return State.FAILED
    folder = run_folder(config)
    if folder is not None and is_held(folder):
        return State.RUNNING
    record = cell.record()
    if record is not None:
        return State.DIVERGED if record["status"] == "diverged" else State.DONE
    job = _job_path(sweep, cell)
    cluster, _, number = job.read_text().partition(" ") if job.is_file() else ("", "", "")
    alive = _is_alive(cluster, number, int(time.monotonic() // SECONDS_A_QUESTION))
    if alive:
        return State.QUEUED
    end = _end_path(sweep, cell)
    if end.is_file():
        return State.MISSING if int(end.read_text().split()[0]) in LEFT else State.FAILED
    if cluster == "printed":
        return State.PRINTED
    return State.MISSING if alive is None else State.FAILED  # killed by its scheduler, without a word


def _is_alive(cluster: str, number: str, moment: int) -> bool | None:
    """Return whether a scheduler still has a job; None where that cannot be known."""
    if cluster == "local":
        return Path(f"/proc/{number}").exists()
    queue = _slurm_queue(moment) if cluster == "slurm" else None
    return None if queue is None else number in queue


@functools.lru_cache(maxsize=1)
def _slurm_queue(moment: int) -> frozenset[str] | None:
    """The jobs that SLURM has, each of an array, asked once a moment; None where it does not answer."""
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--array", "--format=%i"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return frozenset(asked.stdout.split()) if asked.returncode == 0 else None
