"""What a mistyped key means: other projects' words by their meaning, others by spelling."""

import re

import pytest
from torch import nn

from conftest import CONF, compose_config
from rectifiers.cli.composition import composed, expand_names
from rectifiers.cli.hints import check_arguments
from rectifiers.runs.options import GROUPS, keys_of_conf
from rectifiers.runs.sections import Trainer
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.words import KEYS, OPTIONS, SECTIONS, meaning


def ask(*arguments: str) -> None:
    check_arguments(arguments)
    composed(arguments)


def refusal_of(*arguments: str) -> str:
    with pytest.raises(InputError) as refused:
        ask(*arguments)
    return str(refused.value)


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("batch_size=64", "data.batch_size?"),
        ("model.optimizer.lr=0.1", "optim.lr?"),
        ("--batch-size=64", "data.batch_size?"),
        ("--lr", "optim.lr?"),
        ("trainer.accumulate_grad_batches=4", "data.batch_size images at once"),
        ("trainer.resume_from_checkpoint=a.ckpt", "ckpt_path=<file>"),
        ("train=False", "scripts/evaluate.py"),
        ("model.pretrained=true", "init.from_weights=<file>"),
        ("trainer=ddp_sim", "trainer=ddp_cpu?"),
        ("data=mnist", "data=folder"),
        ("activation=logsigmoid", "torch.nn.LogSigmoid?"),
        ("model=resnet18", "model=timm model.name=resnet18?"),
        ("data.num_wrokers=1", "data.num_workers?"),
        ("model.optimizer._target_=torch.optim.Adam", "optim=<option>?"),
        ("model.scheduler.factor=0.1", "scheduler=<option>?"),
        ("model.net.lin1_size=64", "model=<option>?"),
        ("data.train_val_test_split=[8,1,1]", "data.val_per_class"),
        ("paths.work_dir=/tmp", "runs_dir"),
        ("paths=default", "runs_dir"),
        ("extras.print_config=false", "--cfg job"),
        ("extras=null", "--cfg job"),
        ("hydra=default", "leave it out"),
        ("callbacks=default", "callbacks=null?"),
        ("logger=mlflow", "+logger.mine._target_="),
        ("logger=aim", "+logger.mine._target_="),
        ("data.bad_images=skip", "leave it out"),
        ("data.color_scale=roots", "eigenvalues"),
        ("activation_checkpointing=true", "more processes"),
        ("hydra.run.dir=logs", "runs_dir="),
        ("++hydra.run.dir=logs", "runs_dir="),
        ("hydra.job.chdir=true", "runs_dir="),
        ("hydra.run={dir: logs}", "runs_dir="),
        ("~hydra.run.dir", "runs_dir="),
    ],
)
def test_a_word_is_answered_by_its_meaning(typed: str, remedy: str) -> None:
    assert remedy in refusal_of(typed)


@pytest.mark.parametrize("typed", ["trainer.accumulate_grad_batches=4", "data=mnist", "data=svhn"])
def test_no_remedy_changes_what_is_trained(typed: str) -> None:
    refusal = refusal_of(typed)
    assert "limit_train_batches" not in refusal
    assert "did you mean" not in refusal


def test_every_remedy_that_is_a_key_exists() -> None:
    known = {*keys_of_conf(), *(f"trainer.{key}" for key in Trainer.model_fields)}
    remedies = [*KEYS.values(), *SECTIONS.values()]
    meant = [words.partition("=")[0] for words in remedies if " " not in words]
    assert len(meant) > 50
    assert {key for key in meant if not key.startswith("hydra.")} <= known
    assert not {key for key in KEYS if key in known}


def test_every_remedy_that_is_an_option_is_usable() -> None:
    overrides = [
        words for words in OPTIONS.values() if re.fullmatch(r"\S+=[\w.]+( \S+=\S+)*", words)
    ]
    assert len(overrides) > 25
    for words in dict.fromkeys(overrides):
        group, _, option = words.split()[0].partition("=")
        if option.startswith("torch.nn."):
            assert hasattr(nn, option.removeprefix("torch.nn."))
        elif " " not in words and group in GROUPS and option != "null":
            assert (CONF / group / f"{option}.yaml").is_file()  # which composes, as all options do
        elif "<" not in words and option != "null":
            composed(words.split())


def test_a_word_of_ours_has_no_other_meaning() -> None:
    assert meaning("optim.lr") is None
    assert meaning("activation=prelu") is None


@pytest.mark.parametrize("typed", ["local=clustre", "local=7", "local=[clustre]"])
def test_a_local_file_that_is_not_there_is_refused(typed: str) -> None:
    assert re.search("invalid local: .* null", refusal_of(typed))


@pytest.mark.parametrize("value", ["null", "{}", "[null]", "", "[]"])
def test_null_leaves_optional_groups_out(value: str) -> None:
    groups = ("callbacks", "claim", "debug", "experiment", "hparams_search")
    arguments = [f"{group}={value}" for group in groups]
    check_arguments(arguments)
    assert composed(arguments) == compose_config()


@pytest.mark.parametrize("group", ["logger", "callbacks"])
def test_a_group_as_a_word_stays(group: str) -> None:
    assert expand_names(["--cfg", "job", "--package", group]) == [
        "--cfg",
        "job",
        "--package",
        group,
    ]


def test_null_in_a_list_is_no_option() -> None:
    callbacks = composed(["callbacks=[early_stopping,null]"]).callbacks
    assert callbacks is not None
    assert list(callbacks) == ["early_stopping"]
    assert composed(["logger=null"]).logger == {}


@pytest.mark.parametrize(
    "typed",
    [
        *("evaluation=[center,null]", "activation={}", "data=[null]", "callbacks=[1]"),
        *("debug={a:b}", "model=1e3", "--multirun activation=relu,null", "evaluation=[center,{}]"),
    ],
)
def test_what_is_no_option_is_refused(typed: str) -> None:
    arguments = typed.split()
    assert refusal_of(*arguments).startswith(f"invalid {arguments[-1].partition('=')[0]}: ")


@pytest.mark.parametrize("value", ["[center],[center,ten_view]", "choice(center,ten_view)"])
def test_a_sweep_may_be_over_lists_and_choices(value: str) -> None:
    check_arguments(["--multirun", f"evaluation={value}"])


def test_keys_for_a_group_name_no_other_option() -> None:
    refusal = refusal_of("data={nothing:1}")
    assert "data.<key>=<value>" in refusal
    assert "debug=" not in refusal
