"""`scripts/sweep.py`: cells on disk, started as far as they are missing, by processes and by submitit."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, TINY, load_script
from rectifiers.runs.sweep import State, last_words, load, note_job, state
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import Stopped
from rectifiers.training.cells import Job, run_cell
from rectifiers.training.epoch_end import EpochEnd

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def call(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "scripts/sweep.py", *arguments],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done


def plan(place: Path, *overrides: str) -> str:
    sweep = str(place / "sweep")
    call("plan", sweep, *TINY, f"runs_dir={place}/runs", f"cache_dir={place}/cache", *overrides)
    return sweep


def states(sweep: str) -> dict[str, str]:
    """State by what was typed for the cell last."""
    return {cell["overrides"][-1]: cell["state"] for cell in json.loads(call("status", sweep, "--json").stdout)}


@pytest.mark.process
def test_a_sweep_is_planned_launched_broken_and_completed(tmp_path: Path) -> None:
    sweep = plan(tmp_path, "optim.epochs=1", "seed=0,1", "optim.lr=0.01,1000000.0")
    cells = load(Path(sweep))
    assert [cell.cost for cell in cells] == [3 * 3392 * 1347] * 4
    assert set(states(sweep).values()) == {"missing"}
    assert len(call("launch", sweep, "--print").stdout.splitlines()) == 4

    call("launch", sweep, "--jobs", "2")
    assert states(sweep) == {"optim.lr=0.01": "done", "optim.lr=1000000.0": "diverged"}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    assert len(before) == 4
    next(path for path in before if '"finished"' in path.read_text()).unlink()
    assert sorted(cell["state"] for cell in json.loads(call("status", sweep, "--json").stdout)) == [
        "diverged", "diverged", "done", "missing",
    ]  # fmt: skip
    call("launch", sweep)  # only what is missing
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    assert sum(after[path] != before[path] for path in before) == 1

    rows = json.loads(call("collect", sweep, "--json").stdout)
    assert {(row["protocol"], row["n"], row["planned"]) for row in rows} == {("center", 2, 2), ("ten_view", 2, 2)}
    assert all("optim.lr=0.01" in row["setting"] for row in rows)
    assert "2 of 2" in call("collect", sweep).stdout


@pytest.mark.process
def test_what_failed_is_named_and_what_waits_comes_after_what_it_waits_for(tmp_path: Path) -> None:
    sweep = plan(
        tmp_path, "optim.epochs=1", "activation=relu,prelu",
        "optim.drop_epochs_from={activation:{_target_:rectifiers.activations.relu}}",
    )  # fmt: skip
    relu, prelu = (next(c for c in load(Path(sweep)) if c.choices["activation"] == name) for name in ("relu", "prelu"))
    assert relu.folder() is None  # it would wait for itself
    told = call("launch", sweep, status=1).stderr
    assert f"waiting: {prelu.name}" in told
    sweep = plan(tmp_path / "other", "optim.epochs=1", "activation=relu")
    path = next((Path(sweep) / "cells").glob("*.yaml"))
    cell = yaml.safe_load(path.read_text())
    cell["config"]["optim"]["global_batch"] = 10**6
    path.write_text(yaml.safe_dump({**cell, "code": "older"}))
    told = call("launch", sweep, status=1).stderr
    assert "the source has changed since this was planned (older; now " in told
    assert f"failed: {cell['name']} " in told
    assert "optim.global_batch=1000000 is more than the 1347 training images" in told


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("plan", "SWEEP", "seed=0,0"), "are the same run; leave one out"),
        (("plan", "SWEEP", "nonsense=1"), "Could not override 'nonsense'"),
        (("plan", "SWEEP", "seed=-1"), "seed=-1 is not usable"),
        (("launch", "SWEEP"), "holds no sweep; make one with scripts/sweep.py plan"),
        (("launch", "SWEEP", "--jobs", "0"), "--jobs=0 is not usable; give a whole number at least 1"),
        (("run", "SWEEP/x.yaml"), "is no cell of a sweep"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = call(*(argument.replace("SWEEP", str(tmp_path / "s")) for argument in arguments), status=1)
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_ctrl_c_stops_the_runs_which_go_on_when_launched_again(tmp_path: Path) -> None:
    sweep = plan(tmp_path, "optim.epochs=60", "checkpoint.every_n_steps=5")
    process = subprocess.Popen(
        [sys.executable, "scripts/sweep.py", "launch", sweep], cwd=ROOT, env=ENVIRONMENT, text=True,
        stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    end = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/metrics.csv")):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert set(states(sweep).values()) == {"running"}
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.count("stopped by SIGINT") == 1
    assert f"go on with: python scripts/sweep.py launch {sweep}" in err
    assert set(states(sweep).values()) == {"missing"}
    call("launch", sweep)
    log = next((Path(sweep) / "logs").glob("*.log")).read_text()
    assert "continuing from" in log
    assert set(states(sweep).values()) == {"done"}


def planned(place: Path, *overrides: str) -> Path:
    """The same without a process."""
    sweep = place / "sweep"
    load_script("sweep").plan(sweep, [*TINY, f"runs_dir={place}/runs", f"cache_dir={place}/cache", *overrides])
    return sweep


def test_a_printed_cell_says_so_and_where_it_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sweep = planned(tmp_path, "optim.epochs=1", "seed=0")
    program, (cell,) = load_script("sweep"), load(sweep)
    asked = argparse.Namespace(jobs=1, print=True, cluster=None)
    for _ in range(2):  # a second time too: nobody here knows whether the first list was used
        program.launch(sweep, asked)
        assert state(sweep, cell) == State.PRINTED
    lines = [shlex.split(line) for line in capfd.readouterr().out.splitlines() if "sweep.py run" in line]
    assert len(lines) == 2
    assert all(Path(word).is_absolute() for word in (*lines[0][:2], lines[0][3]))
    bad = replace(cell, config={**cell.config, "optim": {**cell.config["optim"], "global_batch": 10**6}})
    with pytest.raises(InputError, match="more than the 1347 training images"):
        run_cell(sweep, bad)
    assert state(sweep, cell) == State.FAILED
    assert last_words(sweep, cell).startswith("error: optim.global_batch=1000000 is more than")
    run_cell(sweep, cell)
    assert state(sweep, cell) == State.DONE


def test_what_a_scheduler_has_is_queued_and_what_it_lost_has_failed(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "seed=0")
    (cell,) = load(sweep)
    waiting = subprocess.Popen(["sleep", "60"])
    try:
        note_job(sweep, cell, f"local {waiting.pid}")
        assert state(sweep, cell) == State.QUEUED
    finally:
        waiting.kill()
        waiting.wait()
    assert state(sweep, cell) == State.FAILED


def test_paths_of_a_cell_hold_wherever_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = planned(Path("here"), "seed=0")
    config = load(sweep)[0].config
    assert (config["runs_dir"], config["cache_dir"]) == (f"{tmp_path}/here/runs", f"{tmp_path}/here/cache")


RELU = "{activation:{_target_:rectifiers.activations.relu}}"


def test_what_waits_for_a_run_has_a_name_of_its_own_and_fails_where_that_diverges(tmp_path: Path) -> None:
    sweep = planned(
        tmp_path, "optim.epochs=1", "optim.lr=1000000.0", "activation=relu,prelu", f"optim.drop_epochs_from=null,{RELU}"
    )
    cells = {(c.choices["activation"], c.config["optim"]["drop_epochs_from"] is None): c for c in load(sweep)}
    assert len(cells) == 4  # with a reference and without are two runs, whatever will come of them
    arm = cells["prelu", False]
    assert state(sweep, arm) == State.WAITING
    assert run_cell(sweep, cells["relu", True]).record["status"] == "diverged"
    assert state(sweep, arm) == State.FAILED


def test_a_job_that_must_make_room_stops_cleanly_and_is_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """submitit's own handler is a stand-in: its contract is to be called with the signal, and to queue the job."""
    sweep = planned(tmp_path, "optim.epochs=2", "optim.global_batch=128")
    (cell,) = load(sweep)
    begin, queued = EpochEnd.on_train_epoch_end, []

    def asked(*arguments: object) -> None:
        signal.raise_signal(signal.SIGUSR2)
        begin(*arguments)  # type: ignore[arg-type]

    former = signal.signal(signal.SIGUSR2, lambda *_: queued.append(job.checkpoint().function))
    try:
        job = Job(sweep, cell)
        with monkeypatch.context() as patch:
            patch.setattr(EpochEnd, "on_train_epoch_end", asked)
            with pytest.raises(Stopped):
                job()
        assert queued == [job]
        assert list(tmp_path.glob("runs/*/last.ckpt"))
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        assert Path(queued[0]()).is_file()
    finally:
        signal.signal(signal.SIGUSR2, former)


@pytest.mark.slow
def test_submitits_failures_are_told(tmp_path: Path) -> None:
    sweep = plan(tmp_path, "optim.epochs=1")
    path = next((Path(sweep) / "cells").glob("*.yaml"))
    cell = yaml.safe_load(path.read_text())
    cell["config"]["optim"]["global_batch"] = 10**6
    path.write_text(yaml.safe_dump(cell))
    told = call("launch", sweep, "--cluster", "local", "--set", "timeout_min=5", status=1).stderr
    assert f"failed: {cell['name']} " in told
    assert "optim.global_batch=1000000 is more than" in told


@pytest.mark.slow
def test_submitit_runs_the_cells(tmp_path: Path) -> None:
    sweep = plan(tmp_path, "optim.epochs=1", "seed=0,1")
    call("launch", sweep, "--cluster", "local", "--set", "timeout_min=5")
    assert set(states(sweep).values()) == {"done"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "runs"),
    [
        (["hydra/launcher=processes", "seed=0,1"], 2),
        (["sweep=learning_rate", "hydra.sweeper.n_trials=3"], 3),
    ],
)
def test_hydras_launcher_and_sweeper(tmp_path: Path, overrides: list[str], runs: int) -> None:
    command = [sys.executable, "train.py", "--multirun", *TINY, "optim.epochs=1", *overrides]
    places = [f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"]
    done = subprocess.run([*command, *places], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/record.json"))) == runs
