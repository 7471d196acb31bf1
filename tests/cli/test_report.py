"""scripts/report.py: every sub-command answers in words and in JSON."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from conftest import ROOT, compose_config, load_script, places
from made_up import altered, result
from rectifiers.evaluation.evaluate import Result, Scores, load_scores, save_scores
from rectifiers.runs import record as records
from rectifiers.runs.links import link_run
from rectifiers.runtime.errors import InputError
from rectifiers.training.train import Outcome, train

FIRST = "0a3802792865"
PLACES = ("", "claims", "searches", "cards/mine")


@pytest.fixture
def report(tmp_path: Path, monkeypatch) -> ModuleType:
    """The program, whose results lie in the test's own folder: three committed records, and one of
    other images."""
    loaded = load_script("report")
    monkeypatch.setattr(loaded, "RESULTS", tmp_path / "results")
    (tmp_path / "results" / "records").mkdir(parents=True)
    place = tmp_path / "results" / "records"
    for name in (FIRST, "0d3b0857c14b", "317e1d627db5"):
        shutil.copy(ROOT / "results" / "records" / f"{name}.json", place)
    changes = {"choices.data": "cifar10", "science.trainer.max_epochs": 1}
    changes["science.data._target_"] = "rectifiers.data.cifar10.cifar10"
    other = altered(records.load(place / f"{FIRST}.json"), changes)
    records.write(place / f"{other.run}.json", other)
    monkeypatch.chdir(tmp_path)
    return loaded


def call(report: ModuleType, monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["report.py", *arguments])
    report.main()


@pytest.fixture
def said(report: ModuleType, monkeypatch, capsys) -> Any:
    """Call the program and return what it printed."""

    def ask(*arguments: str) -> str:
        call(report, monkeypatch, *arguments)
        return capsys.readouterr().out

    return ask


def test_show_prints_a_line_a_run(said: Any) -> None:
    lines = said("show", "data=digits").splitlines()
    (line,) = (line for line in lines if FIRST in line)
    cells = line.split()
    assert cells[:8] == [FIRST, "table2/prelu", "prelu", "0", "1.78", "0.90", "to", "3.47"]
    assert cells[8] == "0:48:17"
    assert cells[9:12] == ["python", "train.py", "experiment=table2/prelu"]


def test_show_lists_the_newest_run_first(said: Any, tmp_path: Path) -> None:
    record = records.load(tmp_path / "results" / "records" / f"{FIRST}.json")
    for seed, written in ((7, 1000), (8, 3000), (9, 2000), (10, 2**60)):
        own = altered(record, {"science.seed": seed})
        path = tmp_path / "runs" / own.run / "record.json"
        records.write(path, own)
        if written < 2**40 or can_hold(path, written):
            os.utime(path, (written, written))
    rows = json.loads(said("show", "data=digits", "--json"))
    dated = [row["seed"] for row in rows if row["date"] is not None]
    assert dated == [10, 8, 9, 7]
    assert max(row["date"] for row in rows[:4]) < "2243"
    assert [row["origin"] for row in rows] == [*["own"] * 4, *["committed"] * 3]
    assert "1970-01-01" in said("show", "data=digits")


def can_hold(path: Path, written: int) -> bool:
    """Whether the file system has room for a time that is later than a calendar."""
    try:
        os.utime(path, (written, written))
    except (OSError, OverflowError):
        return False
    return True


def test_nested_runs_are_shown_when_asked(said: Any, tmp_path: Path) -> None:
    record = records.load(tmp_path / "results" / "records" / f"{FIRST}.json")
    runs = {place: altered(record, {"science.seed": seed}) for seed, place in enumerate(PLACES, 7)}
    for place, own in runs.items():
        records.write(tmp_path / "runs" / place / own.run / "record.json", own)
    outer, *inner = (own.run for own in runs.values())
    usual = said("show")
    assert outer in usual
    assert not any(run in usual for run in inner)
    every = said("show", "--all")
    assert all(run in every for run in (outer, *inner))
    assert inner[0] in said("show", "--runs", "runs/claims")
    assert inner[1] in said("diff", inner[1], FIRST)  # which asks for it


def test_collect_finds_nested_runs_once(said: Any, tmp_path: Path) -> None:
    record = records.load(tmp_path / "results" / "records" / f"{FIRST}.json")
    made = {place: altered(record, {"science.seed": seed}) for seed, place in enumerate(PLACES, 7)}
    for place, own in made.items():
        folder = tmp_path / "runs" / place / own.run
        records.write(folder / "record.json", own)
        link_run(folder, "name")
    answer = json.loads(said("collect", "--json"))
    copied = [Path(path).stem for path in answer["copied"]]
    assert sorted(copied) == sorted(own.run for own in made.values())
    assert answer["left_out"] == {}


def test_collect_takes_the_outermost_of_one_name(said: Any, tmp_path: Path) -> None:
    record = records.load(tmp_path / "results" / "records" / f"{FIRST}.json")
    seed_7 = altered(record, {"science.seed": 7})
    copies = {"searches": 2.0, "": 1.0, "cards/mine": 3.0}
    for place, wall_s in copies.items():
        path = tmp_path / "runs" / place / seed_7.run / "record.json"
        records.write(path, altered(seed_7, {"wall_s": wall_s}))
    answer = json.loads(said("collect", "--json"))
    assert records.load(Path(answer["copied"][0])).wall_s == 1.0
    assert len(answer["copied"]) == 1
    assert len(answer["left_out"]) == 2


def test_local_and_committed_runs_stand_side_by_side(said: Any, tmp_path: Path) -> None:
    record = records.load(tmp_path / "results" / "records" / f"{FIRST}.json")
    changes = {"protocols.ten_view": result(441, 450, split="test"), "codes": ["0123456789ab"]}
    records.write(tmp_path / "runs" / FIRST / "record.json", altered(record, changes))
    own, committed = (
        line.split() for line in said("show", f"run={FIRST}").splitlines() if FIRST in line
    )
    assert own[0] == committed[0] == FIRST
    assert own[3:] == ["own", "0123456789ab", "2.00", "1.06", "to", "3.76"]
    assert committed[1:] == ["-", "committed", "9ca19b9840f9", "1.78", "0.90", "to", "3.47"]
    answer = json.loads(said("diff", FIRST[:5], f"results/records/{FIRST}.json", "--json"))
    assert answer["runs"] == [f"{FIRST} (own)", f"{FIRST} (committed)"]
    assert answer["results"]["ten_view"]["top1_error_pct"] == [2.0, pytest.approx(16 / 9)]


@pytest.fixture
def scored(tmp_path: Path) -> Outcome:
    """A run on digits that kept its scores."""
    sizes = ("model.width=0.0625", "trainer.max_epochs=1", "threads=1", "logger=none")
    kept = ("evaluation=center", "evaluation.keep_scores=true")
    return train(
        compose_config(*sizes, *places(tmp_path), *kept), {"data": "digits", "activation": "prelu"}
    )


def test_classes_add_up_to_the_run(said: Any, scored: Outcome, tmp_path: Path) -> None:
    run, place = scored.record.run, scored.path.with_name("failures.svg")
    (tmp_path / "victim").write_text("words")
    place.symlink_to(tmp_path / "victim")  # is replaced, and not followed
    answer = json.loads(said("classes", run, f"cache_dir={tmp_path}/cache", "--json"))
    tested = scored.record.protocols["center"]
    assert sum(row["top1_errors"] for row in answer["classes"]) == tested.top1_errors
    assert sum(row["num_images"] for row in answer["classes"]) == tested.num_images
    assert (tmp_path / "victim").read_text() == "words"
    assert place.resolve() == Path(answer["picture"]).resolve() == place
    assert place.read_text().count("<image") == len(answer["failures"]) == 12


def test_classes_without_images_have_no_picture(
    report, monkeypatch, capsys, scored: Outcome, tmp_path: Path
) -> None:
    moved = str(shutil.move(scored.path.parent, tmp_path / "other name"))
    call(report, monkeypatch, "classes", moved, "--json")
    said = capsys.readouterr()
    assert json.loads(said.out)["picture"] is None
    assert said.err.splitlines()[-1].startswith("no picture: ")
    assert not (tmp_path / "other name" / "failures.svg").exists()


@pytest.mark.parametrize("is_named_alike", [False, True])
def test_classes_of_other_data_have_no_picture(
    said: Any, scored: Outcome, tmp_path: Path, is_named_alike: bool
) -> None:
    """A folder from elsewhere may keep scores of more images than its data have."""
    path, record = scored.path.parent / "scores" / "center.npz", scored.record
    one = load_scores(path)
    labels, scores = np.tile(one.labels, 9), np.tile(one.scores, (9, 1))[::-1].copy()
    more = Scores(
        scores, labels[::-1].copy(), one.data if is_named_alike else "other", one.settings
    )
    save_scores(path, more)
    found = Result.from_scores(torch.from_numpy(scores), torch.from_numpy(more.labels)).as_dict()
    found |= {"num_images": len(labels), "scores": more.digest()}
    changes = {f"protocols.center.{key}": value for key, value in found.items()}
    records.write(scored.path, altered(record, changes | {"images.test": len(labels)}))
    answer = json.loads(said("classes", record.run, f"cache_dir={tmp_path}/cache", "--json"))
    assert answer["picture"] is None
    assert sum(row["num_images"] for row in answer["classes"]) == len(labels)


@pytest.mark.parametrize(
    "typed", [("seed=1",), ("data.download=true",), ("--compare", "no", "run")]
)
def test_classes_refuse_what_they_cannot_use(
    report, monkeypatch, capsys, scored: Outcome, typed: tuple[str, ...]
) -> None:
    monkeypatch.setattr(report, "claim_runs", lambda results: [])
    with pytest.raises(SystemExit) as left:
        call(report, monkeypatch, "classes", scored.record.run, *typed)
    assert left.value.code
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
    assert not scored.path.with_name("failures.svg").exists()


@pytest.mark.process
def test_committed_files_follow_from_the_records() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/report.py", "check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("every committed file is what the records say\n")


def test_check_names_what_differs_and_ends_with_1(report, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "CHECKS", ("good.py --check", "stale.py --check", "broken.py"))

    def old_page(check: bool) -> None:
        assert check
        raise InputError("B.md is old")

    pages = {"tables": lambda check: None, "claims": old_page}
    monkeypatch.setattr(report, "PAGES", pages)

    stale = "import sys; sys.exit(f'error: A.md; {sys.argv[1:]}')"
    for name, text in {"good": "", "stale": stale, "broken": "1 / 0"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(SystemExit) as left:
        call(report, monkeypatch, "check", "--json")
    assert left.value.code == 1
    found = json.loads(capsys.readouterr().out)
    old = "scripts/report.py claims --check"
    assert found["stale"].keys() == {old, "stale.py --check", "broken.py"}
    assert found["stale"][old] == "B.md is old"
    assert found["stale"]["stale.py --check"] == "A.md; ['--check']"
    assert found["stale"]["broken.py"].endswith("ZeroDivisionError: division by zero")
