"""A run's folder: where it is and what is in it, by which process it is held, begun, continued or
set aside.

It needs no torch: what is done already is answered at once.
"""

import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

# unlike Path's: False of a name that is too long for a path
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Generic, TypeVar

from filelock import FileLock, Timeout

from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.record import EnsembleRecord, TrainingRecord, load_training
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, refuse_link

LARGEST_NOTE = 2**16  # bytes
DEEPEST = 4  # of folders within a folder of runs
REPLACED = "replaced"  # in a folder of runs
WRITTEN = ("scores", "wandb", "tensorboard", "checkpoints")  # folders of a run's folder
R = TypeVar("R", TrainingRecord, EnsembleRecord)


@dataclass(frozen=True)
class Found:
    """A run's record, where it lies, and the protocols that are asked for and it was not tested
    by."""

    record: TrainingRecord
    path: Path
    lacking: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing that is asked for is left to do."""
        return self.record.status == "diverged" or not self.lacking


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """A run's record, where it lies, and whether this call made it (False: it was there
    already)."""

    record: R
    path: Path
    fresh: bool


def run_folder(config: RunConfig) -> Path | None:
    """Return the run's folder, or None where its name waits for the hash of data or weights."""
    return None if config.awaits_content else config.runs_dir / run_id(science(config))


def find(config: RunConfig) -> Found | None:
    """Return what there is of the run of `config`; None without a record, and where it is to be run
    again."""
    folder = run_folder(config)
    if folder is None or config.rerun or not exists(folder / "record.json"):
        return None

    record = load_training(folder / "record.json")
    if record.run != folder.name:
        raise InputError(
            f"{folder / 'record.json'} is of run {record.run}; remove it, or give rerun=true"
        )

    lacking = []
    for name, protocol in config.evaluation.protocols.items():
        result = record.protocols.get(name)
        is_tested = result is not None and result.settings == protocol.as_dict()
        if is_tested and config.evaluation.keep_scores:
            is_tested = bool(result and result.scores) and scores_path(folder, name).is_file()
        if not is_tested:
            lacking.append(name)
    return Found(record, folder / "record.json", tuple(lacking))


def record_paths(runs: Path, *, nested: bool = True) -> list[Path]:
    """Return the paths of the records in a folder of runs, the outermost first. Links and replaced
    runs are left out.

    nested: whether to look into subfolders, such as those of searches, claims and cards."""
    found = []
    places = [runs] if isdir(runs) else []  # glob fails at a name that is too long
    for _ in range(DEEPEST if nested else 1):
        inner = [path for place in places for path in sorted(place.glob("*"))]
        inner = [path for path in inner if _may_hold_runs(path)]
        of_runs = [path for path in inner if exists(path / "record.json")]
        found += [path / "record.json" for path in of_runs]
        places = [path for path in inner if not exists(path / "record.json")]
    return found


def _may_hold_runs(folder: Path) -> bool:
    """Whether a folder is a run's or one of runs; a link may lead anywhere."""
    is_shown = folder.name != REPLACED and not folder.name.startswith(".")
    return is_shown and not folder.is_symlink() and isdir(folder)


def scores_path(folder: Path, protocol: str) -> Path:
    """Return where a run keeps the scores of a protocol."""
    return folder / "scores" / f"{protocol}.npz"


def check_ckpt_path(config: RunConfig) -> None:
    """Refuse a checkpoint that is not there."""
    if config.ckpt_path is not None and not isfile(config.ckpt_path):
        raise InputError(
            f"ckpt_path={config.ckpt_path} is not a file; give a checkpoint, or leave it out to "
            "continue from the run's newest one"
        )


@contextmanager
def run_lock(folder: Path, patience_s: float = 1) -> Iterator[None]:
    """Hold the run of `folder` for this process; the system releases it however the process ends.

    The lock is a file in `.locks` beside the folder, because a rerun moves the folder away.
    filelock closes it in forked children (a loader's worker outlives its killed parent by seconds),
    and opens no symbolic link.

    An InputError says which other process holds it. patience_s: how long to wait for it: a
    process that is being ended has it for a while.
    """
    path = folder.parent / ".locks" / folder.name
    for place in (path.parent, folder, *(folder / part for part in WRITTEN)):
        refuse_link(place)
    lock = FileLock(path, timeout=patience_s, fallback_to_soft=False, on_acquired=_write_holder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"run {folder.name} is in progress {_holder(path)}; wait for it, or end it first"
        ) from None
    except OSError as error:
        raise InputError(
            f"runs_dir={folder.parent} cannot be locked ({error}); give one that can be written, "
            "on a file system with locks"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _write_holder(file: int) -> None:
    """Write who holds a lock into its file, for the message that another process prints."""
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%F %T")}
    with suppress(OSError):  # a full disk is reported where it matters
        os.ftruncate(file, 0)
        os.write(file, json.dumps(holder).encode())


def _holder(path: Path) -> str:
    try:
        holder = json.loads(read_bytes(path, LARGEST_NOTE))
        return printable(f"on {holder['host']} (process {holder['pid']}, since {holder['since']})")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "elsewhere"


def begin(folder: Path, *, rerun: bool) -> None:
    """Make the folder ready for a training. For a rerun, a folder with a record becomes
    `replaced/<id>-<n>`: nothing is deleted. A run without a record was killed and continues."""
    if rerun and (folder / "record.json").exists():
        archive_dir = folder.parent / REPLACED
        refuse_link(archive_dir)
        archive_dir.mkdir(exist_ok=True)
        places = (archive_dir / f"{folder.name}-{n}" for n in itertools.count(1))
        folder.rename(next(place for place in places if not place.exists()))

    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.rglob("*.part"):  # also of scores/
        part.unlink()  # what a kill left half written
