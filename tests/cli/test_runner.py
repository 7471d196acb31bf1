"""Many runs by a pool of processes, and by Hydra's joblib launcher."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import TINY, compose_config, places
from processes import alone, start, wait_for
from rectifiers.cli import runner
from rectifiers.cli.composition import compose_job, composed
from rectifiers.cli.runner import Job, Overrides, Progress, run_all, share_cores
from rectifiers.data.sources import Source, digits
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import run_folder, run_lock
from rectifiers.training.train import train
from refusals import refused

TOO_LARGE = "data.batch_size=1000000"  # an error that only the run itself finds
LONG = ("trainer.max_epochs=120", "checkpoint.every_n_steps=5")
RUN_ALL = """
import json, sys
from rectifiers.cli.runner import run_all
sys.exit(bool(run_all([tuple(run) for run in json.loads(sys.argv[1])], processes=2)))
"""


def run_of(place: Path, *overrides: str) -> Overrides:
    return (*TINY, *places(place), *overrides)


def folder_of(run: Overrides) -> Path:
    folder = run_folder(compose_job(run)[0])
    assert folder is not None
    return folder


def start_runner(*runs: Overrides) -> subprocess.Popen:
    command = [sys.executable, "-c", RUN_ALL, json.dumps(runs)]
    return start(command, new=True, start_new_session=True)


@pytest.mark.process
def test_failed_runs_do_not_stop_others(tmp_path: Path, capfd) -> None:
    short = "trainer.max_epochs=1"
    options = ("seed=0", "seed=1", "seed=2", "optim.lr=1e6", TOO_LARGE, "nonsense=1")
    runs = [run_of(tmp_path, short, option) for option in options]
    done, good, locked, diverged, bad, unknown = runs
    first = train(*compose_job(done), done).path
    written = first.stat().st_mtime_ns
    with run_lock(folder_of(locked)):
        failures = run_all(runs, processes=1)
    assert failures.keys() == {locked, bad, unknown}
    told = capfd.readouterr().err
    for option in ("seed=2", TOO_LARGE, "nonsense=1"):
        assert f"failed: {option}: " in told
    for run, status in ((good, "finished"), (diverged, "diverged")):
        assert json.loads((folder_of(run) / "record.json").read_text())["status"] == status
    assert first.stat().st_mtime_ns == written
    assert run_all([done, good, diverged]) == {}
    assert "runs to do" not in capfd.readouterr().err


def stop(process: subprocess.Popen[str], number: signal.Signals) -> tuple[Any, str]:
    """Send a signal to a process, and Ctrl-C to its whole group as a terminal does; return (its
    children before, what it printed on stderr)."""
    children = psutil.Process(process.pid).children(recursive=True)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, told = process.communicate(timeout=60)
    return children, told


@pytest.mark.process
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_stopped_runs_continue(tmp_path, number, status) -> None:
    runs = [run_of(tmp_path, *LONG, f"seed={seed}") for seed in (0, 1)]
    process = start_runner(*runs)
    wait_for(lambda: len(list(tmp_path.glob("runs/[0-9a-f]*/last.ckpt"))) == 2, process)
    children, told = stop(process, number)
    assert process.returncode == status
    assert told.count(f"stopped by {number.name} with its runs, 0 of 2 done; ") == 1
    assert "Traceback" not in told
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert not list(tmp_path.glob("runs/[0-9a-f]*/record.json"))
    assert start_runner(*runs).wait(timeout=200) == 0
    assert all((folder_of(run) / "record.json").exists() for run in runs)


@pytest.mark.process
def test_a_killed_worker_is_reported_for_its_run(tmp_path: Path) -> None:
    killed = run_of(tmp_path, *LONG, "seed=0", "trainer.max_epochs=100000")
    others = [run_of(tmp_path, "trainer.max_epochs=1", f"seed={seed}") for seed in (1, 2)]
    process = start_runner(killed, *others)
    folder = folder_of(killed)
    wait_for(lambda: (folder / "last.ckpt").exists(), process)
    os.kill(json.loads((folder.parent / ".locks" / folder.name).read_text())["pid"], 9)
    _, told = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "seed=0 trainer.max_epochs=100000: its process was killed" in told
    assert told.count("failed: ") == 1
    assert all((folder_of(run) / "record.json").exists() for run in others)


@pytest.mark.process
def test_completed_run_asks_for_others(tmp_path: Path) -> None:
    first, bad, more = (run_of(tmp_path, "trainer.max_epochs=1", f"seed={i}") for i in range(3))
    bad += (TOO_LARGE,)
    asked: list[Overrides] = []

    def follow_up(run: Overrides) -> list[Overrides]:
        asked.append(run)
        return [more] if run == first else []

    assert list(run_all([first, bad], 1, follow_up)) == [bad]
    assert asked == [first, more]
    assert (folder_of(more) / "record.json").is_file()


class Unpicklable(list):
    """Labels that a worker has by a fork alone."""

    def __reduce__(self):
        raise TypeError("a worker was not forked")


def unpicklable_digits(val_fraction: float, split_seed: int) -> Source:
    source = digits(val_fraction, split_seed)
    train, val = (replace(s, labels=Unpicklable(s.labels)) for s in (source.train, source.val))
    return replace(source, train=train, val=val)


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks the workers of loaders")
def test_loaders_of_pooled_runs_fork(tmp_path: Path, monkeypatch) -> None:
    """Those that train, validate, fit the preprocessing and test."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    source = ("data=digits", "data._target_=test_runner.unpicklable_digits")
    options = ("data.num_workers=1", "trainer.max_epochs=1", "evaluation=[center]", *source)
    assert run_all([run_of(tmp_path, *options)]) == {}


@pytest.mark.process
def test_workers_end_when_the_runner_is_killed(tmp_path: Path) -> None:
    process = start_runner(run_of(tmp_path, "trainer.max_epochs=100000"))
    wait_for(lambda: list(tmp_path.glob("runs/[0-9a-f]*/last.ckpt")), process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert not psutil.wait_procs(children, timeout=60)[1]


@pytest.fixture
def config() -> RunConfig:
    return compose_config(*TINY)


def test_time_left_counts_down_between_runs(config: RunConfig) -> None:
    """Eight runs of 100 s each, two at a time."""
    jobs = [Job((), config, {})] * 6
    progress = Progress(pending=jobs, complete=2, trained=2, trained_s=100)
    left = [progress.line(seconds).rpartition(", ")[2] for seconds in (100, 199)]
    assert left == ["0:05:00 left", "0:03:21 left"]
    progress.expected = 4  # which an end will ask for
    assert progress.line(100) == "2 of 12 done, 0 running, 0 failed, 0:08:20 left"


def test_cores_get_a_run_each(config: RunConfig, monkeypatch) -> None:
    monkeypatch.setattr(runner.machine, "usable_cores", lambda: 6)
    monkeypatch.setattr(runner.machine, "free_cores", lambda: 6)
    cpu, gpu = [config] * 8, [config.replaced({"trainer.accelerator": "gpu"})] * 8
    assert share_cores(cpu, None) == (6, 1)
    assert share_cores(cpu[:2], None) == (2, 3)  # no core is left without work
    assert share_cores(cpu[:1], None, may_grow=True) == (6, 1)  # its end may ask for many
    assert share_cores([*cpu, gpu[0]], None) == (1, 6)
    assert share_cores(gpu, 2) == (2, 3)
    assert share_cores(cpu, 4) == (4, 1)
    assert share_cores(cpu, 12) == (8, 1)
    monkeypatch.setattr(runner.machine, "free_cores", lambda: 3)  # others were busy just now
    assert share_cores(cpu, None) == (6, 1)
    assert share_cores(cpu[:2], None) == (2, 1)


def test_shared_compositions_are_trains() -> None:
    """Also where another key follows the seed, as the split of digits8 does; and in any order."""
    for seed, rate in ((3, ["optim.lr=0.003"]), (0, []), (7, ["optim.lr=1e-1"])):
        overrides = ("data=digits8", *rate, "model=mlp", f"seed={seed}")
        config, _ = compose_job(overrides)
        assert config == composed(overrides)
        assert config.data.options["split_seed"] == seed
    assert config.optim.lr == 0.1
    assert compose_job(("data=digits8", "model=mlp"))[0] == composed(("data=digits8", "model=mlp"))


JOBLIB = ("--multirun", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


@pytest.mark.process
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_signal_ends_joblibs_workers(tmp_path: Path, number: signal.Signals, status: int) -> None:
    places = alone(tmp_path)[2:]
    command = [sys.executable, "train.py", *JOBLIB, *TINY, *places, *LONG[1:], "seed=0,1"]
    process = start([*command, "trainer.max_epochs=100000"], new=True, start_new_session=True)
    wait_for(lambda: len(list(tmp_path.glob("runs/[0-9a-f]*/last.ckpt"))) == 2, process)
    children, told = stop(process, number)
    assert process.returncode == status, told
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "runs"),
    [
        (["hydra/launcher=submitit_local", "seed=0,1"], 2),
        (["hparams_search=lr", "hydra.sweeper.n_trials=3"], 3),
    ],
)
def test_hydras_submitit_launcher_and_optuna_sweeper(tmp_path, overrides, runs) -> None:
    command = [sys.executable, "train.py", "--multirun", *TINY, "trainer.max_epochs=1", *overrides]
    process = start([*command, *alone(tmp_path)[2:]], new=True)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert len(list(tmp_path.glob("runs/[0-9a-f]*/record.json"))) == runs


def test_seed_with_a_leading_zero_is_rejected(tmp_path: Path) -> None:
    with refused("seed=010"):
        compose_job(run_of(tmp_path, "seed=010"))
