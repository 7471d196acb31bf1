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
from rectifiers.runs.folder import (
    begin,
    find,
    record_paths,
    run_folder,
    run_lock,
    scores_path,
)
from rectifiers.runs.identity import science
from rectifiers.runs.links import link_run, readable_name
from rectifiers.runtime.files import atomic_file
from refusals import refused


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
        refusal = refused(rf"is in progress .* \(process {holder.pid},")
        with refusal, run_lock(tmp_path / "run", patience_s=0):
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
    refusal = refused(r"runs_dir=.* cannot be locked \(.*symbolic link")
    with refusal, run_lock(tmp_path / "run"):
        pass
    assert victim.read_text() == "words"


@pytest.mark.parametrize("missing", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_missing_locks_are_named(tmp_path: Path, monkeypatch, missing: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(missing, os.strerror(missing))

    monkeypatch.setattr(fcntl, "flock", refuse)
    refusal = refused(r"on a file system with locks")
    with refusal, run_lock(tmp_path / "run"):
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
    with refused(r"record.json is of run .*; remove it"):
        find(config)


def made_runs(base: Path, *names: str) -> list[Path]:
    """Folders with a record each, below `base`."""
    for name in names:
        (base / name).mkdir(parents=True)
        (base / name / "record.json").touch()
    return [base / name / "record.json" for name in names]


def test_nested_runs_are_found_on_request(tmp_path: Path) -> None:
    names = ("b", "a", "claims/d", "searches/older/still/c")
    paths = made_runs(tmp_path / "runs", *names)
    made_runs(tmp_path / "runs", "replaced/a-1", "claims/replaced/d-1", ".hidden/e", "a/inner")
    assert record_paths(tmp_path / "runs", nested=False) == [paths[1], paths[0]]
    assert record_paths(tmp_path / "runs") == [paths[1], paths[0], *paths[2:]]
    assert record_paths(tmp_path / "none") == []


def test_links_to_runs_are_not_followed(tmp_path: Path) -> None:
    (path,) = made_runs(tmp_path / "runs", "a")
    made_runs(tmp_path / "elsewhere", "b", "c")
    link_run(path.parent, "readable")
    (tmp_path / "runs" / "b").symlink_to(tmp_path / "elsewhere" / "b")
    (tmp_path / "runs" / "claims").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "by-name" / "c").symlink_to(tmp_path / "elsewhere" / "c")
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    assert record_paths(tmp_path / "runs") == [path]


def test_links_lead_to_the_run(tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        link_run(tmp_path / name, f"relu-{name}")
    assert os.readlink(tmp_path / "latest") == "a"
    links = {path.name: path.resolve() for path in (tmp_path / "by-name").iterdir()}
    assert links == {"relu-a": tmp_path / "a", "relu-b": tmp_path / "b"}
    assert os.readlink(tmp_path / "by-name" / "relu-a") == "../a"  # the folder may be moved


def test_links_replace_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "latest").write_text("mine")
    (tmp_path / "by-name").symlink_to(tmp_path / "victim")
    link_run(tmp_path / "run", "name")
    assert (tmp_path / "latest").read_text() == "mine"
    assert not list((tmp_path / "victim").iterdir())
    (tmp_path / "by-name").unlink()
    (tmp_path / "by-name").symlink_to(tmp_path / "nowhere")
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    link_run(tmp_path / "run", "name")
    assert not list((tmp_path / "latest").iterdir())


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize(("module", "name"), [(Path, "symlink_to"), (os, "replace")])
def test_a_file_system_without_links_is_no_error(
    tmp_path: Path, monkeypatch, capfd, module: object, name: str
) -> None:
    monkeypatch.setattr(module, name, refuse)
    (tmp_path / "run").mkdir()
    link_run(tmp_path / "run", "name")
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_rest_of_a_killed_process_hinders_no_link(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "run").mkdir()
    with monkeypatch.context() as killed:
        killed.setattr(os, "replace", refuse)
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        link_run(tmp_path / "run", "name")
    link_run(tmp_path / "run", "name")
    assert os.readlink(tmp_path / "latest") == "run"


def test_processes_link_at_once(tmp_path: Path) -> None:
    forking = multiprocessing.get_context("fork")

    def link(name: str) -> None:
        for _ in range(200):
            link_run(tmp_path / name, name)
            assert (tmp_path / "latest").is_dir()
            assert os.readlink(tmp_path / "by-name" / name) == f"../{name}"

    names = ["a", "b"]
    for name in names:
        (tmp_path / name).mkdir()
    processes = [forking.Process(target=link, args=(name,)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "by-name", "latest"]


def test_readable_names_hold_choices_and_settings() -> None:
    choices = {"data": "digits", "model": "mlp", "activation": "LeakyReLU(negative_slope=0.1)"}
    typed = ["model=mlp", "+model.extra=[1,2]", "optim.lr=0.1", "data.root=/home/me", "logger.x=y"]
    name = readable_name("0123456789ab", choices, 3, typed)
    expected = "digits-mlp-LeakyReLU_negative_slope=0.1_-model.extra=_1_2_-optim.lr=0.1-seed=3"
    assert name == f"{expected}-0123456789ab"
    long = readable_name("0123456789ab", {}, 0, [f"model.x={'../é' * 300}"])
    assert len(long.encode()) < 250
    assert "/" not in long
    assert long.endswith("-0123456789ab")
