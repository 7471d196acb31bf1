"""One holder at a time; neither its children nor those who only look are in the way."""

import errno
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rectifiers.runs.folder import is_locked, lock_for_child, run_lock
from rectifiers.runtime.errors import InputError


def test_a_killed_holders_child_does_not_hold_the_run(tmp_path: Path) -> None:
    """The child stands for a loader's worker, which takes seconds to notice that its parent is
    gone."""
    forking = multiprocessing.get_context("fork")
    here, there = forking.Pipe()

    def hold() -> None:
        with run_lock(tmp_path / "run"):
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
            run_lock(tmp_path / "run", patience_s=0),
        ):
            pass
        holder.kill()
        holder.join()
        assert Path(f"/proc/{child}").exists()
        with run_lock(tmp_path / "run", patience_s=0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_looking_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    """The probe takes the lock for an instant; without patience about one start in some hundred
    would be refused."""
    with run_lock(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
    assert not is_locked(tmp_path / "run")
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_locked(tmp_path / "run")

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(300):
            with run_lock(tmp_path / "run"):
                pass
    finally:
        over.set()
        watcher.join()


def test_a_lock_that_is_a_symbolic_link_is_neither_followed_nor_truncated(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("words")
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks" / "run").symlink_to(victim)
    with (
        pytest.raises(InputError, match=r"runs_dir=.* cannot be locked \(.*symbolic link"),
        run_lock(tmp_path / "run"),
    ):
        pass
    assert not is_locked(tmp_path / "run")
    assert victim.read_text() == "words"


def test_a_folder_of_locks_that_is_a_symbolic_link_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / ".locks").symlink_to(tmp_path / "victim", target_is_directory=True)
    with pytest.raises(InputError, match="symbolic link"), run_lock(tmp_path / "run"):
        pass
    with pytest.raises(InputError, match="symbolic link"):
        lock_for_child(tmp_path / "run")
    assert not list((tmp_path / "victim").iterdir())


@pytest.mark.parametrize("missing", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_gives_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(missing, os.strerror(missing))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(InputError, match=r"on a file system with locks"),
        run_lock(tmp_path / "run"),
    ):
        pass
    assert not is_locked(tmp_path / "run")


def test_two_processes_that_look_do_not_take_each_other_for_a_holder(tmp_path: Path) -> None:
    with run_lock(tmp_path / "run"):
        pass
    with open(tmp_path / ".locks" / "run") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as another process that looks has it
        assert not is_locked(tmp_path / "run")
