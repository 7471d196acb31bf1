"""A run's folder has one holder at a time, and a training that begins in it cleans up."""

import errno
import fcntl
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from conftest import TINY, compose_config
from made_up import diverged, result, training
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import begin, find, run_folder, run_lock, scores_path
from rectifiers.runs.identity import science
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
        refused = pytest.raises(InputError, match=rf"is in progress .* \(process {holder.pid},")
        with refused, run_lock(tmp_path / "run", patience_s=0):
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
    refused = pytest.raises(InputError, match=r"runs_dir=.* cannot be locked \(.*symbolic link")
    with refused, run_lock(tmp_path / "run"):
        pass
    assert victim.read_text() == "words"


@pytest.mark.parametrize("missing", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_missing_locks_are_named(tmp_path: Path, monkeypatch, missing: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(missing, os.strerror(missing))

    monkeypatch.setattr(fcntl, "flock", refuse)
    refused = pytest.raises(InputError, match=r"on a file system with locks")
    with refused, run_lock(tmp_path / "run"):
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


def test_what_a_run_lacks(tmp_path: Path) -> None:
    config = compose_config(*TINY, "evaluation=center", f"runs_dir={tmp_path}/runs")
    keeping = config.replaced({"evaluation.keep_scores": True})
    settings, folder = config.evaluation.protocols["center"].as_dict(), run_folder(config)
    assert folder is not None
    own = {"science": science(config)}

    def lacking(asked: RunConfig, **tested: object) -> tuple[str, ...]:
        center = result(3, 5, **{"settings": settings, **tested})
        records.write(folder / "record.json", training(protocols={"center": center}, **own))
        found = find(asked)
        assert found is not None
        assert found.is_complete == (not found.lacking)
        return found.lacking

    assert lacking(config) == ()
    assert lacking(config, settings={"other": 1}) == ("center",)
    assert lacking(keeping, scores="ab") == ("center",)
    scores_path(folder, "center").parent.mkdir()
    scores_path(folder, "center").touch()
    assert lacking(keeping, scores="ab") == ()
    records.write(folder / "record.json", diverged(**own))
    found = find(config)
    assert found is not None
    assert found.is_complete
    records.write(folder / "record.json", diverged())  # as of a folder that was copied
    with pytest.raises(InputError, match=r"record.json is of run .*; remove it"):
        find(config)
