from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from conftest import CONF, compose_config
from rectifiers.runs.folder import Outcome, run_lock
from rectifiers.training import ensemble as ensembles
from refusals import refused


def test_ensemble_is_locked_while_it_is_made(tmp_path: Path, monkeypatch) -> None:
    made: list[str] = []

    def record(_: Any, names: Any, path: Path, *rest: Any) -> str:
        with refused("is in progress"), run_lock(path.parent, 0.01):
            pass
        made.append(path.parent.name)
        return made[0]

    monkeypatch.setattr(ensembles, "_record", record)
    monkeypatch.setattr(ensembles.records, "write", lambda *_: None)
    images = SimpleNamespace(tested=45)
    runs: list[Any] = [
        Outcome(SimpleNamespace(run=name, images=images), tmp_path, fresh=False)  # type: ignore[type-var]
        for name in "ab"
    ]
    assert ensembles._averaged(runs, ["center"], tmp_path, None).record == made[0]


def test_searches_have_their_folder() -> None:
    assert str(compose_config("hparams_search=lr").runs_dir) == "runs/searches"
    assert str(compose_config("hparams_search=lr", "runs_dir=mine").runs_dir) == "mine"


def test_processes_search_the_same_rates() -> None:
    optuna = pytest.importorskip("optuna")
    search = yaml.safe_load((CONF / "hparams_search" / "lr.yaml").read_text())["hydra"]["sweeper"]

    def rates() -> list[float]:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(**search["sampler"]))
        return [study.ask().suggest_float("optim.lr", 3e-4, 0.1, log=True) for _ in range(3)]

    assert rates() == rates()
