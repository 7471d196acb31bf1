"""One process, or one group of them, at a time in a run's folder."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rectifiers.config import InputError


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the run of `folder` for this process; the system lets go of it however the process ends.

    The lock is a file in `.locks` beside the folder, for a rerun moves the folder away. It stays there: removing it
    would let two processes hold two files of one name.

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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"run {folder.name} is in progress {_where(path)}; wait for it, or end it first") from None
        except OSError as fault:
            raise InputError(
                f"{path} cannot be locked ({fault}); give a runs_dir on a file system with locks"
            ) from fault
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%F %T")}
        with suppress(OSError):  # it is for people; a full disk is told of where it matters
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), json.dumps(holder).encode())
        yield


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
