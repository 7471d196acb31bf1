"""scripts/report.py: every sub-command answers in words and in JSON."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT, compose_config, load_script
from made_up import altered, result
from rectifiers.runs import record as records
from rectifiers.runtime.errors import InputError
from rectifiers.training.train import Outcome, train

FIRST = "0a3802792865"


@pytest.fixture
def report(tmp_path: Path, monkeypatch) -> ModuleType:
    """The program, whose results lie in the test's own folder: three committed records, and one of
    other images."""
    loaded = load_script("report")
    monkeypatch.setattr(loaded, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(loaded, "experiments", loaded.EXPERIMENTS.read_text)  # takes seconds
    (tmp_path / "results" / "records").mkdir(parents=True)
    place = tmp_path / "results" / "records"
    for name in (FIRST, "0d3b0857c14b", "317e1d627db5"):
        shutil.copy(ROOT / "results" / "records" / f"{name}.json", place)
    changes = {"choices.data": "fashion_mnist", "science.trainer.max_epochs": 1}
    changes["science.data._target_"] = "rectifiers.data.sources.fashion_mnist"
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
    assert line.split() == [FIRST, "table2/prelu", "prelu", "0", "1.78", "0.90", "to", "3.47"]


def test_local_and_committed_runs_stand_side_by_side(said: Any, tmp_path: Path) -> None:
    record = records.load(tmp_path / "results" / "records" / f"{FIRST}.json")
    changes = {"protocols.ten_view": result(441, 450, split="test"), "codes": ["0123456789ab"]}
    records.write(tmp_path / "runs" / FIRST / "record.json", altered(record, changes))
    own, committed = (
        line.split() for line in said("show", f"run={FIRST}").splitlines() if FIRST in line
    )
    assert own == [FIRST, "own", "0123456789ab", "2.00", "1.06", "to", "3.76"]
    assert committed == [FIRST, "committed", "9ca19b9840f9", "1.78", "0.90", "to", "3.47"]
    answer = json.loads(said("diff", FIRST[:5], f"results/records/{FIRST}.json", "--json"))
    assert answer["runs"] == [f"{FIRST} (own)", f"{FIRST} (committed)"]
    assert answer["results"]["ten_view"]["top1_error_pct"] == [2.0, pytest.approx(16 / 9)]


@pytest.fixture
def scored(tmp_path: Path) -> Outcome:
    """A run on digits that kept its scores."""
    sizes = ("model.width=0.0625", "trainer.max_epochs=1", "threads=1", "logger=none")
    places = (f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache")
    kept = ("evaluation=center", "evaluation.keep_scores=true")
    return train(compose_config(*sizes, *places, *kept), {"data": "digits", "activation": "prelu"})


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


@pytest.mark.parametrize(
    "typed", [("seed=1",), ("data.download=true",), ("--compare", "no", "run")]
)
def test_classes_refuse_what_they_cannot_use(
    report, monkeypatch, capsys, scored: Outcome, typed: tuple[str, ...]
) -> None:
    monkeypatch.setattr(report, "claim_runs", list)
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
