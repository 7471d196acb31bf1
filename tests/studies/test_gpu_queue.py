"""The scripts of studies/gpu: photographs in pieces, the rules fixed before the runs, and how speed
is measured."""

import importlib.util
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import made_up
from conftest import ROOT
from rectifiers.cli.composition import compose_job
from rectifiers.data import jpeg
from rectifiers.models.rows import trace
from rectifiers.runs import record as records
from refusals import refused


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "studies" / "gpu" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where data=speed.noise finds it
    spec.loader.exec_module(module)
    return module


pieces, study = load("pieces"), load("tiny_imagenet")
plain_loop, speed = load("plain_loop"), load("speed")  # in this order: speed imports the loop
RULE = {"most": 75, "fewest": 10, "call_s": 540, "start_s": 60, "share": 0.9}


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Files that no archive makes smaller: 600 of 4 kB for training, 60 for validation."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 300), ("val", 30)):
        for wnid in ("n01443537", "n01629819"):
            (tmp_path / "there" / part / wnid).mkdir(parents=True)
            for i in range(count):
                place = tmp_path / "there" / part / wnid / f"{wnid}_{i}.JPEG"
                place.write_bytes(rng.bytes(4096))
    return tmp_path / "there"


def contents(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*.JPEG")}


def test_pieces_are_small_and_reproducible(photographs: Path, tmp_path: Path) -> None:
    largest = pieces.MARGIN + 500_000
    for name in ("one", "again"):
        pieces.pack(photographs, tmp_path / name, largest)
    packed = sorted((tmp_path / "one").glob("*.gz"))
    assert len(packed) > 2
    assert all(path.stat().st_size < largest for path in packed)
    assert (tmp_path / "one" / "pieces.json").read_text() == (
        tmp_path / "again" / "pieces.json"
    ).read_text()


def test_pieces_arrive_one_by_one(photographs: Path, tmp_path: Path) -> None:
    pieces.pack(photographs, tmp_path / "packed", pieces.MARGIN + 500_000)
    packed = sorted((tmp_path / "packed").glob("*.gz"))
    arrived, unpacked = tmp_path / "arrived", tmp_path / "unpacked"
    unpacked.mkdir()
    for count, path in enumerate(packed, start=1):
        arrived.mkdir()
        (arrived / "pieces.json").write_bytes((tmp_path / "packed" / "pieces.json").read_bytes())
        path.rename(arrived / path.name)
        missing = pieces.unpack(arrived, unpacked)
        assert missing == [other.name for other in packed[count:]]
        arrived.rename(tmp_path / f"sent-{count}")
    assert contents(unpacked) == contents(photographs)


def test_damaged_piece_is_refused(photographs: Path, tmp_path: Path) -> None:
    pieces.pack(photographs, tmp_path / "packed", 2**26)
    piece = tmp_path / "packed" / "piece-00.tar.gz"
    body = piece.read_bytes()
    for damaged in (body[:-1], body[:50_000] + bytes([body[50_000] ^ 1]) + body[50_001:]):
        piece.write_bytes(damaged)
        with refused(r"piece-00.* is not what was packed; copy it again"):
            pieces.unpack(tmp_path / "packed", tmp_path / "unpacked")
    assert not contents(tmp_path / "unpacked")


@pytest.mark.parametrize("text", [None, "{"])
def test_missing_or_damaged_index_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "pieces.json").write_text(text)
    with refused(r"pieces\.json cannot be read .*; copy it beside"):
        pieces.unpack(tmp_path, tmp_path / "unpacked")


def test_folder_without_photographs_is_refused(tmp_path: Path) -> None:
    with refused("has no photographs in train/ and val/"):
        pieces.pack(tmp_path, tmp_path / "packed", 2**26)


def timed(images_per_second: float, validation_s: float, steps: int | None = 100) -> Any:
    """A run of 100 timed steps of 128 on 90,000 images, or of whole epochs, as far as the rule
    reads it."""
    seconds = (steps or 703) * 128 / images_per_second + validation_s
    row = {"images_per_second": images_per_second, "seconds": seconds}
    trainer = {"trainer": {"limit_train_batches": steps}} if steps else {}
    return SimpleNamespace(
        status="finished",
        history=[row],
        science={"data": {"batch_size": 128}, **trainer},
        images=SimpleNamespace(train=90_000),
    )


def by_name(step: str, runs: dict[str, list[Any]]) -> dict[Any, Any]:
    return {study.Name(step, arm, 0.01, i): run for arm in runs for i, run in enumerate(runs[arm])}


@pytest.mark.parametrize("steps", [100, None])
def test_whole_epoch_follows_from_timed_steps(steps: int | None) -> None:
    assert study.seconds_per_epoch(timed(12_800, 2, steps)) == pytest.approx(703 / 100 + 2)
    assert study.seconds_per_epoch(timed(25_600, 1, steps)) == pytest.approx(703 / 200 + 1)


@pytest.mark.parametrize(
    ("searched", "expected"),
    [([25_600], 703 / 100), ([6_400], 703 / 50), ([6_400, 12_800], 703 * 0.015)],
)
def test_slowest_arm_sets_the_epoch(searched: list[float], expected: float) -> None:
    """By its timed steps, or by its mean over the search where that is longer."""
    timed_runs = by_name("time", {"relu": [timed(51_200, 0)], "prelu": [timed(12_800, 0)]})
    diverged = SimpleNamespace(status="diverged", history=[])
    runs = {"relu": [timed(rate, 0, None) for rate in searched], "prelu": [diverged]}
    epoch_s = study.slowest_epoch_s(timed_runs, by_name("search", runs))
    assert epoch_s == pytest.approx(expected)


@pytest.mark.parametrize(
    ("epoch_s", "tests_s", "expected"), [(4.5, 10, 75), (8.03, 30, 50), (8.03, 130, 39)]
)
def test_epochs_fill_their_share_of_a_call(epoch_s: float, tests_s: float, expected: int) -> None:
    """0.9 of what the tests leave of 480 s."""
    assert study.choose_epochs(epoch_s, tests_s, RULE) == expected


def test_too_few_epochs_are_refused() -> None:
    with refused(r"epochs.call_s=540 leaves time for 6 epochs"):
        study.choose_epochs(71.3, 1, RULE)


def test_diverged_rates_are_left_out() -> None:
    errors = {
        ("relu", 0.01): [80.0, 82.0],
        ("relu", 0.02): [70.0, None],
        ("relu", 0.04): [81.0, 80.0],
        ("prelu", 0.01): [60.0, 61.0],
        ("prelu", 0.02): [60.0, 60.5],
    }
    assert study.choose_rates(errors) == {"relu": 0.04, "prelu": 0.02}
    with refused("fixed diverged at each rate"):
        study.choose_rates({**errors, ("fixed", 0.01): [None, 5.0]})


def test_ends_of_the_grid_are_told() -> None:
    rates = study.PLAN["search"]["rates"]
    assert [study.is_end(rate, rates) for rate in (0.005, 0.02, 0.08)] == [True, False, True]


def test_all_planned_runs_compose() -> None:
    for step in ("time", "search"):
        runs = study.runs_of(step, study.PLAN[step], ["trainer=cpu", "trainer.benchmark=false"])
        ids = {study.id_of(overrides) for overrides in runs.values()}
        assert len(ids) == len(runs)
        config = compose_job(next(iter(runs.values())))[0]
        assert config.trainer.accelerator == "cpu"
    assert len(runs) == 4 * 5 * 2


def test_complete_runs_are_kept_while_others_train(tmp_path: Path) -> None:
    complete, kept = made_up.training(), tmp_path / "kept.xz"
    records.write(tmp_path / complete.run / "record.json", complete)
    (tmp_path / "open").mkdir()
    folders = {complete.run: tmp_path / complete.run, "open": tmp_path / "open"}
    waited = iter([False, True])
    study.watch(folders, {}, kept, SimpleNamespace(wait=lambda _: next(waited)))
    assert list(study.load(kept)) == [complete.run]


def test_records_that_were_not_copied_are_found(monkeypatch, tmp_path: Path) -> None:
    more, complete = [f"runs_dir={tmp_path}"], made_up.training()
    first, second, *_ = study.runs_of("search", study.PLAN["search"], more).items()
    monkeypatch.setattr(study, "id_of", lambda runs: complete.run if runs == first[1] else "open")
    for lacking, _ in (first, second):
        with refused(f"^{lacking} has no record; call the step search"):
            study.run("table", more, tmp_path / "kept.xz", None)
        records.write(tmp_path / complete.run / "record.json", complete)


# ---- speed.py ----

SMALL = speed.Size("cpu", px=8, batch=4, classes=10, warmup=1, blocks=3, steps=1)


@pytest.mark.parametrize("model", speed.MODELS)
@pytest.mark.parametrize("activation", ["relu", "prelu"])
def test_plain_network_has_the_layers_of_ours(model: str, activation: str) -> None:
    size = speed.Size("cpu")
    with torch.device("meta"):
        plain = plain_loop.plain_network(model, activation, size)
    ours = [
        s for s in trace(speed.rows_of(model, 1000), channels=3, input_px=224) if s.row.weighted
    ]
    layers = [m for m in plain.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    counts = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    assert counts == [shape.parameters for shape in ours]
    slopes = [m.num_parameters for m in plain.modules() if isinstance(m, nn.PReLU)]
    assert slopes == ([shape.channels for shape in ours[:-1]] if activation == "prelu" else [])
    assert plain.eval()(torch.zeros(2, 3, 224, 224, device="meta")).shape == (2, 1000)


@pytest.mark.process
@pytest.mark.parametrize("setting", ["float32", "bfloat16", "bfloat16, PReLU"])
def test_training_is_measured_beside_a_plain_loop(monkeypatch, setting: str) -> None:
    monkeypatch.setattr(speed, "PHOTOS", 12)
    found = speed.training("mini", setting, SMALL)
    assert len(found["plain"]) == len(found["ours"]) == SMALL.blocks
    assert min(*found["plain"], *found["ours"], found["share"], found["of_plain"]) > 0
    assert not torch.backends.cudnn.benchmark


@pytest.mark.process
def test_reading_is_measured_by_processes(monkeypatch) -> None:
    if reason := jpeg.unavailable_reason():
        pytest.skip(reason)
    monkeypatch.syspath_prepend(ROOT / "studies" / "bench")
    import pipeline

    monkeypatch.setattr(pipeline, "PHOTOS", 4)
    monkeypatch.setattr(pipeline, "BATCH", 2)
    monkeypatch.setattr(speed, "usable_cores", lambda: 2)
    found = speed.reading(SMALL, batches=2)
    assert found["decoder"] == "in C"
    assert [*found["images_per_second"]] == ["1 processes", "2 processes"]


def test_measurements_continue_where_they_were_cut(monkeypatch, tmp_path: Path) -> None:
    made: list[str] = []

    def piece(name: str, left: float) -> dict[str, Any]:
        made.append(name)
        if name == "second" and made.count(name) == 1:
            raise RuntimeError("out of memory. Advice")
        return {"left": left}

    pieces = {name: partial(piece, name) for name in ("first", "second", "third")}
    monkeypatch.setattr(speed, "measurements", lambda *_: pieces)
    path = tmp_path / "speed.json"
    assert set(speed.measure(path, SMALL, (), seconds=-1)) == {"about"}
    assert made == []
    kept = speed.measure(path, SMALL, (), seconds=9)
    assert made == ["first", "second", "third"]
    assert kept["second"] == {"error": "RuntimeError: out of memory. Advice"}
    kept = speed.measure(path, SMALL, (), seconds=9)
    assert made == ["first", "second", "third", "second"]
    assert kept == json.loads(path.read_text())
    with refused("give another file"):
        speed.measure(path, replace(SMALL, batch=8), (), seconds=9)


def test_table_shows_shares_and_rates() -> None:
    row = {"plain": [90.0, 100, 110], "ours": [96.0, 98, 99], "product_tflops": 725.2}
    kept = {
        "about": {},
        "vgg19, bfloat16": {**row, "share": 0.351, "of_plain": 0.98},
        "model_a, TF32": {"error": "RuntimeError: out of memory"},
        "reading": {"images_per_second": {"8 processes": 7012.3}, "decoder": "in C"},
        "tests": {"passed": "12 passed in 50 s"},
    }
    shown = speed.table(kept)
    assert "| vgg19, bfloat16 | 98 | 100 | 0.980 | 0.35 | 725 |" in shown
    assert "7012 by 8 processes" in shown
    assert "12 passed" in shown
    assert "model_a" not in shown
