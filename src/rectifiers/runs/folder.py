"""A run's folder: held by one process, or one group of them, at a time; begun, continued or set aside."""

import fcntl
import itertools
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from rectifiers.runtime.distributed import launch_id
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text

MARK = "launch"  # which launch of several processes began it


@contextmanager
def held(folder: Path, patience_s: float = 1) -> Iterator[None]:
    """Hold the run of `folder` for this process; the system releases it however the process ends.

    The lock is a file in `.locks` beside the folder, because a rerun moves the folder away. filelock closes it in
    forked children (a loader's worker outlives its killed parent by seconds), and opens no symbolic link.

    patience_s: how long to wait for it: `is_held` has it for an instant, and a process that is being ended for longer.

    Raises:
        InputError: where another process holds it; the message says where. Also where there can be no lock.
    """
    path = _lock_path(folder)
    lock = FileLock(path, timeout=patience_s, fallback_to_soft=False, on_acquired=_write_holder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InputError(f"run {folder.name} is in progress {_holder(path)}; wait for it, or end it first") from None
    except OSError as error:
        raise InputError(
            f"runs_dir={folder.parent} cannot be locked ({error}); give one that can be written, on a file system with "
            "locks"
        ) from error
    try:
        yield
    finally:
        lock.release()


def lock_for_child(folder: Path) -> int | None:
    """Take the lock of `folder` and return a descriptor to start a process with, or None where the lock is held.

    The process holds the lock until it ends or closes the descriptor, from before its own code runs.
    """
    path = _lock_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    if lock_descriptor(file, blocking=False):
        _write_holder(file)
        return file
    os.close(file)
    return None


def is_held(folder: Path) -> bool:
    """Return whether a process holds the run of `folder` now.

    The lock that is asked for here is a shared one, which filelock does not have: two processes that look do not see
    each other, and looking needs no right to write. Where there can be no lock, nothing is held.
    """
    with suppress(OSError), ExitStack() as stack:
        file = os.open(_lock_path(folder), os.O_RDONLY | os.O_NOFOLLOW)
        stack.callback(os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_path(folder: Path) -> Path:
    return folder.parent / ".locks" / folder.name


def _write_holder(file: int) -> None:
    """Write who holds a lock into its file, for the message that another process prints."""
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%F %T")}
    with suppress(OSError):  # a full disk is reported where it matters
        os.ftruncate(file, 0)
        os.write(file, json.dumps(holder).encode())


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"on {holder['host']} (process {holder['pid']}, since {holder['since']})"
    except (OSError, ValueError, KeyError):
        return "elsewhere"


def begin(folder: Path, *, rerun: bool) -> None:
    """Make the folder ready for a training.

    For a rerun, a folder with a record becomes `replaced/<id>-<n>`, n from 1: nothing is deleted. A run without a
    record was killed and continues, also where it is itself a rerun.
    """
    if rerun and (folder / "record.json").exists():
        attic = folder.parent / "replaced"
        attic.mkdir(exist_ok=True)
        places = (attic / f"{folder.name}-{n}" for n in itertools.count(1))
        folder.rename(next(place for place in places if not place.exists()))
    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.glob("*.part"):
        part.unlink()  # what a kill left half written
    began = launch_id()
    if began:
        write_text(folder / MARK, began)


def begun_by(folder: Path, launches: Iterable[str | None]) -> bool:
    """Return whether one of `launches` began what lies in the folder, so that a restart is no second rerun."""
    return (folder / MARK).is_file() and (folder / MARK).read_text() in launches
