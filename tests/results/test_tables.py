"""Tables from records made up so that every number is known."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import forkserver
from conftest import ROOT, compose_config
from rectifiers.results.comparison import hits
from rectifiers.results.eligibility import PLACE, exclusion_reason, setting
from rectifiers.results.tables import load, render_markdown
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import science


@functools.cache
def composed(experiment: str, data: str) -> RunConfig:
    """What an experiment is on its own data, or on digits."""
    on = () if data == "imagenet" else (f"data={data}",)
    return compose_config(f"experiment={experiment}", "evaluation=calibration", *on)


NETWORK = {"depth": 14, "input_px": 224, "channels": 3, "classes": 10, "parameters": 1, "multiply_adds": 10}


def result(error: float, top1_hits: str = "f", *, seen: int, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "seen": seen, "top1_error_pct": error, "top5_error_pct": error / 2, "multiply_adds": 10, "top5_correct": 3,
        "ece": 0.1, "nll": 1.0, "brier": 0.5, "top1_correct": 2, "settings": settings,
        "top1_hits": top1_hits.ljust(-(-seen // 4), "0"),
    }  # fmt: skip


MACHINE = {"cpu": "a processor", "threads": 1, "device": "cpu"}


def record(
    name: str, experiment: str, seed: int, error: float, *, data: str = "imagenet", bits: str = "f",
    protocol: str = "ten_view",
) -> dict[str, Any]:  # fmt: skip
    config = composed(experiment, data)
    seen, train_images = (50_000, 1_281_167) if data == "imagenet" else (4, 100)
    tested = {protocol: result(error, bits, seen=seen, settings=config.evaluation.protocols[protocol].as_dict())}
    return {
        "schema_version": 1, "run": name, "status": "finished", "ledger": [], "slopes": {}, "drop_epochs": [],
        "epochs": 75, "history": [], "images_per_second": None, "network": NETWORK, "wall_s": 1.0, "codes": ["c0de"],
        "choices": {"experiment": experiment, "debug": None, "data": data},
        "science": {**science(config), "seed": seed}, "protocols": tested, "train_images": train_images,
        "provenance": {"git_dirty": False, "git_sha": "0123456789", "data": "same", "machine": MACHINE},
    }  # fmt: skip


def changed(kept: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a record whose dotted `key` has another value."""
    copied = json.loads(json.dumps(kept))
    *parents, leaf = key.split(".")
    node = copied
    for part in parents:
        node = node[part]
    node[leaf] = value
    return copied


def row(document: str, start: str) -> str:
    return next(line for line in document.splitlines() if line.startswith(f"| {start}"))


def test_a_row_has_the_papers_value_ours_with_interval_and_n_and_the_difference() -> None:
    errors = (33.0, 34.0, 35.0)  # mean 34, std 1, t = 4.303: +- 2.48
    document = render_markdown([record(str(i), "table2/relu", i, e) for i, e in enumerate(errors)])
    assert row(document, "ReLU, top-1") == "| ReLU, top-1 | ten_view | 33.82 | 34.00 (31.52 to 36.48, n = 3) | +0.18 |"
    assert (
        row(document, "PReLU, channel-wise, top-1") == "| PReLU, channel-wise, top-1 | ten_view | 32.64 | not run | - |"
    )
    assert "on imagenet" not in document


def test_every_name_of_one_run_finds_its_rows() -> None:
    document = render_markdown([record("a", "table1/prelu", 0, 32.0)])
    assert row(document, "PReLU, channel-wise, top-1").endswith("| 32.64 | 32.00 (n = 1) | -0.64 |")


@pytest.mark.parametrize(("data", "labels"), [("imagenet", ("256", "480")), ("digits", ("36", "68"))])
def test_a_scale_of_dense_testing_has_its_own_row(data: str, labels: tuple[str, str]) -> None:
    run = record("a", "table6/a_relu", 0, 24.0, data=data, protocol="dense_multi_scale")
    found = run["protocols"]["dense_multi_scale"]
    found["by_scale"] = {str(px): {**found, "top1_error_pct": px / 10} for px in found["settings"]["scales_px"]}
    document = render_markdown([run, {**run, "run": "b", "choices": {**run["choices"], "experiment": "table4/relu"}}])
    if data == "imagenet":
        assert "| 26.25 | 25.60 (25.60 to 25.60, n = 2) | -0.65 |" in row(document, f"ReLU, {labels[0]}, top-1")
        assert "| 24.02 | 24.00 (24.00 to 24.00, n = 2) | -0.02 |" in row(document, "ReLU, multi-scale, top-1")
    else:
        assert "| 3.60 (3.60 to 3.60, n = 2) |" in row(document, f"ReLU, {labels[0]} |")
        assert "| 6.80 (6.80 to 6.80, n = 2) |" in row(document, f"ReLU, {labels[1]} |")


@pytest.mark.parametrize("data", ["imagenet", "digits"])
def test_arms_are_compared_by_seed_and_by_image(data: str) -> None:
    found = [record(f"r{s}", "table2/relu", s, 50 + 10 * s, data=data, bits="c") for s in (0, 1, 2)]
    found += [record(f"p{s}", "table2/prelu", s, 49 + 10 * s, data=data, bits="e") for s in (1, 2)]
    found.append(changed(record("q0", "table2/prelu", 0, 90, data=data), "provenance.data", "other images"))
    for each in found:
        each["protocols"]["ten_view"]["seen"] = 4  # as many as there are bits
    document = render_markdown(found)
    assert "### Table 2 on imagenet (width 1, 224 px, 75 epochs of 1,281,167 images)" in document or data == "digits"
    own = row(document, "PReLU, channel-wise | ten_view")
    assert "| -1.00 (-1.00 to -1.00, n = 2) |" in own  # the seeds' own spread is taken out
    assert "1/0 1; 1/0 1" in own


def test_the_papers_own_setting_is_compared_by_seed_too() -> None:
    found = [record(f"r{s}", "table2/relu", s, 33 + s, bits="0" * 12500) for s in (0, 1)]
    found += [record(f"p{s}", "table2/prelu", s, 32 + s, bits="0" * 12500) for s in (0, 1)]
    document = render_markdown(found)
    assert "### Table 2 on the paper's setting" in document
    assert "| -1.00 (-1.00 to -1.00, n = 2) |" in row(document, "PReLU, channel-wise | ten_view")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("science.optim.epochs", 1),
        ("science.model.width", 0.5),
        ("science.data.crop_px", 192),
        ("train_images", 1000),
        ("protocols.ten_view.seen", 500),
    ],
)
def test_what_is_smaller_than_the_paper_is_not_held_against_it(key: str, value: Any) -> None:
    smaller = [changed(record(str(s), "table2/relu", s, 10.0), key, value) for s in (0, 1)]
    assert [exclusion_reason(each) for each in smaller] == [None, None]
    document = render_markdown(smaller)
    assert row(document, "ReLU, top-1").endswith("| 33.82 | not run | - |")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("choices.experiment", None, "of no experiment"),
        ("choices.experiment", "table9/x", "its experiment table9/x is not known"),
        ("choices.debug", "smoke", "debug=smoke measures nothing"),
        ("provenance.git_dirty", True, "its code was not committed"),
        ("provenance.git_dirty", None, "its code was not committed"),
        ("provenance.data_pinned", False, "its data were not pinned"),
        ("protocols.ten_view.git_dirty", True, "ten_view was tested by code that was not committed"),
        ("protocols.ten_view.settings", {"scale_px": 300}, "ten_view has other settings"),
        ("science.optim.lr", 1.0, "departs from table2/relu in more than data, size and length"),
        ("science.activation", {"_target_": "torch.nn.ELU"}, "departs from table2/relu"),
        ("science.compute.precision", "bf16-mixed", "departs from table2/relu"),
    ],
)
def test_what_does_not_belong_says_why(key: str, value: Any, reason: str, tmp_path: Path) -> None:
    whole = record("a" * 12, "table2/relu", 0, 30.0)
    assert exclusion_reason(whole) is None
    other = changed(whole, key, value)
    assert reason in str(exclusion_reason(other))
    records.write(tmp_path / "a.json", whole)
    records.write(tmp_path / "b.json", {**other, "run": "b" * 12})
    assert [kept["run"] for kept in load(tmp_path)] == ["a" * 12]


def test_two_records_of_one_seed_are_refused(tmp_path: Path) -> None:
    one = record("a", "table2/relu", 0, 30.0, data="digits")
    records.write(tmp_path / "a.json", one)
    records.write(tmp_path / "b.json", changed({**one, "run": "b"}, "science.optim.patience", 99))
    with pytest.raises(records.InputError, match=r"two records of table2/relu on .* with seed 0, a and b; remove one"):
        load(tmp_path)


@pytest.mark.parametrize("data", ["imagenet", "digits"])
def test_diverged_runs_are_counted_and_not_averaged(data: str) -> None:
    lost = {**record("x", "table2/relu", 1, 99.0, data=data), "status": "diverged", "protocols": {}}
    other = record("z", "table2/prelu", 0, 9.0, data=data)
    document = render_markdown([record("y", "table2/relu", 0, 10.0, data=data), lost, other])
    assert "| ReLU (1 diverged) | ten_view | 10.00 (n = 1) |" in document
    if data == "imagenet":
        assert row(document, "ReLU, top-1").endswith("| 33.82 | 10.00 (n = 1) (1 diverged) | -23.82 |")
        assert row(render_markdown([lost]), "ReLU, top-1").endswith("| 33.82 | (1 diverged) | - |")


def test_a_run_of_no_experiment_has_a_setting_too() -> None:
    own = changed(record("a", "table2/relu", 0, 30.0), "choices.experiment", None)
    assert setting(own) == "imagenet (width 1, 224 px, 75 epochs of 1,281,167 images)"


def test_hits_are_bits_from_the_highest() -> None:
    assert hits({"top1_hits": "a8", "seen": 5}) == [True, False, True, False, True]


def test_recalled_numbers_are_never_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    from rectifiers.results import tables as module

    entry = {"value": 1.0, "confidence": "recalled"}
    monkeypatch.setattr(
        module, "published", lambda: {"x": {"top1": entry, "top5": {**entry, "confidence": "one-source"}}}
    )
    assert module.paper_value({"paper": "x"}, "top1") is None
    assert module.paper_value({"paper": "x"}, "top5") == 1.0


def test_slopes_sizes_and_curves_stand_beside_the_papers() -> None:
    run = record("a", "table2/prelu", 0, 30.0)
    run["slopes"] = {"conv1": {"mean": 0.5, "std": 0.1, "least": 0.0, "most": 1.0, "channels": 64}}
    he, xavier = (record(name, f"figure3/{name}", 0, 80.0) for name in ("he", "xavier"))
    he["history"] = [{"val/top1_error_pct": error} for error in (99.0, 95.0)]
    document = render_markdown([run, he, xavier])
    assert row(document, "conv1 |") == "| conv1 | 0.681 | not run | 0.596 | 0.500 (n = 1) |"
    assert row(document, "C | 22") == "| C | 22 | 22 | 5.30 | 5.3463 | 330,603,368 |"
    assert "## Figure 2: the 22-layer model with ReLU\n\nNot run." in document
    assert row(document.partition("## Figure 3")[2], "2 |") == "| 2 | 95.00 (n = 1) | - |"


def test_an_ensemble_has_its_row_and_is_not_subtracted_from_a_test_set() -> None:
    part = record("a", "table6/a_relu", 0, 24.0, protocol="dense_multi_scale")
    whole = {
        **{key: part[key] for key in ("schema_version", "status", "codes", "provenance", "protocols")},
        "run": "e", "choices": {"experiment": "table7/ensemble", "debug": None, "data": "imagenet"},
        "science": {"members": ["a"]},
        "members": [{key: part[key] for key in ("run", "choices", "science", "train_images")}],
    }  # fmt: skip
    assert records.validate(whole) is None
    assert exclusion_reason(whole) is None
    assert row(render_markdown([whole]), "six models").endswith("| dense_multi_scale | - | 24.00 (n = 1) | - |")
    assert "| 4.94 | 12.00 (n = 1) | - |" in render_markdown([whole])


def test_numbers_of_the_text_have_rows_too() -> None:
    document = render_markdown([record("a", "text/xavier14", 0, 34.0)])
    assert row(document, "14 layers, Xavier (1/n), top-1").endswith("| 33.90 | 34.00 (n = 1) | +0.10 |")
    assert row(document, "30 layers, Xavier (1/n), top-1").endswith("| - | not run | - |")


@pytest.mark.process
def test_the_committed_tables_are_what_the_committed_records_say() -> None:
    code = "import sys; sys.argv = ['report', 'tables', '--check']; sys.path.insert(0, 'scripts'); import report; "
    code += "report.main(); assert 'torch' not in sys.modules and 'hydra' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_noted_experiments_are_what_the_configuration_says() -> None:
    before = PLACE.read_text()
    try:
        assert forkserver.run([sys.executable, "scripts/report.py", "experiments"], cwd=ROOT).returncode == 0
        assert yaml.safe_load(PLACE.read_text()) == yaml.safe_load(before)
    finally:
        PLACE.write_text(before)


def test_every_committed_record_is_named_by_its_run_and_belongs_into_a_table() -> None:
    paths = sorted((ROOT / "results" / "records").glob("*.json"))
    assert paths
    for path in paths:
        kept = json.loads(path.read_text())
        assert path.stem == kept["run"]
        assert exclusion_reason(kept) is None


def test_collect_copies_what_belongs_and_names_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import report as script
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    whole = record("aa", "table2/relu", 0, 30.0)
    for name, kept in (("aa", whole), ("bb", changed({**whole, "run": "bb"}, "choices.debug", "smoke"))):
        records.write(tmp_path / "runs" / name / "record.json", kept)
    (tmp_path / "runs" / "00").mkdir()
    (tmp_path / "runs" / "00" / "record.json").write_text("{")
    script.collect(tmp_path / "runs")
    assert [path.name for path in (tmp_path / "results" / "records").iterdir()] == ["aa.json"]


def test_a_folder_that_is_none_is_one_sentence(call) -> None:
    done = call("scripts/report.py", "collect", "--runs", "nowhere")
    assert done.returncode == 1
    assert done.stderr == "error: --runs=nowhere is not a folder; give the one that holds the runs\n"


@pytest.mark.parametrize("missing", ["science", "provenance", "protocols.ten_view.ece", "protocols.ten_view.seen"])
def test_a_damaged_record_stops_the_tables(tmp_path: Path, missing: str) -> None:
    kept = record("a" * 12, "table2/relu", 0, 30.0)
    *parents, leaf = missing.split(".")
    node = kept
    for part in parents:
        node = node[part]
    del node[leaf]
    (tmp_path / "a.json").write_text(json.dumps(kept))
    with pytest.raises(records.InputError, match=f"it has no {missing}"):
        load(tmp_path)
