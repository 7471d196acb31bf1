"""The command that is printed for a record makes that run."""

import json
import shlex
from typing import Any

import pytest

from conftest import ROOT, compose_config
from rectifiers.results.commands import command
from rectifiers.runs.identity import run_id, science

RECORDS = ROOT / "results" / "records"


def overrides(line: str) -> list[str]:
    program, script, *given = shlex.split(line)
    assert (program, script) == ("python", "train.py")
    return given


@pytest.mark.parametrize("name", ["6620acccce0a", "f9f5c19e1663", "1fd564cecf6d", "db05708c653c", "8878b26ef54d"])
def test_it_makes_the_run_of_a_committed_record(name: str) -> None:
    record = json.loads((RECORDS / f"{name}.json").read_text())
    config = compose_config(*overrides(str(command(record))))
    assert run_id(science(config)) == name
    assert sorted(config.evaluation.protocols) == sorted(record["protocols"])


def made(*given: str, choices: dict[str, Any]) -> dict[str, Any]:
    config = compose_config(*given)
    return {"choices": choices, "science": science(config), "protocols": {"center": {}}, "run": run_id(science(config))}


@pytest.mark.parametrize(
    ("given", "choices"),
    [
        (("activation=gelu", "init=xavier", "seed=3"), {"activation": "gelu", "init": "xavier"}),
        (("model.width=0.5", "model.dropout=0.25", "optim.lr=0.02"), {}),
        (("optim.drop_epochs=[46,58]", "optim.epochs=60"), {}),
        (("experiment=table4/prelu", "data=digits", "optim.drop_epochs=[3]", "optim.drop_epochs_from=null"),
         {"experiment": "table4/prelu", "data": "digits"}),
        (("model=mlp", "model.hidden=7", "preprocess=zca"), {"model": "mlp", "preprocess": "zca"}),
        (("compute.precision=64-true", "init.bias=torch_default"), {}),
        (("experiment=claim/table2", "activation=prelu", "seed=3"),
         {"experiment": "claim/table2", "activation": "prelu", "data": "digits8"}),
        (("data.split_seed=3", "seed=3"), {}),
        (("data=digits8", "data.split_seed=4", "seed=3"), {"data": "digits8"}),
    ],
)  # fmt: skip
def test_what_departs_from_the_defaults_is_written_out(given: tuple[str, ...], choices: dict[str, Any]) -> None:
    record = made(*given, choices=choices)
    assert run_id(science(compose_config(*overrides(str(command(record)))))) == record["run"]


def test_runs_that_differ_in_their_seed_alone_are_asked_for_once() -> None:
    given, choices = ("experiment=claim/table2",), {"experiment": "claim/table2", "data": "digits8"}
    told = [str(command(made(*given, f"seed={seed}", choices=choices))) for seed in (1, 2)]
    assert told == [f"python train.py experiment=claim/table2 seed={seed} evaluation=center" for seed in (1, 2)]


def test_a_folder_is_left_to_the_reader() -> None:
    record = made("data=folder", "data.content=abc", choices={"data": "folder"})
    assert str(command(record)).endswith(" data.root=FOLDER")


def test_what_can_no_longer_be_made_has_no_command() -> None:
    record = made(choices={})
    record["science"]["optim"]["forgotten"] = 1
    assert command(record) is None


def test_an_ensemble_is_made_of_its_runs() -> None:
    record = {"members": [{"run": "a"}, {"run": "b"}], "protocols": {"dense": {}}, "choices": {}, "science": {}}
    assert command(record) == "python scripts/evaluate.py run=[a,b] evaluation=dense"
