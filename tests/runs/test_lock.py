"""One holder at a time; neither its children nor those who only look are in the way."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rectifiers.runs.lock import held, is_held
from rectifiers.runtime.errors import InputError


def test_a_killed_holders_child_does_not_hold_the_run(tmp_path: Path) -> None:
    """The child stands for a loader's worker, which takes seconds to notice that its parent is gone."""
    forking = multiprocessing.get_context("fork")
    here, there = forking.Pipe()

    def hold() -> None:
        with held(tmp_path / "run"):
            child = forking.Process(target=time.sleep, args=(60,))
            child.start()
            there.send(child.pid)
            time.sleep(60)

    holder = forking.Process(target=hold)
    holder.start()
    child = here.recv()
    try:
        with (
            pytest.raises(InputError, match=f"is in progress on .* \\(process {holder.pid}, since"),
            held(tmp_path / "run", patience_s=0),
        ):
            pass
        holder.kill()
        holder.join()
        assert Path(f"/proc/{child}").exists()
        with held(tmp_path / "run", patience_s=0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_looking_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    """The probe takes the lock for an instant; without patience about one start in some hundred would be refused."""
    with held(tmp_path / "run"):
        assert is_held(tmp_path / "run")
    assert not is_held(tmp_path / "run")
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_held(tmp_path / "run")

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(300):
            with held(tmp_path / "run"):
                pass
    finally:
        over.set()
        watcher.join()
