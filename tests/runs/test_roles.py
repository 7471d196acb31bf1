"""Every key of the configuration says what it is for; ids and what a test may choose follow."""

import pytest
from pydantic import create_model

from conftest import compose_config
from rectifiers.runs import identity, role
from rectifiers.runs.config import FREE, KEYS, PATHS, RunConfig
from rectifiers.runs.identity import DEFAULTS, run_id, science, settings
from rectifiers.runs.role import Role, keys_of
from rectifiers.runtime.schema import Section

# What an id means where it holds no value. None of these may ever change: a run that is there would
# be found under the id of another. A new key is added with its default.
MEANT = {
    "init.mode": "closed_form",
    "init.from_weights_content": None,
    "model.rows": None,
    "model._target_": None,
    "data.protocol": "paper",
    "data.val_per_class": None,
    "data.split_seed": None,
    "data.signal": False,
    "data.pad_px": 0,
    "data.content": None,
    "trainer.deterministic": None,
    "trainer.gradient_clip_val": None,
    "trainer.gradient_clip_algorithm": None,
    "trainer.limit_train_batches": None,
    "trainer.overfit_batches": None,
    "optim.slope_weight_decay": 0.0,
    "optim.momentum": None,
    "scheduler.warmup_epochs": 0,
    "scheduler.drop_factor": 10.0,
    "scheduler.max_drops": None,
    "scheduler.patience": None,
    "scheduler.milestones": None,
    "callbacks": None,
    "fast": False,
    "members": None,
}


def test_defaults_of_science_never_change() -> None:
    assert DEFAULTS == MEANT


def test_a_key_without_a_role_is_refused() -> None:
    class Inner(Section):
        silent: int = 0

    class Outer(Section):
        seed: int = role.seed()
        inner: Inner

    with pytest.raises(TypeError, match=r"inner\.silent does not say its role"):
        dict(keys_of(Outer))
    with pytest.raises(TypeError, match="more does not say its role"):
        dict(keys_of(create_model("Silent", __base__=RunConfig, more=(int, 0))))


@pytest.mark.parametrize(("value", "is_same"), [(7, True), (8, False)])
def test_a_new_key_makes_no_new_ids(monkeypatch, value: int, is_same: bool) -> None:
    config = compose_config()
    more = create_model("Later", __base__=RunConfig, later=(int, role.science(7)))
    later = more.model_validate({**dict(config), "later": value})
    assert (run_id(science(later)) == run_id(science(config))) == is_same
    assert ("later" in science(later)) != is_same


def test_science_holds_no_default_and_means_it() -> None:
    config = compose_config("data.pad_px=0", "trainer=gpu", "fast=true", "data.protocol=paper")
    kept = science(config)
    assert not {"pad_px", "protocol", "val_per_class"} & kept["data"].keys()
    assert kept["fast"] is True
    assert settings(kept)["data.pad_px"] == 0
    assert settings(kept)["data.batch_size"] == 128
    assert "slope_weight_decay" not in science(compose_config("optim=plain"))["optim"]


def test_science_has_todays_names() -> None:
    kept = science(compose_config("callbacks=[revive_dead,early_stopping]", "scheduler=multistep"))
    assert kept["callbacks"].keys() == {"revive_dead", "early_stopping"}
    assert kept["scheduler"]["milestones"] == []
    declared = {key.partition(".")[0] for key in KEYS}
    assert kept.keys() <= declared - set(identity.NOT_SCIENCE)


def test_roles_decide_what_may_differ() -> None:
    roles = {name: key.role for name, key in KEYS.items()}
    assert {name for name, its in roles.items() if its is Role.SEED} == {"seed", "data.split_seed"}
    chosen_here = {Role.PLACE, Role.MACHINE, Role.LOOK}
    for name, key in KEYS.items():  # a number cannot depend on the rank, or on who tests
        assert key.role in chosen_here or not (key.ranks_differ or key.free), name
    assert set(PATHS) == {"runs_dir", "cache_dir", "ckpt_path", "data.root", "init.from_weights"}
    assert {"evaluation", "logger", "data.root", "data.size", "threads"} <= set(FREE)
    assert not {"rerun", "ckpt_path", "init.from_weights", "trainer.precision", "seed"} & set(FREE)
