"""A run's folder has one holder at a time, and a training that begins in it cleans up."""

import errno
import fcntl
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from rectifiers.runs.folder import begin, run_lock
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file


def test_killed_holders_child_does_not_hold(tmp_path: Path) -> None:
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


def test_a_lock_never_follows_a_symbolic_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("words")
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks" / "run").symlink_to(victim)
    with (
        pytest.raises(InputError, match=r"runs_dir=.* cannot be locked \(.*symbolic link"),
        run_lock(tmp_path / "run"),
    ):
        pass
    assert victim.read_text() == "words"


@pytest.mark.parametrize("missing", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_missing_locks_are_named(tmp_path: Path, monkeypatch, missing: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(missing, os.strerror(missing))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(InputError, match=r"on a file system with locks"),
        run_lock(tmp_path / "run"),
    ):
        pass


def test_training_removes_half_written_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "scores").mkdir(parents=True)
    for kept in ("last.ckpt", "scores/center.npz"):
        (folder / kept).write_bytes(b"whole")
        with atomic_file(folder / kept) as file:
            (part,) = (folder / kept).parent.glob("*.part")
            file.write(b"whole")
            half = part.with_name(f"{Path(kept).name}.other-host.1.part")  # of a killed process
            half.write_bytes(b"half")
    begin(folder, rerun=False)
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    assert left == ["last.ckpt", "scores/center.npz"]
