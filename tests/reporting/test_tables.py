"""Tables from records made up so that every number is known."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from rectifiers.reporting.tables import hits, load, tables, why_not
from rectifiers.runs import record as records

SCIENCE = {"model": {"width": 1}, "optim": {"epochs": 75}, "data": {"crop_px": 224}}


def result(error: float, top1_hits: str = "f") -> dict[str, Any]:
    return {
        "seen": 4, "top1_error_pct": error, "top5_error_pct": error / 2, "multiply_adds": 10, "top1_hits": top1_hits,
        "ece": 0.1, "nll": 1.0, "brier": 0.5,
    }  # fmt: skip


def record(name: str, experiment: str, seed: int, error: float, *, data: str = "imagenet", bits: str = "f") -> dict:
    return {
        "schema_version": 1, "run": name, "status": "finished", "ledger": [], "slopes": {}, "drop_epochs": [],
        "epochs": 75, "history": [], "images_per_second": None,
        "choices": {"experiment": experiment, "debug": None, "data": data}, "network": {}, "wall_s": 1.0,
        "codes": ["c0de"],
        "science": {**SCIENCE, "seed": seed}, "protocols": {"ten_view": result(error, bits)}, "train_images": 1281167,
        "provenance": {"git_dirty": False, "git_sha": "0123456789", "data": "same"},
    }  # fmt: skip


def row(document: str, start: str) -> str:
    return next(line for line in document.splitlines() if line.startswith(f"| {start}"))


def test_a_row_has_the_papers_value_ours_with_interval_and_n_and_the_difference() -> None:
    errors = (33.0, 34.0, 35.0)  # mean 34, std 1, t = 4.303: +- 2.48
    document = tables([record(str(i), "table2/relu", i, e) for i, e in enumerate(errors)])
    assert row(document, "ReLU, top-1") == "| ReLU, top-1 | ten_view | 33.82 | 34.00 (31.52 to 36.48, n = 3) | +0.18 |"
    assert (
        row(document, "PReLU, channel-wise, top-1") == "| PReLU, channel-wise, top-1 | ten_view | 32.64 | not run | - |"
    )
    assert "on imagenet" not in document


def test_every_name_of_one_run_finds_its_rows() -> None:
    document = tables([record("a", "table1/prelu", 0, 32.0)])
    assert row(document, "PReLU, channel-wise, top-1").endswith("| 32.64 | 32.00 (n = 1) | -0.64 |")


def test_a_scale_of_dense_testing_has_its_own_row() -> None:
    run = record("a", "table6/a_relu", 0, 0)
    run["protocols"] = {
        "dense_multi_scale": {**result(24.0), "by_scale": {s: result(25.0) for s in ("256", "384", "480")}}
    }
    document = tables([run])
    assert "| 26.25 | 25.00 (n = 1) | -1.25 |" in row(document, "ReLU, 256, top-1")
    assert "| 24.02 | 24.00 (n = 1) | -0.02 |" in row(document, "ReLU, multi-scale, top-1")


def test_other_data_stands_under_its_own_heading_and_is_compared_by_seed_and_image() -> None:
    found = [record(f"r{s}", "table2/relu", s, 50 + 10 * s, data="digits", bits="c") for s in (0, 1, 2)]
    found += [record(f"p{s}", "table2/prelu", s, 49 + 10 * s, data="digits", bits="e") for s in (1, 2)]
    document = tables(found)
    assert "### Table 2 on digits (width 1, 224 px, 75 epochs of 1,281,167 images, 4 test images)" in document
    assert row(document, "PReLU, channel-wise, top-1").endswith("| not run | - |")  # ImageNet's stays empty
    own = row(document, "PReLU, channel-wise | ten_view")
    assert "| -1.00 (-1.00 to -1.00, n = 2) |" in own  # the seeds' own spread is taken out
    assert "1/0 1; 1/0 1" in own


def test_smoke_runs_dirty_trees_and_runs_of_no_experiment_never_enter(tmp_path: Path) -> None:
    whole = record("a" * 12, "table2/relu", 0, 30.0)
    smoke = {**whole, "run": "b" * 12, "choices": {**whole["choices"], "debug": "smoke"}}
    dirty = {**whole, "run": "c" * 12, "provenance": {**whole["provenance"], "git_dirty": True}}
    outside = {**whole, "run": "d" * 12, "provenance": {**whole["provenance"], "git_dirty": None}}
    free = {**whole, "run": "e" * 12, "choices": {"experiment": None, "debug": None}}
    for each in (whole, smoke, dirty, outside, free):
        records.write(tmp_path / f"{each['run']}.json", each)
    assert [r["run"] for r in load(tmp_path)] == ["a" * 12]
    assert [why_not(r) is None for r in (whole, smoke, dirty, outside, free)] == [True, False, False, False, False]


def test_a_diverged_run_is_counted_and_not_averaged() -> None:
    lost = {**record("x", "table2/relu", 1, 99.0, data="digits"), "status": "diverged"}
    document = tables([record("y", "table2/relu", 0, 10.0, data="digits"), lost])
    assert "| ReLU (1 diverged) | ten_view | 10.00 (n = 1) |" in document


def test_hits_are_bits_from_the_highest() -> None:
    assert hits({"top1_hits": "a8", "seen": 5}) == [True, False, True, False, True]


def test_the_committed_tables_are_what_the_committed_records_say() -> None:
    code = "import sys; sys.argv = ['report', 'tables', '--check']; sys.path.insert(0, 'scripts'); import report; "
    code += "report.main(); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_committed_record_is_named_by_its_run_and_belongs_into_a_table() -> None:
    paths = sorted((ROOT / "results" / "records").glob("*.json"))
    assert paths
    for path in paths:
        kept = json.loads(path.read_text())
        assert path.stem == kept["run"]
        assert why_not(kept) is None


def test_a_folder_that_is_none_is_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/report.py", "collect", "--runs", "nowhere"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "error: --runs=nowhere is not a folder; give the one that holds the runs\n"


@pytest.mark.parametrize("missing", ["science", "provenance"])
def test_a_damaged_record_stops_the_tables(tmp_path: Path, missing: str) -> None:
    kept = record("a" * 12, "table2/relu", 0, 30.0)
    del kept[missing]
    (tmp_path / "a.json").write_text(json.dumps(kept))
    with pytest.raises(records.InputError, match=f"it has no {missing}"):
        load(tmp_path)


def test_an_ensemble_has_its_row_and_is_not_subtracted_from_a_test_set() -> None:
    part = record("a", "table6/a_relu", 0, 24.0)
    whole = {
        **{key: part[key] for key in ("schema_version", "status", "codes", "provenance")},
        "run": "e", "choices": {"experiment": "table7/ensemble", "debug": None, "data": "imagenet"},
        "science": {"members": ["a"]}, "protocols": {"dense_multi_scale": result(10.0)},
        "members": [{key: part[key] for key in ("run", "choices", "science", "train_images")}],
    }  # fmt: skip
    assert records.validate(whole) is None
    assert row(tables([whole]), "six models").endswith("| dense_multi_scale | - | 10.00 (n = 1) | - |")
    assert "| 4.94 | 5.00 (n = 1) | - |" in tables([whole])


def test_numbers_of_the_text_have_rows_too() -> None:
    document = tables([record("a", "text/xavier14", 0, 34.0)])
    assert row(document, "14 layers, Xavier (1/n), top-1").endswith("| 33.90 | 34.00 (n = 1) | +0.10 |")
    assert row(document, "30 layers, Xavier (1/n), top-1").endswith("| - | not run | - |")
