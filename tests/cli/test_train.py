"""The command line as a user meets it; what it refuses is asked in the test's own process."""

import json
import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

import forkserver
from conftest import ROOT, TINY
from rectifiers.cli.train import refuse_unusable_choices
from rectifiers.runs.config import options
from rectifiers.runtime.errors import InputError

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
    return forkserver.run([sys.executable, "train.py", *arguments], cwd=ROOT, env={**os.environ, **environment})


def places(tmp_path: Path) -> tuple[str, str]:
    return f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"


@pytest.mark.process
@pytest.mark.parametrize(
    "question", [["--help"], ["--cfg", "job"], ["--cfg", "job", "activation=maxout", "init=sparse"]]
)
def test_questions_are_answered_without_the_heavy_imports(question: list[str]) -> None:
    done = start("-c", WHAT_WAS_IMPORTED, *question)
    assert done.returncode == 0, done.stderr
    assert "IMPORTED []" in done.stdout
    assert "prelu" in done.stdout or "maxout" in done.stdout


def test_help_lists_groups_choices_and_examples(call) -> None:
    text = call("train.py", "--help").stdout
    for line in (
        "activation: elu, gelu, identity, leaky_relu, maxout, prelu, prelu_shared, relu",
        "init: constant, gaussian, he, he_average, he_backward",
        "python train.py activation=prelu init=he",
        "lr: 0.01",
    ):
        assert line in text


def test_help_shows_what_the_overrides_make_and_refuses_bad_ones(call) -> None:
    assert "  std: 0.01" in call("train.py", "init=gaussian", "-h").stdout
    done = call("train.py", "--help", "activation=perlu")
    assert done.returncode == 1
    assert "error: In 'train': Could not find 'activation/perlu'" in done.stderr
    assert "Traceback" not in done.stderr
    sweep = call("train.py", "-h", "--multirun", "seed=1,2", "init=gaussian").stdout
    assert "seed: 0" in sweep  # what differs from run to run has no one value
    assert "  std: 0.01" in sweep
    assert call("train.py", "-h", "-m", "seed=1,2(").stderr.startswith("error: ")
    assert "hydra-help" in call("train.py", "--hydra-help").stdout


REFUSED = [
    ("activaton=prelu", "activaton is not known; did you mean activation? The keys here are: activation, "),
    ("optim.lrr=1", "optim.lrr is not known; did you mean optim.lr? The keys of optim are: bias_lr_factor"),
    ("activation.slope=1", "activation.slope is not known; "),
    ("activation=perlu", "Could not find 'activation/perlu'"),
    ("experiment=nix", "Could not find 'experiment/nix'"),
    ("optim.lr=abc", "error: optim.lr=abc is not usable; give a number above 0"),
    ("activation=null", "error: activation=null is not usable; leave it out, or give activation=<option> of: elu, "),
    ("+foo=1", "error: +foo=1 adds or removes a key, which nothing here reads; write key=value"),
    ("~optim.lr", "error: ~optim.lr adds or removes a key"),
    ("model.width=${nowhere}", "error: the configuration cannot be resolved"),
]


@pytest.mark.parametrize(
    "argument",
    ["evaluation=null", "evaluation=[null]", "data=", "model=3", "logger=csv,null"],
)
def test_a_choice_that_is_no_name_lists_the_names(argument: str) -> None:
    group = argument.partition("=")[0]
    sentence = f"{argument} is not usable; leave it out, or give {group}=<option> of: {options(group)}"
    with pytest.raises(InputError, match=re.escape(sentence)):
        refuse_unusable_choices(["seed=null", argument])


@pytest.mark.parametrize("argument", ["activation=relu,'prelu'", "experiment=table2/relu", "activation=(", "--help"])
def test_other_arguments_are_left_to_hydra(argument: str) -> None:
    refuse_unusable_choices([argument])


@pytest.mark.parametrize(("argument", "sentence"), REFUSED)
def test_a_bad_argument_gets_one_sentence_and_a_non_zero_status(
    call, argument: str, sentence: str, tmp_path: Path
) -> None:
    done = call("train.py", *places(tmp_path), argument)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.process
def test_a_run_writes_nothing_outside_its_folders(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    done = forkserver.run([sys.executable, str(ROOT / "train.py"), *TINY, *places(tmp_path)], cwd=place)
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "elsewhere", "runs"]


def test_a_wrong_choice_lists_the_choices(call) -> None:
    text = call("train.py", "activation=perlu").stderr
    assert {"relu", "prelu_shared", "maxout", "softplus"} <= set(re.findall(r"\w+", text))


@pytest.mark.process
def test_bad_data_gets_one_sentence_and_a_traceback_only_on_request(tmp_path: Path) -> None:
    arguments = (*places(tmp_path), "data=folder", f"data.root={tmp_path}/nowhere")
    done = train(*arguments)
    assert done.returncode == 1
    assert f"error: {tmp_path}/nowhere is not a folder; data.root must hold train/<class>/*" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in train(*arguments, HYDRA_FULL_ERROR="1").stderr


@pytest.mark.process
def test_nine_runs_of_a_sweep_each_in_its_folder_and_none_of_them_twice(tmp_path: Path) -> None:
    small = (*TINY, "optim.epochs=1")
    sweep = ("--multirun", *small, *places(tmp_path), "activation=relu,prelu,prelu_shared", "seed=0,1,2")
    first = train(*sweep)
    assert first.returncode == 0, first.stderr
    paths = sorted(tmp_path.glob("runs/*/record.json"))
    found = {(r["choices"]["activation"], r["science"]["seed"]) for r in (json.loads(p.read_text()) for p in paths)}
    assert found == {(a, s) for a in ("relu", "prelu", "prelu_shared") for s in range(3)}
    assert all(json.loads(p.read_text())["run"] == p.parent.name for p in paths)
    stamps = [p.stat().st_mtime_ns for p in paths]
    second = start("-c", WHAT_WAS_IMPORTED, *sweep)
    assert second.stdout.count("This run exists already. rerun=true runs it again.") == 9
    assert "IMPORTED []" in second.stdout  # what is done is answered without torch
    assert [p.stat().st_mtime_ns for p in paths] == stamps
    # the last run of the sweep is the same run as one alone
    alone = train(*small, f"runs_dir={tmp_path}/alone", f"cache_dir={tmp_path}/c", "activation=prelu_shared", "seed=2")
    assert alone.returncode == 0, alone.stderr
    one = json.loads(next(tmp_path.glob("alone/*/record.json")).read_text())
    typed = [typed for typed in small if not typed.startswith("logger")]
    assert one["overrides"] == [*typed, "activation=prelu_shared", "seed=2"]
    same = json.loads((tmp_path / "runs" / one["run"] / "record.json").read_text())
    for name, result in one["protocols"].items():
        assert result["correct_mask"] == same["protocols"][name]["correct_mask"]
        assert result["nll"] == same["protocols"][name]["nll"]
    assert [r["train_loss"] for r in one["history"]] == [r["train_loss"] for r in same["history"]]


@pytest.mark.process
def test_a_run_that_fails_does_not_take_the_sweep_with_it(tmp_path: Path) -> None:
    done = train("--multirun", *TINY, *places(tmp_path), "optim.lr=abc,1e6,0.01", "activation=relu")
    assert done.returncode == 1
    assert "error: optim.lr=abc is not usable" in done.stderr
    statuses = sorted(json.loads(p.read_text())["status"] for p in tmp_path.glob("runs/*/record.json"))
    assert statuses == ["diverged", "finished"]


@pytest.mark.process
def test_a_run_that_diverges_says_where_and_ends_with_status_1(tmp_path: Path) -> None:
    done = train(*TINY, *places(tmp_path), "optim.lr=1e6", "activation=relu")
    assert done.returncode == 1
    assert re.search(r"diverged at step \d+, first seen at", done.stdout)
    assert done.stdout.rstrip().endswith("record.json")
