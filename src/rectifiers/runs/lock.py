"""One process, or one group of them, at a time in a run's folder."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rectifiers.runtime.errors import InputError

_files: set[IO[str]] = set()


def _let_go() -> None:
    """In a child process: a loader's worker outlives its killed parent by seconds, and must not hold the run."""
    for file in _files:
        file.close()
    _files.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def held(folder: Path, patience_s: float = 1) -> Iterator[None]:
    """Hold the run of `folder` for this process; the system lets go of it however the process ends.

    The lock is a file in `.locks` beside the folder, for a rerun moves the folder away. It stays there: removing it
    would let two processes hold two files of one name.

    patience_s: how long to ask for it: `is_held` has it for an instant, and a process that is being ended for longer.

    Raises:
        InputError: where another process holds it; the message says where.
    """
    path = folder.parent / ".locks" / folder.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")  # noqa: SIM115 - it is closed below, whatever happens
    except OSError as fault:
        raise InputError(f"runs_dir={folder.parent} cannot be written ({fault}); give another") from fault
    with file:
        end = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise InputError(
                        f"run {folder.name} is in progress {_where(path)}; wait for it, or end it first"
                    ) from None
                time.sleep(0.05)
            except OSError as fault:
                raise InputError(
                    f"{path} cannot be locked ({fault}); give a runs_dir on a file system with locks"
                ) from fault
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%F %T")}
        with suppress(OSError):  # it is for people; a full disk is told of where it matters
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), json.dumps(holder).encode())
        _files.add(file)
        try:
            yield
        finally:
            _files.discard(file)


def is_held(folder: Path) -> bool:
    """Return whether a process holds the run of `folder` now."""
    try:
        with open(folder.parent / ".locks" / folder.name) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _where(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"on {holder['host']} (process {holder['pid']}, since {holder['since']})"
    except (OSError, ValueError, KeyError):
        return "elsewhere"
