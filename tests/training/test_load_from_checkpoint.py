"""`Classifier.load_from_checkpoint`: a checkpoint needs no other file, and is data."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, compose_config, places
from rectifiers.runs.folder import Outcome
from rectifiers.runs.trust import kept_text
from rectifiers.runtime.distributed import world
from rectifiers.training.build import build
from rectifiers.training.checks import checked_functions
from rectifiers.training.module import Classifier
from rectifiers.training.train import open_together, train
from rectifiers.training.train import test as run_tests
from refusals import refused

SHORT = (*TINY, "trainer.max_epochs=1", "evaluation=center")


def trained(place: Path, *overrides: str) -> Outcome:
    return train(compose_config(*SHORT, *places(place), *overrides), {"data": "digits"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Outcome:
    return trained(tmp_path_factory.mktemp("finished"))


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("preprocess=pca", "activation=maxout"),
        ("model=resnet20", "model.width=0.125", "trainer.precision=64-true"),
    ],
)
def test_a_checkpoint_alone_gives_the_runs_answers(overrides, tmp_path: Path) -> None:
    typed = tuple(o for o in SHORT if not o.startswith(("model.", "model=")))
    typed = (*typed, *overrides) if "model=resnet20" in overrides else (*SHORT, *overrides)
    config = compose_config(*typed, *places(tmp_path))
    run = train(config, {"data": "digits"})
    alone = shutil.copy(run.path.with_name("last.ckpt"), tmp_path / "alone.ckpt")
    loaded = Classifier.load_from_checkpoint(alone)
    assert not loaded.training

    functions = checked_functions(config)
    source = open_together(config, functions, None)
    other = build(config, functions, source, run.path.parent, world(), is_trained=True)
    parts: Any = {"preprocess": loaded.preprocess, "network": loaded.network}
    result = run_tests(replace(other, classifier=loaded, **parts), ["center"])["center"]
    assert result.correct_mask == run.record.protocols["center"].correct_mask
    assert result.nll == run.record.protocols["center"].nll


def changed(finished: Outcome, place: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of the run's checkpoint, of which `change` has made something else."""
    path = place / "changed.ckpt"
    content = torch.load(finished.path.with_name("last.ckpt"), weights_only=True)
    change(content["rectifiers"])
    torch.save(content, path)
    return path


def with_config(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(kept: dict[str, Any]) -> None:
        config = json.loads(kept["config"])
        group, _, leaf = key.partition(".")
        config[group][leaf] = value
        kept["config"] = json.dumps(config)

    return change


HOSTILE = [
    (with_config("activation._target_", "os.system"), r"trust=\[os\]"),
    (with_config("optim._target_", "torch.load"), r"trust=\[torch\]"),
    (with_config("preprocess.scale", "${oc.env:HOME}"), "is a reference"),
    (with_config("model.width", "wide"), r"\.ckpt: model\.width"),
    (lambda kept: kept.update(config="[1]"), "is not a mapping"),
    (with_config("checkpoint.\x1b[2J", 1), r"\.ckpt: .*\[2J"),
    (lambda kept: kept.update(config='{"\\u009b2J._target_": "os.system"}'), r"trust=\[os\]"),
    (lambda kept: kept.update(config="{"), "cannot be read"),
    (lambda kept: kept.update(channels=True), "number of classes"),
    (lambda kept: kept.update(classes=2**40), "number of classes"),
    (lambda kept: kept["preprocess"].update(offset="0"), "does not consist of tensors"),
    (lambda kept: kept.pop("preprocess"), "cannot be read"),
    (lambda kept: kept.update(classes=11), "of another network"),
    (lambda kept: kept.update(history=[{}]), "cannot be read"),
    (lambda kept: kept.pop("codes"), "cannot be read"),
]


@pytest.mark.parametrize(("change", "reason"), HOSTILE)
def test_what_a_checkpoint_may_not_ask_is_refused(
    change, reason: str, finished: Outcome, tmp_path: Path
) -> None:
    path = changed(finished, tmp_path, change)
    with refused(reason) as raised:
        Classifier.load_from_checkpoint(path)
    assert str(raised.value).isprintable()


def test_weights_that_are_none_are_refused(finished: Outcome, tmp_path: Path) -> None:
    content = torch.load(finished.path.with_name("last.ckpt"), weights_only=True)
    content["state_dict"] = dict.fromkeys(content["state_dict"], 3)
    torch.save(content, tmp_path / "numbers.ckpt")
    with refused("cannot be read"):
        Classifier.load_from_checkpoint(tmp_path / "numbers.ckpt")


@pytest.mark.parametrize("name", ["missing.ckpt", "."])
def test_a_path_without_a_file_is_refused(name: str, tmp_path: Path) -> None:
    with refused(r"give the last\.ckpt of a run"):
        Classifier.load_from_checkpoint(tmp_path / name)


def test_a_link_that_the_user_names_is_followed(finished: Outcome, tmp_path: Path) -> None:
    """As DVC makes them of its outs, where its cache is told to."""
    (tmp_path / "link.ckpt").symlink_to(finished.path.with_name("last.ckpt"))
    assert Classifier.load_from_checkpoint(tmp_path / "link.ckpt").run == finished.record.run


def test_function_of_a_trusted_module_is_loaded(
    finished: Outcome, tmp_path: Path, monkeypatch
) -> None:
    source = """import torch
class Mine(torch.nn.PReLU):
    def __init__(self, channels, initial_slope):
        super().__init__(channels, initial_slope)
"""
    (tmp_path / "my_trusted.py").write_text(source)
    path = changed(finished, tmp_path, with_config("activation._target_", "my_trusted.Mine"))
    with refused(r"changed\.ckpt: .*add trust=\[my_trusted\]$"):
        Classifier.load_from_checkpoint(path)
    monkeypatch.syspath_prepend(tmp_path)
    loaded = Classifier.load_from_checkpoint(path, trust=["my_trusted"])
    assert any(type(module).__name__ == "Mine" for module in loaded.network.modules())


def test_a_checkpoint_keeps_no_place_of_the_machine(finished: Outcome) -> None:
    kept = torch.load(finished.path.with_name("last.ckpt"), weights_only=True)["rectifiers"]
    assert str(finished.path.parents[1]) not in kept["config"]
    assert not {"runs_dir", "logger"} & json.loads(kept["config"]).keys()


def test_a_checkpoint_keeps_no_callbacks() -> None:
    config = compose_config(*SHORT, "callbacks=early_stopping")
    assert config.callbacks
    assert "callbacks" not in json.loads(kept_text(config))
