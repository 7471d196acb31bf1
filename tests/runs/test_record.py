import json
from pathlib import Path
from typing import Any

import pytest

from made_up import (
    LAYER,
    SCIENCE,
    diverged,
    ensemble,
    epoch,
    errors,
    result,
    training,
    training_json,
)
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id
from refusals import refused

SLOPE = {"mean": 0.25, "std": 0.0, "min": 0.25, "max": 0.25, "channels": 1}
WHOLE = training_json(
    protocols={"center": result(3, 5, by_scale={"36": errors(2, 5)})},
    init_report=[LAYER],
    slopes={"conv1": SLOPE},
    drop_epochs=[1],
)


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = training(**WHOLE)
    records.write(tmp_path / "run" / "record.json", record)
    assert records.load(tmp_path / "run" / "record.json") == record
    assert json.loads((tmp_path / "run" / "record.json").read_text()) == WHOLE
    assert record.protocols["center"].is_correct() == [True, True, True, False, False]
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["record.json"]


def test_learned_parameters_are_absent_or_come_back() -> None:
    assert "activation_parameters" not in records.to_json(training(**WHOLE))
    learned = WHOLE | {"activation_parameters": {"conv1/beta": SLOPE}}
    assert json.loads(records.to_json(training(**learned))) == learned


def test_an_ensemble_comes_back_as_written(tmp_path: Path) -> None:
    sciences = [SCIENCE | {"seed": seed} for seed in (0, 1)]
    parts = [training(**WHOLE | {"science": own, "run": run_id(own)}) for own in sciences]
    combined = ensemble(*parts)
    records.write(tmp_path / "record.json", combined)
    assert records.load(tmp_path / "record.json") == combined
    with refused(r"record\.json is an ensemble's record.*give one of its"):
        records.load_training(tmp_path / "record.json")


def test_members_have_one_order() -> None:
    sciences = [SCIENCE | {"seed": seed} for seed in (0, 1)]
    parts = [training(**WHOLE | {"science": own, "run": run_id(own)}) for own in sciences]
    turned = ensemble(*parts).model_dump()
    turned["members"].reverse()
    turned["science"]["members"].reverse()
    turned["run"] = run_id(turned["science"])
    with pytest.raises(ValueError, match="members"):
        records.parse(json.dumps(turned))


def put(content: Any, key: str, value: Any) -> str:
    """The JSON text with `value`, itself a text, at a dotted key."""
    marked = json.loads(json.dumps(content))
    node = marked
    *parents, leaf = (int(part) if part in "01" else part for part in key.split("."))
    for part in parents:
        node = node[part]
    node[leaf] = "placeholder"
    return json.dumps(marked).replace('"placeholder"', value)


DEEP = "[" * 800 + "]" * 800


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("schema_version", "1", "schema_version"),
        ("kind", '"sweep"', "kind"),
        ("status", '"half"', "status"),
        ("run", '"../up"', "run "),
        ("science.seed", "5", "run "),
        ("science.seed", "-1", "seed is"),
        ("science.seed", '0, "seed": 0', "'seed' stands twice"),
        ("science.data", "{}", r"data\.crop_px"),
        ("epochs", "2", "epochs "),
        ("history.1.epoch", "3", r"history\.1"),
        ("history.1.lr", "null", r"history\.1 "),
        ("history.0.train_loss", "1e200", r"history\.0\.train_loss"),
        ("diverged", '{"step": 1, "layer": "fc"}', "diverged "),
        ("slopes.conv1.median", "0.2", r"slopes\.conv1\.median"),
        ("protocols.center.num_images", "6", "top1_error_pct "),
        ("protocols.center.top1_error_pct", "40.1", "top1_error_pct "),
        ("protocols.center.top5_correct", "null", "top5_error_pct "),
        ("protocols.center.by_scale.36.top1_correct", "1", r"by_scale\.36"),
        ("protocols.center.correct_mask", '"e000"', "correct_mask "),
        ("protocols.center.by_scale.36", json.dumps(errors(3, 6)), r"by_scale\.36 "),
        ("protocols.center.correct_mask", '"f0"', "correct_mask "),
        ("protocols.center.correct_mask", '"c1"', "correct_mask "),
        ("wall_s", "NaN", "expected value"),
        ("wall_s", "-1.0", "wall_s=-1"),
        ("protocols.center.nll", "-0.1", "nll=-0.1"),
        ("protocols.center.brier", "2.1", "brier=2.1"),
        ("protocols.center.ece", "1.1", "ece=1.1"),
        ("init_report.0.std_asked", "-0.1", "std_asked=-0.1"),
        ("slopes.conv1.std", "-0.1", "std=-0.1"),
        ("slopes.conv1.std", "0.1", r"slopes\.conv1: std "),
        ("slopes.conv1.mean", "0.3", r"slopes\.conv1: mean "),
        ("history.0.train_loss", "-1.0", "train_loss=-1"),
        ("history.0.val/loss", "-1.0", "val/loss=-1"),
        ("history.0.val/top1_error_pct", "101.0", "val/top1_error_pct=101"),
        ("history.0.response_std/conv1", "-1.0", "response_std/conv1=-1"),
        ("history.0.active_share/conv1", "1.5", "active_share/conv1=1.5"),
        ("history.0.dead_units/conv1", "-1", "dead_units/conv1=-1"),
        ("provenance.machine.threads", "0", "threads=0"),
        ("protocols.center.settings", '{"scale": 1e999}', "out of range float"),
        ("images.train", "1" + "0" * 400, r"images\.train"),
        ("science.init", DEEP, "recursion limit"),
    ],
)
def test_bad_record_is_refused(tmp_path: Path, key: str, value: str, named: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(put(WHOLE, key, value))
    with refused(named) as refusal:
        records.load(path)
    message = str(refusal.value)
    assert message.startswith(f"{path} is not a usable record (")
    assert "rerun=true" in message
    assert len(message) < len(str(path)) + 250


def test_scores_may_round_out_of_range() -> None:
    rounded = {"nll": -1e-9, "brier": 2.0000001, "ece": 1.0000001}
    assert training(protocols={"center": result(3, 5, **rounded)}).protocols["center"].nll == -1e-9


def test_slopes_and_mean_responses_may_be_negative() -> None:
    own = {"slope/conv1": -0.5, "response_mean/conv1": -2.0, "mine/conv1": -1.0, "mine": 1e9}
    assert training(history=[epoch(i) | own for i in (1, 2, 3)]).curve("mine") == [1e9] * 3


def test_giant_text_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than"):
        records.parse(json.dumps(WHOLE).ljust(records.LARGEST_BYTES + 1))


def test_splits_fit_the_protocol_and_the_tests() -> None:
    three = {"train": 100, "val": 9, "test": 5}
    held_out = SCIENCE | {"data": {"crop_px": 8, "protocol": "held_out"}}
    tested = {"center": result(3, 5, split="test")}
    record = training(science=held_out, protocols=tested, images=three)
    assert record.images.tested == "test"
    for changes, sentence in (
        ({"science": SCIENCE}, "images.test "),
        ({"images": three | {"test": None}}, "images.test "),
        ({"images": three | {"test": 6}}, "protocols.center "),
        ({"protocols": {"center": result(3, 5)}}, "protocols.center "),
    ):
        with pytest.raises(ValueError, match=sentence):
            training(**{"science": held_out, "protocols": tested, "images": three} | changes)


def test_names_of_members_are_those_of_their_science() -> None:
    parts = [training(science=SCIENCE | {"seed": seed}) for seed in (0, 1)]
    combined = ensemble(*parts).model_dump()
    for key, value, sentence in (
        ("members.0.run", f'"{"0" * 12}"', "members.0: run "),
        ("run", f'"{"0" * 12}"', "run "),
        ("members", "[]", "members=.*at least 2 items"),
        ("science.members.0", f'"{"0" * 12}"', "run "),
    ):
        with pytest.raises(ValueError, match=sentence):
            records.parse(put(combined, key, value))
    other = combined | {"science": {"members": ["0" * 12]}, "run": run_id({"members": ["0" * 12]})}
    with pytest.raises(ValueError, match="science "):
        records.parse(json.dumps(other))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
def test_what_cannot_be_read_is_not_written(tmp_path: Path, value: float) -> None:
    record = training(**WHOLE)
    history = [epoch(1) | {"lr": value}]
    wrong: dict[str, Any] = {"wall_s": value, "compute": {"x": value}, "history": history}
    for key in ("wall_s", "history", *(["compute"] if value != 1e200 else [])):
        changed = record.model_copy(update={key: wrong[key], "epochs": 3})
        with pytest.raises(ValueError, match=key if value == 1e200 else "expected value"):
            records.write(tmp_path / "record.json", changed)
    assert not list(tmp_path.iterdir())


def test_a_finished_run_has_every_epoch_it_planned() -> None:
    rows = [epoch(i) for i in (1, 2, 3, 4)]
    assert training(history=rows[:3]).epochs == SCIENCE["trainer"]["max_epochs"] == 3
    for count in (0, 2, 4):
        with pytest.raises(ValueError, match="epochs "):
            training(history=rows[:count])
    for count in (2, 3):  # a Timer may stop within the last epoch
        assert training(history=rows[:count], stopped_by="Timer").epochs == count
    assert [diverged(history=rows[:count]).epochs for count in (0, 2, 3)] == [0, 2, 3]
    with pytest.raises(ValueError, match="epochs "):
        diverged(history=rows)


@pytest.mark.parametrize(
    ("number", "kept"),
    [(1.5, 1.5), (-1e30, -1e30), (float("nan"), None), (1e200, None), (None, None)],
)
def test_a_non_finite_number_is_kept_as_none(number: float | None, kept: float | None) -> None:
    assert records.finite(number) == kept


def test_command_is_what_was_typed() -> None:
    record = training(overrides=["activation=prelu", "data.split_seed=${seed}"])
    assert record.command == "python train.py activation=prelu 'data.split_seed=${seed}'"
