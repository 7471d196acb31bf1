"""`scripts/sweep.py`: overrides on disk, started as far as their runs are missing, by processes and
by submitit."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from PIL import Image

import forkserver
from conftest import ROOT, TINY, load_script
from rectifiers.cli import launcher
from rectifiers.cli.composition import composed
from rectifiers.cli.launcher import (
    OF_ANY_RUN,
    Submission,
    hand_over,
    launch,
    launch_together,
    progress,
    share_cores,
    train,
)
from rectifiers.cli.sweep import Job, State, compose_job, load, plan, print_status
from rectifiers.runs.folder import lock_for_child
from rectifiers.runtime import processor
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import Stopped
from rectifiers.training.checkpoints import EpochEnd
from sentences import sentence as sentence_of

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TOO_LARGE = "data.batch_size=1000000"  # an error that only the run itself finds


def call(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = forkserver.run(
        [sys.executable, "scripts/sweep.py", *arguments], cwd=ROOT, env=ENVIRONMENT
    )
    assert done.returncode == status, done.stderr
    return done


def planned(place: Path, *overrides: str) -> Path:
    sweep = place / "sweep"
    plan(sweep, [[*TINY, f"runs_dir={place}/runs", f"cache_dir={place}/cache", *overrides]])
    return sweep


def jobs(sweep: Path) -> dict[str, Job]:
    """The jobs by what differs."""
    return {job.differs: job for job in load(sweep)}


def states(sweep: Path) -> list[State]:
    return [job.state() for job in load(sweep)]


@pytest.mark.process
def test_a_sweep_is_planned_launched_broken_and_completed(tmp_path: Path) -> None:
    sweep = str(tmp_path / "sweep")
    places = (f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache")
    told = call(
        "plan", sweep, *TINY, "trainer.max_epochs=1", "seed=0,1", "optim.lr=0.01,1000000.0", *places
    ).stdout
    assert told == f"4 runs in {sweep}; start them with: python scripts/sweep.py launch {sweep}\n"
    rows = json.loads(call("status", sweep, "--json").stdout)
    assert [row["cost"] for row in rows] == [3 * 3392 * 1347] * 4
    assert {row["state"] for row in rows} == {"missing"}
    assert len(call("launch", sweep, "--print").stdout.splitlines()) == 4

    told = call("launch", sweep, "--jobs", "2").stdout
    assert {label: job.state() for label, job in jobs(Path(sweep)).items()} == {
        "seed=0 optim.lr=0.01": "done",
        "seed=0 optim.lr=1000000.0": "diverged",
        "seed=1 optim.lr=0.01": "done",
        "seed=1 optim.lr=1000000.0": "diverged",
    }
    for job in load(Path(sweep)):
        assert told.index(f"started: {job}\n") < told.index(f"{job.state()}: {job}\n")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    assert len(before) == 4
    next(path for path in before if '"finished"' in path.read_text()).unlink()
    assert sorted(states(Path(sweep))) == ["diverged", "diverged", "done", "missing"]
    call("launch", sweep)  # only what is missing
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/record.json")}
    assert sum(after[path] != before[path] for path in before) == 1

    rows = json.loads(call("collect", sweep, "--json").stdout)
    assert {(row["protocol"], row["n"], row["planned"]) for row in rows} == {
        ("center", 2, 2),
        ("ten_view", 2, 2),
    }
    assert {row["setting"] for row in rows} == {"optim.lr=0.01"}
    assert "2 of 2" in call("collect", sweep).stdout


@pytest.mark.process
def test_two_launches_at_once_start_nothing_twice(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=1", "data.batch_size=128,1000000")
    (sweep / "logs").mkdir()
    for job in load(sweep):
        job.note("error: it failed an hour ago")
    command = [sys.executable, "scripts/sweep.py", "launch", str(sweep), "--jobs", "2"]
    both = [
        forkserver.Popen(
            command,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(2)
    ]
    told = "".join(process.communicate(timeout=120)[0] for process in both)
    assert sorted(
        line.split()[1] for line in told.splitlines() if line.startswith("started: ")
    ) == sorted(job.name for job in load(sweep))
    assert sorted(states(sweep)) == [State.DONE, State.FAILED]


@pytest.mark.process
def test_jobs_stop_with_a_checkpoint_when_their_launcher_is_killed(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=100000")
    command = [sys.executable, "scripts/sweep.py", "launch", str(sweep)]
    with forkserver.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL
    ) as launcher:
        try:
            waited(lambda: list(tmp_path.glob("runs/*/last.ckpt")))
        finally:
            launcher.kill()
    waited(lambda: states(sweep) == [State.MISSING])
    assert "stopped by SIGTERM" in (sweep / "logs" / f"{load(sweep)[0].name}.log").read_text()


def waited(seen: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_job_whose_process_is_starting_is_not_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = planned(tmp_path, "seed=0")
    (job,) = load(sweep)
    lock = lock_for_child(job.file())
    assert lock is not None
    process = subprocess.Popen(["sleep", "60"], stdin=lock)
    os.close(lock)
    try:
        print_status([job], as_json=False)
        assert "1 starting" in capsys.readouterr().out
        assert lock_for_child(job.file()) is None
        hand_over(sweep, "printed", [])
        hand_over(sweep, "local", [])
        for start in (launch, launch_together):
            with pytest.raises(SystemExit):
                start(sweep, 1)
            told = capsys.readouterr()
            assert "started: " not in told.out
            assert told.err.startswith(f"starting: {job.name}")
    finally:
        process.kill()
        process.wait()
    assert job.state() == State.MISSING


@pytest.mark.process
def test_a_failed_job_is_named_with_its_last_words(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=1", TOO_LARGE)
    kept = yaml.safe_load((sweep / "sweep.yaml").read_text())
    (sweep / "sweep.yaml").write_text(yaml.safe_dump({**kept, "code": "older"}))
    told = call("launch", str(sweep), status=1).stderr
    assert "the source has changed since this was planned (older; now " in told
    (job,) = load(sweep)
    assert f"failed: {job}: error: {TOO_LARGE} is more than the 1347 training images" in told


@pytest.mark.process
def test_the_command_that_is_printed_can_be_typed(tmp_path: Path) -> None:
    places = (f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache")
    done = call("plan", f"{tmp_path}/a b's", *TINY, *places)
    command = done.stdout.strip().partition("start them with: python ")[2]
    assert shlex.split(command) == ["scripts/sweep.py", "launch", f"{tmp_path}/a b's"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("plan", "SWEEP", "seed=0", "seed=0,0"),
            "seed=0 is the same run as another one here; leave one out",
        ),
        (("plan", "SWEEP", "nonsense=1"), "nonsense is not known; "),
        (("plan", "SWEEP", "seed=-1"), "seed=-1: should be"),
        (
            ("plan", "SWEEP", "optim.lr=interval(0.1,1)"),
            "is no list of choices; give optim.lr=<one>,<other>",
        ),
        (("launch", "SWEEP"), "holds no sweep; make one with scripts/sweep.py plan"),
        (
            ("launch", "SWEEP", "--jobs", "0"),
            "--jobs=0 is not usable; give a whole number at least 1",
        ),
        (("run", "HERE", "x"), "x is no job of "),
        (("launch", "HERE", "--cluster", "local", "--set", "timeout_min=soon"), "is not usable"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = {"SWEEP": str(tmp_path / "none"), "HERE": str(tmp_path / "sweep")}
    if "HERE" in arguments:
        planned(tmp_path, "seed=0")
    monkeypatch.setattr(
        "sys.argv", ["sweep.py", *(words.get(argument, argument) for argument in arguments)]
    )
    with pytest.raises(SystemExit, match="1"):
        load_script("sweep").main()
    assert sentence in sentence_of(capsys.readouterr().err)


@pytest.mark.process
def test_ctrl_c_stops_the_runs_which_go_on_when_launched_again(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=60", "checkpoint.every_n_steps=5")
    process = subprocess.Popen(
        [sys.executable, "scripts/sweep.py", "launch", str(sweep)],
        cwd=ROOT,
        env=ENVIRONMENT,
        text=True,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/metrics.csv")):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert states(sweep) == [State.RUNNING]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.count("stopped by SIGINT") == 1
    assert f"go on with: python scripts/sweep.py launch {sweep}" in err
    assert states(sweep) == [State.MISSING]
    call("launch", str(sweep))
    log = next((sweep / "logs").glob("*.log")).read_text()
    assert "continuing from" in log
    assert states(sweep) == [State.DONE]


@pytest.mark.process
def test_a_printed_job_says_so_and_how_it_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=1", "data.batch_size=128,1000000")
    monkeypatch.setattr("sys.argv", ["scripts/sweep.py"])
    good, bad = (
        jobs(sweep).values() if "=128" in load(sweep)[0].differs else reversed(jobs(sweep).values())
    )
    for _ in range(2):  # a second time too: nobody here knows whether the first list was used
        hand_over(sweep, "printed", [])
        assert good.state() == State.PRINTED
    lines = [
        shlex.split(line) for line in capfd.readouterr().out.splitlines() if "sweep.py run" in line
    ]
    assert len(lines) == 4
    assert all(Path(word).is_absolute() for word in (*lines[0][:2], lines[0][3]))
    assert {line[4] for line in lines} == {good.name, bad.name}
    with pytest.raises(InputError, match="more than the 1347 training images"):
        train(bad)
    assert bad.state() == State.FAILED
    assert bad.last_words().startswith(f"error: {TOO_LARGE} is more than")
    train(good)
    assert good.state() == State.DONE


def test_what_a_scheduler_has_is_queued_and_what_it_lost_has_failed(tmp_path: Path) -> None:
    (job,) = load(planned(tmp_path, "seed=0"))
    waiting = subprocess.Popen(["sleep", "60"])
    try:
        job.note(f"local {waiting.pid}")
        assert job.state() == State.QUEUED
    finally:
        waiting.kill()
        waiting.wait()
    assert job.state() == State.FAILED


def test_paths_of_a_job_hold_wherever_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = planned(Path("here"), "seed=0").absolute()
    monkeypatch.chdir("/")
    config, _ = load(sweep)[0].prepared()
    assert (config.runs_dir, config.cache_dir) == (
        tmp_path / "here" / "runs",
        tmp_path / "here" / "cache",
    )


def test_data_that_name_a_run_are_hashed_once_when_the_sweep_is_planned(tmp_path: Path) -> None:
    for split, name in ((split, name) for split in ("train", "val") for name in ("cat", "dog")):
        (tmp_path / "data" / split / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 8), (number, len(name), len(split))).save(
                tmp_path / "data" / split / name / f"{number}.png"
            )
    sweep = planned(
        tmp_path, "data=folder", f"data.root={tmp_path}/data", "data.crop_px=8,10", "seed=0,1"
    )
    shutil.rmtree(tmp_path / "data")
    assert states(sweep) == [State.MISSING] * 4
    digests = {job.prepared()[0].data.content for job in load(sweep)}
    assert len(digests) == 1
    assert None not in digests


def test_status_shows_what_differs_and_the_unit_of_the_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_status(load(planned(tmp_path, "trainer.max_epochs=1", "seed=0,1")), as_json=False)
    told = capsys.readouterr().out
    assert "multiply-adds" in told
    assert "1.4e+07" in told
    assert "seed=1" in told
    assert "trainer.max_epochs" not in told
    assert "2 missing" in told


def test_planning_again_adds_jobs(tmp_path: Path) -> None:
    first = jobs(planned(tmp_path, "seed=0,1"))
    both = jobs(planned(tmp_path, "seed=1,2"))
    assert list(both) == ["seed=0", "seed=1", "seed=2"]
    assert both["seed=0"].name == first["seed=0"].name


@pytest.mark.process
def test_what_is_to_be_run_again_is_once(tmp_path: Path) -> None:
    (job,) = load(planned(tmp_path, "trainer.max_epochs=1"))
    train(job)
    (job,) = load(planned(tmp_path, "trainer.max_epochs=1", "rerun=true"))
    assert job.state() == State.MISSING
    train(job)
    assert job.state() == State.DONE
    assert len(list(tmp_path.glob("runs/replaced/*"))) == 1


@pytest.mark.process
def test_a_job_that_must_make_room_stops_cleanly_and_is_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """submitit's own handler is a stand-in: its contract is to be called with the signal, and to
    queue the job."""
    (planned_job,) = load(planned(tmp_path, "trainer.max_epochs=2", "data.batch_size=128"))
    begin, queued = EpochEnd.on_train_epoch_end, []

    def asked(*arguments: object) -> None:
        signal.raise_signal(signal.SIGUSR2)
        begin(*arguments)  # type: ignore[arg-type]

    former = signal.signal(signal.SIGUSR2, lambda *_: queued.append(job.checkpoint().function))
    try:
        job = Submission(planned_job)
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
def test_errors_of_submitits_jobs_are_reported(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=1", TOO_LARGE)
    told = call(
        "launch", str(sweep), "--cluster", "local", "--set", "timeout_min=5", status=1
    ).stderr
    assert f"failed: {load(sweep)[0]}: error: {TOO_LARGE} is more than" in told


@pytest.mark.slow
def test_submitit_runs_the_jobs(tmp_path: Path) -> None:
    sweep = planned(tmp_path, "trainer.max_epochs=1", "seed=0,1")
    call("launch", str(sweep), "--cluster", "local", "--set", "timeout_min=5")
    assert states(sweep) == [State.DONE] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "runs"),
    [
        (["hydra/launcher=processes", "seed=0,1"], 2),
        (["sweep=learning_rate", "hydra.sweeper.n_trials=3"], 3),
    ],
)
def test_hydras_launcher_and_sweeper(tmp_path: Path, overrides: list[str], runs: int) -> None:
    command = [sys.executable, "train.py", "--multirun", *TINY, "trainer.max_epochs=1", *overrides]
    places = [f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"]
    done = subprocess.run(
        [*command, *places], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/record.json"))) == runs


def test_a_launch_tells_how_many_of_its_jobs_are_done_and_how_long_the_others_take(
    tmp_path, monkeypatch
) -> None:
    costs = (
        OF_ANY_RUN * trainings for trainings in (0, 1, 2, 3, 9)
    )  # and as much again beside each training
    jobs = [Job(tmp_path, str(n), (), cost, "") for n, cost in enumerate(costs)]
    states = dict(
        zip(
            "01234",
            (State.DONE, State.DIVERGED, State.RUNNING, State.FAILED, State.MISSING),
            strict=True,
        )
    )
    monkeypatch.setattr(Job, "state", lambda job: states[job.name])
    assert (
        progress(jobs, {"0"}, seconds=60) == "2 of 5 done, 1 running, 1 failed, 0:06:00 left"
    )  # 13 of 2 in a minute
    assert progress(jobs, {"0", "1"}, seconds=60) == "2 of 5 done, 1 running, 1 failed"


def test_free_cores_get_a_job_of_one_thread_each_and_a_gpu_one_job(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(processor, "free_cores", lambda: 6)
    cpu, gpu = (
        [Job(tmp_path, str(n), (compute,), 1, "") for n in range(8)]
        for compute in ("seed=0", "trainer=ddp")
    )
    assert share_cores(cpu, None) == (6, 1)
    assert capsys.readouterr().out == "at a time: 6; threads of each: 1, unless threads says so\n"
    assert share_cores(cpu[:2], None) == (2, 3)  # no core is left without work
    assert share_cores([*cpu, gpu[0]], None) == (1, 6)
    assert share_cores(gpu, 2) == (2, 3)
    assert share_cores(cpu, 4) == (4, 1)
    assert share_cores(cpu, 12) == (12, 1)


@pytest.mark.parametrize("given", [None, "5"])
def test_a_job_has_its_share_of_threads_unless_the_environment_says_otherwise(
    given, monkeypatch
) -> None:
    monkeypatch.setattr(launcher, "start_in_own_session", lambda _, environment: environment)
    monkeypatch.delenv("OMP_NUM_THREADS")
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert launcher._start(["train"], 3)["OMP_NUM_THREADS"] == (given or "3")


def test_jobs_that_share_a_composition_are_what_train_would_compose() -> None:
    """Also where another key follows the seed, as the split of digits8 does; and in any order."""
    for seed, rate in ((3, ["optim.lr=0.003"]), (0, []), (7, ["optim.lr=1e-1"])):
        overrides = ("data=digits8", *rate, "model=mlp", f"seed={seed}")
        config, _ = compose_job(overrides)
        assert config == composed(overrides)
        assert config.data.options["split_seed"] == seed
    assert config.optim.lr == 0.1
    assert compose_job(("data=digits8", "model=mlp"))[0] == composed(("data=digits8", "model=mlp"))
