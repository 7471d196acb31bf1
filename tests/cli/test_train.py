"""The command line as a user meets it; what it refuses is asked in the test's own process."""

import json
import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

import pytest
import torch

import forkserver
import processes
from conftest import ROOT, TINY, places
from rectifiers.cli.composition import compose_with_choices, composed, override
from rectifiers.cli.train import print_best, run_job
from refusals import refused
from sentences import sentence as sentence_of

HEAVY = ("torch", "torchvision", "pytorch_lightning", "wandb", "sklearn", "scipy")

WHAT_WAS_IMPORTED = f"""
import runpy, sys
sys.argv = ["train.py", *sys.argv[1:]]
try:
    runpy.run_path("train.py", run_name="__main__")
finally:
    print("IMPORTED", [m for m in {HEAVY!r} if m in sys.modules])
"""


def start(*arguments: str) -> CompletedProcess[str]:
    """Run a new interpreter, for what it imports."""
    return run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


def train(*arguments: str, **environment: str) -> CompletedProcess[str]:
    return forkserver.run(
        [sys.executable, "train.py", *arguments], cwd=ROOT, env={**os.environ, **environment}
    )


@pytest.mark.process
@pytest.mark.parametrize(
    "question", [["--help"], ["--cfg", "job"], ["--cfg", "job", "activation=maxout", "init=sparse"]]
)
def test_questions_are_answered_without_the_heavy_imports(question: list[str]) -> None:
    done = start("-c", WHAT_WAS_IMPORTED, *question)
    assert done.returncode == 0, done.stderr
    assert "IMPORTED []" in done.stdout
    assert "prelu" in done.stdout or "maxout" in done.stdout


# what was typed, and what its one line names: the key, and what was probably meant
REFUSED = [
    (["activaton=prelu"], ["activaton", "activation?"]),
    (["activation=perlu"], ["activation=perlu", "activation=prelu?"]),
    (["experiment=table2/prelo"], ["experiment=table2/prelo", "experiment=table2/prelu?"]),
    (["optim.lrr=1"], ["optim.lrr", "optim.lr?"]),
    (["max_epochs=3"], ["max_epochs", "trainer.max_epochs?"]),
    (["logger.mode=offline"], ["logger.mode", "logger.wandb.mode of logger=wandb?"]),
    (["--epochs=3"], ["--epochs=3", "trainer.max_epochs?"]),
    (["prelu"], ["prelu is not key=value", "activation=prelu?"]),
    (["activation=null"], ["invalid activation: null (choose from ", "prelu_shared"]),
    (["model.depht=3"], ["model.depht", "model.depth of model=mlp"]),
    (["activation=relu,gelu"], ["activation=relu,gelu", "--multirun"]),
    (["seed=[1"], ["seed=[1", "brackets"]),
    (["optim.lr=abc"], ["optim.lr=abc", "number"]),
    (["trainer.max_epochs=1,2"], ["error: trainer.max_epochs=1,2 gives several values"]),
    (["trainer.limit_train_batches=1.0"], ["trainer.limit_train_batches=1.0", "fraction"]),
    (["trainer.limit_train_batches=0"], ["trainer.limit_train_batches=0", "at least 1"]),
    (["=1"], ["=1 has no key"]),
    (["activation=folder/file.f"], ["did you mean activation=folder.file.f?"]),
    (["logger.wandb.project=x"], ["logger.wandb.project", "logger=wandb", "add that"]),
    (["logger=wandb", "logger.wandb.projct=x"], ["did you mean logger.wandb.project of"]),
    (["activation=elu", "activation.slope=1"], ["activation=leaky_relu"]),
    (
        ["scheduler=cosine", "scheduler.patience=1"],
        ["scheduler.patience belongs to scheduler=plateau"],
    ),
    (["+experiment=table2/prelu"], ["+experiment=table2/prelu", "plus"]),
    (["seed=0", "--multirun", "model=mlp"], ["--multirun", "first or last"]),
    (["model.width=${nowhere}"], ["nowhere"]),
    (["hparams_search=lr", "hydra.sweeper.n_trials=0"], ["n_trials=0", "at least 1"]),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED)
def test_a_bad_command_line_exits_with_status_2(call, arguments, named, tmp_path) -> None:
    done = call("train.py", *places(tmp_path), *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    for text in named:
        assert text in done.stderr
    assert not (tmp_path / "runs").exists()


def test_best_of_a_search_may_be_an_option(tmp_path: Path, capsys) -> None:
    path = tmp_path / "optimization_results.yaml"
    path.write_text(
        "best_params: {optim.lr: 0.0123456, activation: prelu, model.hidden: 16384}\n"
        "best_value: 12.346\n"
    )
    print_best(path)
    expected = "best: optim.lr=0.01235 activation=prelu model.hidden=16384, val error 12.35 %"
    assert expected in capsys.readouterr().out


def test_any_path_can_be_an_override(tmp_path: Path) -> None:
    for name in ("it's", "a b", "a=b,c", "a\\", "a\\'b"):
        config = composed([override("runs_dir", str(tmp_path / name))])
        assert config.runs_dir == tmp_path / name


@pytest.mark.process
@pytest.mark.parametrize(
    "argument", ["optim.epochs=3", "data=folder data.root=/nonexistent trainer.devices=2"]
)
def test_a_refusal_imports_nothing_heavy(argument: str) -> None:
    done = start("-c", WHAT_WAS_IMPORTED, *argument.split())
    assert done.returncode != 0
    assert "IMPORTED []" in done.stdout


@pytest.mark.parametrize(
    ("overrides", "target", "settings"),
    [
        (["activation=torch.nn.ELU"], "torch.nn.ELU", {}),
        (["activation._target_=torch.nn.ELU", "activation.alpha=2"], "torch.nn.ELU", {"alpha": 2}),
        (["activation=torch.nn.ELU", "activation.alpha=2"], "torch.nn.ELU", {"alpha": 2}),
        (["activation=torch.nn.functional.silu"], "torch.nn.functional.silu", {}),
        (["activation._target_=torch.nn.ELU", "+activation.alpha=2"], "torch.nn.ELU", {"alpha": 2}),
    ],
)
def test_a_function_needs_no_file(overrides, target, settings) -> None:
    activation = composed(overrides).activation
    assert (activation.target, activation.options) == (target, settings)


@pytest.mark.parametrize("plus", ["", "+"])
def test_a_callback_and_its_settings_need_no_file(plus: str) -> None:
    target = "pytorch_lightning.callbacks.EarlyStopping"
    overrides = [f"+callbacks.mine._target_={target}", f"{plus}callbacks.mine.monitor=val/loss"]
    callbacks = composed(overrides).callbacks
    assert callbacks is not None
    assert callbacks["mine"].target == target
    assert callbacks["mine"].options == {"monitor": "val/loss"}


@pytest.mark.process
def test_a_run_writes_nothing_outside_its_folders(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    command = [sys.executable, str(ROOT / "train.py"), *TINY, *places(tmp_path)]
    done = forkserver.run(command, cwd=place)
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "elsewhere", "runs"]


@pytest.mark.process
def test_bad_data_gets_a_traceback_only_on_request(tmp_path: Path) -> None:
    arguments = (*places(tmp_path), "data=folder", f"data.root={tmp_path}/nowhere")
    done = train(*arguments)
    assert done.returncode == 1
    assert sentence_of(done.stderr).startswith(f"data.root={tmp_path}/nowhere is not a folder")
    assert "Traceback" in train(*arguments, HYDRA_FULL_ERROR="1").stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["optim.lr=abc"], "optim.lr=abc: should be"),
        (["data.batch_size=33"], "data.batch_size=33 does not divide over 2"),
        (["trainer.devices=4"], "trainer.num_nodes=1 trainer.devices=4 asks for"),
        (["data=folder", "data.root=/nowhere"], "data.root=/nowhere is not a folder"),
    ],
)
def test_what_all_processes_refuse_is_said_once(overrides, sentence, tmp_path) -> None:
    command = [sys.executable, "train.py", *TINY, *places(tmp_path), *overrides]
    done = processes.ranks(command, command)
    assert 0 not in [process.returncode for process in done]
    assert "".join(process.stderr for process in done).count("error: ") == 1
    assert done[0].stderr.splitlines()[-1].startswith(f"error: {sentence}")


def records_by(records: list[dict[str, Any]], activation: str, seed: int) -> str:
    (run,) = (
        record["run"]
        for record in records
        if (record["choices"]["activation"], record["science"]["seed"]) == (activation, seed)
    )
    return run


@pytest.mark.process
def test_a_sweep_runs_each_of_its_runs_once(tmp_path: Path) -> None:
    small = (*TINY, "trainer.max_epochs=1")
    values = ("activation=relu,prelu,prelu_shared", "seed=0,1,2")
    sweep = ("--multirun", *small, *places(tmp_path), *values)
    first = train(*sweep)
    assert first.returncode == 0, first.stderr
    paths = sorted(tmp_path.glob("runs/[0-9a-f]*/record.json"))
    records = [json.loads(path.read_text()) for path in paths]
    found = {(record["choices"]["activation"], record["science"]["seed"]) for record in records}
    assert found == {(a, s) for a in ("relu", "prelu", "prelu_shared") for s in range(3)}
    assert [record["run"] for record in records] == [path.parent.name for path in paths]
    links = {path.resolve().name for path in (tmp_path / "runs" / "by-name").iterdir()}
    assert links == {record["run"] for record in records}
    last = records_by(records, "prelu_shared", 2)
    assert (tmp_path / "runs" / "latest").resolve().name == last
    stamps = [p.stat().st_mtime_ns for p in paths]
    second = start("-c", WHAT_WAS_IMPORTED, *sweep)
    assert second.stdout.count("This run exists already. rerun=true runs it again.") == 9
    assert "'torch'" not in second.stdout  # what is done is answered without it
    assert [p.stat().st_mtime_ns for p in paths] == stamps


@pytest.mark.process
def test_a_failed_run_does_not_stop_the_sweep(tmp_path: Path) -> None:
    done = train("--multirun", *TINY, *places(tmp_path), "optim.lr=abc,1e6,0.01", "activation=relu")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: optim.lr=abc: should be")
    assert "HYDRA" not in done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/[0-9a-f]*/record.json")]
    assert sorted(record["status"] for record in records) == ["diverged", "finished"]


@pytest.mark.process
def test_a_diverged_run_ends_with_status_1(tmp_path: Path) -> None:
    done = train(*TINY, *places(tmp_path), "optim.lr=1e6", "activation=relu")
    assert done.returncode == 1
    assert re.search(r"diverged at step \d+, first seen at", done.stdout)
    assert done.stdout.rstrip().endswith("record.json")
    again = train(*TINY, *places(tmp_path), "optim.lr=1e6", "activation=relu")
    assert "This run exists already. It diverged; a lower optim.lr" in again.stdout


@pytest.mark.process
@pytest.mark.parametrize("sweep", [[], ["--multirun", "seed=0,1"]])
def test_devices_start_the_command_again_under_torchrun(tmp_path: Path, sweep: list[str]) -> None:
    command = [sys.executable, "train.py", *sweep, *TINY, *places(tmp_path), "trainer=ddp_cpu"]
    done = run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/[0-9a-f]*/record.json")]
    assert [record["compute"]["processes"] for record in records] == [2] * (2 if sweep else 1)
    assert len(list((tmp_path / "runs" / "by-name").iterdir())) == len(records)


@pytest.mark.process
@pytest.mark.parametrize(
    ("wrong", "status"), [(["optim.lrr=1", "trainer.devices=2"], 2), (["trainer.devices=3"], 1)]
)
def test_a_refusal_is_said_once_before_ranks_start(wrong, status, tmp_path: Path) -> None:
    command = [sys.executable, "train.py", *places(tmp_path), *wrong]
    done = run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[str, ...]:
    """The command of a run that is finished."""
    place = tmp_path_factory.mktemp("finished")
    command = (*TINY, *places(place), "trainer.max_epochs=1", "evaluation=center")
    run_job_of(command)
    return command


def run_job_of(command: tuple[str, ...]) -> None:
    config, choices = compose_with_choices(command)
    run_job(config, choices, list(command))


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("ckpt_path=/nowhere.ckpt", "ckpt_path=/nowhere.ckpt is not a file"),
        ("ckpt_path=train.py", "train.py cannot be read"),
        ("trainer=gpu", "needs a GPU"),
        ("+data.root=/nowhere", "data.root=/nowhere is not a folder"),
        ("+data.download=true", "data.download is not known"),
        ("+logger.mine._target_=nowhere.Logger", "cannot be imported"),
    ],
)
def test_what_is_typed_is_checked_though_run_exists(call, finished, typed, named) -> None:
    if typed == "trainer=gpu" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = call("train.py", *finished, typed)
    assert done.returncode != 0
    assert named in sentence_of(done.stderr)


@pytest.mark.parametrize(
    ("typed", "is_sent"),
    [
        (["logger=wandb", "logger.wandb.log_model=true"], True),
        (["logger=[csv,tensorboard]"], True),
        (["logger=none"], False),
        ([], False),
    ],
)
def test_existing_run_names_what_sends_it(call, finished, typed, is_sent: bool) -> None:
    done = call("train.py", *finished, *typed)
    assert done.returncode == 0
    assert ("evaluate.py run=" in done.stdout) == is_sent
    assert all(word in done.stdout for word in typed if is_sent)


def test_a_finished_run_starts_no_ranks(call, finished, monkeypatch) -> None:
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("ranks are started"))
    assert call("train.py", *finished, "trainer.devices=3").returncode == 0


def test_testing_ranks_need_not_share_a_batch(call, finished, monkeypatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, command: sys.exit(started.append(command)))
    call("train.py", *finished, "evaluation=[center,ten_view]", "trainer.devices=3")
    assert "--nproc-per-node=3" in started[0]
    refused = call("train.py", *finished, "seed=7", "trainer.devices=3")
    assert "does not divide" in sentence_of(refused.stderr)


@pytest.mark.parametrize(
    "typed", [("data.batch_size=1",), ("data.batch_size=2", "trainer.devices=2")]
)
def test_batch_norm_needs_more_than_one_image(call, tmp_path, typed) -> None:
    done = call("train.py", *TINY, *places(tmp_path), "model.norm=batch", *typed)
    assert done.returncode == 2
    assert "one image" in sentence_of(done.stderr)


def test_a_search_without_a_finite_error_fails(tmp_path: Path) -> None:
    path = tmp_path / "optimization_results.yaml"
    path.write_text("best_params: {optim.lr: 9.0}\nbest_value: .inf\n")
    with refused("every run diverged"):
        print_best(path)


@pytest.mark.process
def test_a_sweep_whose_runs_all_diverge_fails(tmp_path: Path) -> None:
    sweep = ("--multirun", *TINY, *places(tmp_path), "optim.lr=1e6,2e6", "activation=relu")
    done = train(*sweep)
    assert done.returncode == 1
    assert sentence_of(done.stderr).startswith("every run diverged")
