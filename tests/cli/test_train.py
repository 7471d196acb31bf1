"""The command line as a user meets it; what it refuses is asked in the test's own process."""

import json
import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest
from rectifiers.cli.refusals import check_arguments, flags_first

import forkserver
import processes
from conftest import ROOT, TINY
from rectifiers.cli.composition import composed
from rectifiers.runs.sections import options
from rectifiers.runtime.errors import InputError
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
        "activation: by_layer, crelu, dks, elu, gelu, glu, hardswish, identity, leaky_relu, "
        "maxout, mish, noisy_relu",
        "init: constant, delta_orthogonal, fixup, gaussian, he, he_average",
        "python train.py activation=prelu init=he",
        "lr: 0.01",
    ):
        assert line in text


def test_help_shows_what_the_overrides_make_and_refuses_bad_ones(call) -> None:
    assert "  std: 0.01" in call("train.py", "init=gaussian", "-h").stdout
    done = call("train.py", "--help", "activation=perlu")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: activation=perlu is not known; did you mean activation=prelu? The options are"
    )
    assert "Traceback" not in done.stderr
    sweep = call("train.py", "-h", "--multirun", "seed=1,2", "init=gaussian").stdout
    assert "seed: 0" in sweep  # what differs from run to run has no one value
    assert "  std: 0.01" in sweep
    assert call("train.py", "-h", "-m", "seed=1,2(").stderr.startswith("error: ")
    assert "hydra-help" in call("train.py", "--hydra-help").stdout


REFUSED = [
    (
        "activaton=prelu",
        "activaton is not known; did you mean activation? The keys here are: activation, ",
    ),
    (
        "optim.lrr=1",
        "optim.lrr is not known; did you mean optim.lr? The keys of optim are: bias_lr_factor",
    ),
    (
        "activation.slope=1",
        "error: activation.slope is not a key of activation=prelu; activation=dks and "
        "activation=le",
    ),
    ("activation.slope.x=1", "error: activation.slope is not a key of activation=prelu; "),
    (
        "data.store=tiled",
        "error: data.store is not a key of data=digits; data=imagenet has it. The keys of data "
        "are: ",
    ),
    (
        "evaluation.dense.mirror=false",
        "error: evaluation.dense is not known; evaluation=calibration and evaluation=dense "
        "have it. ",
    ),
    ("optim.defaults=1", "error: optim.defaults is not known; the keys of optim are: "),
    ("data.width.x=1", "error: data.width.x is not known; data.width is a value and has no keys"),
    (
        "callbacks.images=1",
        "error: callbacks.images needs an option of callbacks; give callbacks=<option> of: ",
    ),
    (
        "activation=perlu",
        "error: activation=perlu is not known; did you mean activation=prelu? The options are: "
        "by_layer, crelu, ",
    ),
    ("experiment=nix", "error: experiment=nix is not known; the options are: claim/"),
    ("experiment=table2/prelo", "did you mean experiment=table2/prelu? --help lists the options"),
    (
        "evaluation=[center,tenview]",
        "error: evaluation=tenview is not known; did you mean evaluation=ten_view? ",
    ),
    (
        "activation=relu,perlu",
        "error: activation=perlu is not known; did you mean activation=prelu? ",
    ),
    (
        "activation=relu,gelu",
        "error: activation=relu,gelu gives several values; add --multirun to run each, or give",
    ),
    ("--epochs=3", "error: --epochs=3 is not a flag; did you mean trainer.max_epochs=3?"),
    ("--epoch", "error: --epoch is not a flag; did you mean trainer.max_epochs=<value>?"),
    ("--activation=gelu", "error: --activation=gelu is not a flag; did you mean activation=gelu?"),
    ("--width=2", "did you mean model.width=2 or data.width=2?"),
    ("prelu", "error: prelu is not key=value; did you mean activation=prelu?"),
    ("table2/prelo", "error: table2/prelo is not key=value; did you mean experiment=table2/prelu?"),
    (
        "nothing",
        "error: nothing is not key=value; settings are key=value, such as activation=prelu",
    ),
    ("epochs=3", "error: epochs is not known; did you mean trainer.max_epochs?"),
    (
        "optim.epoch=3",
        "error: optim.epoch is not known; did you mean trainer.max_epochs? The keys of optim are: ",
    ),
    (
        "optim.=3",
        "error: optim.=3 has a dot without a key beside it; write key=value, such as optim.lr=0.01",
    ),
    (".lr=3", "error: .lr=3 has a dot without a key beside it"),
    ("=3", "error: =3 is not key=value; settings are key=value, such as activation=prelu"),
    (
        "activation=prélu",
        """error: activation=prélu cannot be read; quote the value: 'activation="prélu"'""",
    ),
    ('seed="1', """error: seed="1 cannot be read; quote the value: 'seed="1"'"""),
    (f"runs_dir={'a' * 300}", "cannot be used (File name too long); give another"),
    ("optim.drop_epochs_from=x", "error: optim.drop_epochs_from is not known; did you mean"),
    ("seed=(", "error: seed=( cannot be read as key=value; check its brackets, commas and quotes"),
    ("activation=prelu,", "error: activation=prelu, cannot be read as key=value; check its "),
    ("evaluation=[center,]", "error: evaluation=[center,] cannot be read as key=value; check its "),
    ("seed=[1", "error: seed=[1 cannot be read as key=value; check its brackets, commas and"),
    (
        "evaluation=[center,ten_view,center]",
        "error: evaluation=[center,ten_view,center] has center twice; give it once",
    ),
    (
        "activation._target_=torch.nn.Relu",
        "imported (module 'torch.nn' has no attribute 'Relu'); did you mean",
    ),
    ("optim.lr=abc", "error: optim.lr=abc: should be a valid number"),
    (
        "activation=null",
        "error: activation=null is not usable; leave it out, or give activation=<option> of: "
        "by_layer, crelu, ",
    ),
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
    sentence = (
        f"{argument} is not usable; leave it out, or give {group}=<option> of: {options(group)}"
    )
    with pytest.raises(InputError, match=re.escape(sentence)):
        check_arguments(["seed=null", argument])


@pytest.mark.parametrize(
    "argument", ["activation=relu,'prelu'", "experiment=table2/relu", "activation=(", "--help"]
)
def test_other_arguments_are_left_to_hydra(argument: str) -> None:
    check_arguments([argument])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["data=cifar10", "data.split_seed=1"],
            "error: data.split_seed is not a key of data=cifar10; data=digits and",
        ),
        (["model=timm", "model.rows=[]"], "error: model.rows is not a key of model=timm; "),
        (
            ["evaluation=[dense]", "evaluation.dense.mirror=false", "optim.lrr=1"],
            "error: optim.lrr is not known; ",
        ),
        (
            ["activation='leaky_relu'", "activation.slope=1", "optim.lrr=1"],
            "error: optim.lrr is not known; ",
        ),
        (
            ["--multirun", "activation=leaky_relu,dks", "activation.slope=1", "optim.lrr=1"],
            "error: optim.lrr is not",
        ),
    ],
)
def test_a_key_is_judged_by_the_options_that_are_chosen(
    call, arguments: list[str], sentence: str, tmp_path
) -> None:
    done = call("train.py", *places(tmp_path), *arguments)
    assert done.returncode == 1
    assert f"error: {sentence_of(done.stderr)}".startswith(sentence)


@pytest.mark.parametrize(("argument", "sentence"), REFUSED)
def test_a_bad_argument_gets_one_sentence_and_a_non_zero_status(
    call, argument: str, sentence: str, tmp_path: Path
) -> None:
    done = call("train.py", *places(tmp_path), argument)
    assert done.returncode == 1
    line = f"error: {sentence_of(done.stderr)}"
    assert sentence in line
    assert "+" not in line.replace("1e+30", "").replace("+foo", "")
    assert not (tmp_path / "runs").exists()


def test_a_setting_of_a_function_by_its_path_takes_a_plus(call, tmp_path: Path) -> None:
    chosen = ["activation=relu", "activation._target_=torch.nn.Softplus"]
    wrong = {
        "activation.beta=2": "activation.beta is not known; "
        "a setting of torch.nn.Softplus takes a plus: +activation.beta=2",
        "+activation.bta=2": "activation.bta is not known; torch.nn.modules.activation.Softplus takes: "  # noqa: E501
        "beta, threshold",
        "+activation.beta=x": "activation.beta=x: should be a valid number",
        "+model.foo=1": "+model.foo=1 adds or removes a key, which nothing here reads; write key=value",  # noqa: E501
        "+activation.a.b=1": "+activation.a.b=1 adds or removes a key, which nothing here reads; write "  # noqa: E501
        "key=value",
    }
    for argument, sentence in wrong.items():
        done = call("train.py", *places(tmp_path), *chosen, argument)
        assert (done.returncode, sentence_of(done.stderr)) == (1, sentence)
    assert not (tmp_path / "runs").exists()
    check_arguments([*chosen, "+activation.beta=2"])
    assert composed([*chosen, "+activation.beta=2"]).activation.options == {"beta": 2}


def test_an_option_that_is_chosen_twice_is_refused(call, tmp_path: Path) -> None:
    done = call("train.py", *places(tmp_path), "activation=relu", "seed=1", "activation=prelu")
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: activation=relu and activation=prelu choose activation twice; give one of them\n"
    )
    for command in (["scripts/analyse.py", "gain"], ["scripts/evaluate.py", "run=x"]):
        done = call(*command, "activation=relu", "activation=prelu")
        assert done.stderr.endswith(
            "activation=relu and activation=prelu choose activation twice; give one of them\n"
        )


def test_flags_may_stand_between_overrides() -> None:
    typed = ["seed=1", "-m", "activation=relu", "--cfg", "job", "init=he"]
    assert flags_first(typed) == ["-m", "--cfg", "job", "seed=1", "activation=relu", "init=he"]


@pytest.mark.process
def test_a_run_writes_nothing_outside_its_folders(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    done = forkserver.run(
        [sys.executable, str(ROOT / "train.py"), *TINY, *places(tmp_path)], cwd=place
    )
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
    assert sentence_of(done.stderr).startswith(
        f"{tmp_path}/nowhere is not a folder; data.root must hold train/<class>/*"
    )
    assert "Traceback" in train(*arguments, HYDRA_FULL_ERROR="1").stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["optim.lr=abc"], "optim.lr=abc: should be"),
        (["activation=perlu"], "activation=perlu is not known"),
        (
            ["data.batch_size=33", "data=folder", "data.root=/nowhere"],
            "data.batch_size=33 does not divide over 2",
        ),
        (["trainer.devices=4"], "trainer.num_nodes=1 trainer.devices=4 asks for 4 processes"),
        (["data=folder", "data.root=/nowhere"], "/nowhere is not a folder"),
    ],
)
def test_what_all_processes_refuse_is_said_once(
    overrides: list[str], sentence: str, tmp_path: Path
) -> None:
    command = [sys.executable, "train.py", *TINY, *places(tmp_path), *overrides]
    done = processes.ranks(command, command)
    assert [process.returncode for process in done] == [1, 1]
    assert "".join(process.stderr for process in done).count("error: ") == 1
    assert done[0].stderr.splitlines()[-1].startswith(f"error: {sentence}")


@pytest.mark.process
def test_a_protocol_that_the_network_cannot_be_tested_by_is_refused_before_data_are_opened(
    call, tmp_path: Path
) -> None:
    asked = (
        "model=mlp",
        "evaluation=dense",
        "data=folder",
        f"data.root={tmp_path}/nowhere",
        "logger=none",
    )
    done = call("train.py", *places(tmp_path), *asked)
    assert sentence_of(done.stderr).startswith(
        "evaluation=dense is not usable: testing on maps needs some"
    )


@pytest.mark.process
def test_nine_runs_of_a_sweep_each_in_its_folder_and_none_of_them_twice(tmp_path: Path) -> None:
    small = (*TINY, "trainer.max_epochs=1")
    sweep = (
        "--multirun",
        *small,
        *places(tmp_path),
        "activation=relu,prelu,prelu_shared",
        "seed=0,1,2",
    )
    first = train(*sweep)
    assert first.returncode == 0, first.stderr
    paths = sorted(tmp_path.glob("runs/*/record.json"))
    found = {
        (r["choices"]["activation"], r["science"]["seed"])
        for r in (json.loads(p.read_text()) for p in paths)
    }
    assert found == {(a, s) for a in ("relu", "prelu", "prelu_shared") for s in range(3)}
    assert all(json.loads(p.read_text())["run"] == p.parent.name for p in paths)
    stamps = [p.stat().st_mtime_ns for p in paths]
    second = start("-c", WHAT_WAS_IMPORTED, *sweep)
    assert second.stdout.count("This run exists already. rerun=true runs it again.") == 9
    assert "IMPORTED []" in second.stdout  # what is done is answered without torch
    assert [p.stat().st_mtime_ns for p in paths] == stamps
    # the last run of the sweep is the same run as one alone
    alone = train(
        *small,
        f"runs_dir={tmp_path}/alone",
        f"cache_dir={tmp_path}/c",
        "activation=prelu_shared",
        "seed=2",
    )
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
    assert done.stderr.splitlines()[-1].startswith("error: optim.lr=abc: should be")
    assert "HYDRA" not in done.stderr
    assert "Error executing" not in done.stderr
    statuses = sorted(
        json.loads(p.read_text())["status"] for p in tmp_path.glob("runs/*/record.json")
    )
    assert statuses == ["diverged", "finished"]


@pytest.mark.process
def test_a_run_that_diverges_says_where_and_ends_with_status_1(tmp_path: Path) -> None:
    done = train(*TINY, *places(tmp_path), "optim.lr=1e6", "activation=relu")
    assert done.returncode == 1
    assert re.search(r"diverged at step \d+, first seen at", done.stdout)
    assert done.stdout.rstrip().endswith("record.json")
    again = train(*TINY, *places(tmp_path), "optim.lr=1e6", "activation=relu")
    assert (
        "This run exists already. It diverged; a lower optim.lr makes another run." in again.stdout
    )
