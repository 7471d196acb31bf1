"""`scripts/claims.py` and `sweep.py launch --together`: what is missing is planned once, and run in few processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, compose_config, load_script
from rectifiers.results import claim_records
from rectifiers.results.claims import arm_hash, claim_exclusion_reason, claims, runs_of
from rectifiers.results.eligibility import exclusion_reason, known
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.sweep import load
from rectifiers.runtime.errors import InputError

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def by_name(name: str):
    return next(claim for claim in claims() if claim.name == name)


def test_a_plan_is_what_train_would_run_and_leaves_out_what_is_there(tmp_path: Path) -> None:
    script = load_script("claims")
    cells = script.plan([by_name("mean_response"), by_name("table2")], tmp_path, again=True)
    assert len(cells) == 2 * by_name("table2").seeds  # the two claims share their runs
    typed = ("experiment=claim/mean_response", "activation=prelu")
    assert {run_id(science(compose_config(*typed, f"seed={s}"))) for s in (0, 7)} <= {cell.name for cell in cells}
    assert {arm_hash(science(cell.config)) for cell in cells} == set(known()["claims"]["table2"].values())
    assert all("claim" not in cell.config and cell.config["logger"]["name"] == "none" for cell in cells)
    done = tmp_path / cells[0].name
    done.mkdir()
    (kept,) = (r for r in claim_records.load(ROOT / "results" / "claims") if r["run"] == cells[0].name)
    records.write(done / "record.json", kept)
    left = script.plan([by_name("table2")], tmp_path, again=True)
    assert {cell.name for cell in cells} - {cell.name for cell in left} == {cells[0].name}


def test_what_is_committed_is_not_run_again() -> None:
    script = load_script("claims")
    kept = script.load(ROOT / "results" / "claims")
    whole = [c for c in claims() if c.tests and all(len(r) == c.seeds for r in script.runs_of(c, kept).values())]
    assert script.plan(whole[:2], Path("nowhere"), again=False) == []


def test_an_unknown_claim_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"^luck is no claim that can be run; there are: .*figure3.*"):
        load_script("claims").chosen(["luck"])


@pytest.mark.process
def test_a_claim_is_planned_run_broken_completed_and_judged(tmp_path: Path) -> None:
    """The smallest claim, as `make claims` does it, in a copy of the project: 40 runs of half a second."""
    place = tmp_path / "project"
    for name in ("src", "conf", "scripts"):
        shutil.copytree(ROOT / name, place / name)
    (place / "results" / "claims").mkdir(parents=True)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(place / "src")}

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    told = call("scripts/claims.py", "run", "signal", "--jobs", "2")
    assert "missing runs: 40" in told
    assert told.count(" s of CPU) experiment=claim/signal") == 40
    (sweep,) = (place / "sweeps").iterdir()
    cells = load(sweep)
    assert len(cells) == 40
    kept = {cell.name: (place / "runs" / cell.name / "record.json").stat().st_mtime_ns for cell in cells}
    shutil.rmtree(place / "runs" / cells[3].name)
    assert "missing runs: 1\n" in call("scripts/claims.py", "run", "signal")
    again = {cell.name: (place / "runs" / cell.name / "record.json").stat().st_mtime_ns for cell in cells}
    assert [name for name in kept if kept[name] != again[name]] == [cells[3].name]
    assert "missing runs: 0\n" in call("scripts/claims.py", "run", "signal")

    record = json.loads((place / "runs" / cells[0].name / "record.json").read_text())
    assert exclusion_reason(record) == "it is of a claim"
    assert "not committed" in str(claim_exclusion_reason(record))  # a copy outside of any checkout
    assert "left out" in call("scripts/report.py", "collect")
    for cell in cells:
        record = json.loads((place / "runs" / cell.name / "record.json").read_text())
        record["provenance"]["git_dirty"] = False
        records.write(place / "runs" / cell.name / "record.json", record)
    assert json.loads(call("scripts/report.py", "collect", "--json"))["claims"] == sorted(kept)
    verdicts = json.loads(call("scripts/report.py", "claims", "--json"))["verdicts"]
    assert verdicts["signal"] == "supported"
    assert verdicts["figure3"] == "not run"
    text = (place / "results" / "CLAIMS.md").read_text()
    (place / "results" / "CLAIMS.md").write_text(text + "by hand")
    stale = subprocess.run(
        [sys.executable, "scripts/report.py", "claims", "--check"],
        cwd=place, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert stale.returncode == 1
    assert f"not what the records say: {place / 'results' / 'CLAIMS.md'}; run make claims" in stale.stderr


def test_a_run_of_code_that_was_not_committed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    script = load_script("claims")
    (signal,) = script.chosen(["signal"])
    kept = runs_of(signal, claim_records.load(ROOT / "results" / "claims"))["he"][0]
    path = tmp_path / kept["run"] / "record.json"
    records.write(path, {**kept, "provenance": {**kept["provenance"], "git_dirty": True}})
    monkeypatch.setattr(script, "RESULTS", tmp_path / "none")
    again = {}
    for dirty in (True, False):
        monkeypatch.setattr(script, "version", lambda dirty=dirty: {"git_dirty": dirty})
        again[dirty] = {cell.name: "rerun=true" in cell.overrides for cell in script.plan([signal], tmp_path, False)}
    assert (len(again[True]), len(again[False])) == (39, 40)
    assert [name for name, anew in again[False].items() if anew] == [kept["run"]]
    assert "it is run again" in capsys.readouterr().err
