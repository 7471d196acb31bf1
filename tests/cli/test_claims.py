"""`scripts/claims.py`: what is missing is run, in few processes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, compose_config, load_script
from made_up import altered
from rectifiers.claims import records as claim_records
from rectifiers.claims.claims import claims
from rectifiers.claims.records import arm_hash, arm_hashes, claim_exclusion_reason, runs_of
from rectifiers.cli.composition import compose_job
from rectifiers.results.frame import exclusion_reason
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.runtime.errors import InputError

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def by_name(name: str):
    return next(claim for claim in claims() if claim.name == name)


@pytest.mark.process
def test_missing_runs_are_those_without_a_record(tmp_path: Path) -> None:
    script = load_script("claims")
    missing = script.missing([by_name("mean_response"), by_name("table2")], tmp_path, again=True)
    assert len(missing) == 2 * by_name("table2").seeds  # the two claims share their runs
    typed = ("claim=mean_response", *by_name("mean_response").arms["prelu"])
    assert {
        run_id(science(compose_config(*typed, f"seed={s}"))) for s in (20, 27)
    } <= missing.keys()
    assert run_id(science(compose_config(*missing[next(reversed(missing))]))) == next(
        reversed(missing)
    )
    configs = [compose_job(tuple(overrides))[0] for overrides in missing.values()]
    assert [run_id(science(config)) for config in configs] == list(missing)
    arms = arm_hashes()["table2"]
    assert {arm_hash(science(config)) for config in configs} == {
        arms[arm] for arm in by_name("table2").arms
    }
    assert all(config.logger.targets() == {} for config in configs)
    assert {config.runs_dir for config in configs} == {tmp_path}
    done = next(iter(missing))
    (kept,) = (r for r in claim_records.load(ROOT / "results" / "claims") if r.run == done)
    records.write(tmp_path / done / "record.json", kept)
    assert missing.keys() - script.missing([by_name("table2")], tmp_path, again=True).keys() == {
        done
    }


@pytest.mark.process
def test_what_is_committed_is_not_run_again() -> None:
    script = load_script("claims")
    kept = script.load(ROOT / "results" / "claims")
    whole = [
        c
        for c in claims()
        if c.tests and all(len(r) == c.seeds for r in script.runs_of(c, kept).values())
    ]
    assert script.missing(whole[:2], Path("nowhere"), again=False) == {}


def test_an_unknown_claim_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^qqq is not a claim that can be run; see"):
        load_script("claims").chosen(["qqq"])
    with pytest.raises(InputError, match=r"did you mean figure3\?"):
        load_script("claims").chosen(["figure33"])


@pytest.mark.process
def test_a_claim_is_run_broken_completed_and_judged(tmp_path: Path) -> None:
    """The smallest claim, with half its seeds, as `make claims` does it in a copy of the project:
    20 runs."""
    place = tmp_path / "project"
    for name in ("src", "conf", "scripts"):
        shutil.copytree(ROOT / name, place / name)
    (place / "results" / "claims").mkdir(parents=True)
    shutil.copy(ROOT / "results" / "claims" / "signal.yaml", place / "results" / "claims")
    asked = place / "conf" / "claim" / "signal.yaml"
    for other in asked.parent.iterdir():
        if other != asked:
            other.unlink()
    (place / "src" / "rectifiers" / "claims" / "findings.yaml").write_text("signal: []\n")
    # for five
    text = asked.read_text().replace("seeds: 10", "seeds: 5").replace("[0.97, 1.03]", "[0.9, 1.1]")
    asked.write_text(text)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(place / "src")}

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout if "--json" in arguments else done.stdout + done.stderr

    answer = call("scripts/claims.py", "run", "signal", "--jobs", "2")
    assert "missing runs: 20" in answer
    assert "runs to do: 20, at a time: 2" in answer
    names = sorted(path.parent.name for path in place.glob("runs/*/record.json"))
    assert len(names) == 20
    kept = {name: (place / "runs" / name / "record.json").stat().st_mtime_ns for name in names}
    shutil.rmtree(place / "runs" / names[3])
    assert "missing runs: 1\n" in call("scripts/claims.py", "run", "signal")
    again = {name: (place / "runs" / name / "record.json").stat().st_mtime_ns for name in names}
    assert [name for name in kept if kept[name] != again[name]] == [names[3]]
    assert "missing runs: 0\n" in call("scripts/claims.py", "run", "signal")

    record = records.load(place / "runs" / names[0] / "record.json")
    assert exclusion_reason(record) == "it is of a claim"
    assert "not committed" in str(claim_exclusion_reason(record))  # a copy outside of any checkout
    assert "left out" in call("scripts/report.py", "collect")
    for name in names:
        path = place / "runs" / name / "record.json"
        records.write(path, altered(records.load(path), {"provenance.git_dirty": False}))
    assert json.loads(call("scripts/report.py", "collect", "--json"))["claims"] == sorted(kept)
    verdicts = json.loads(call("scripts/report.py", "claims", "--json"))["verdicts"]
    assert verdicts["signal"] == "supported"
    text = (place / "results" / "CLAIMS.md").read_text()
    (place / "results" / "CLAIMS.md").write_text(text + "by hand")
    stale = subprocess.run(
        [sys.executable, "scripts/report.py", "claims", "--check"],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert stale.returncode == 1
    assert (
        f"not what the records say: {place / 'results' / 'CLAIMS.md'}; run make claims"
        in stale.stderr
    )


@pytest.mark.process
def test_runs_of_uncommitted_code_are_repeated(tmp_path: Path, monkeypatch, capsys) -> None:
    script = load_script("claims")
    (signal,) = script.chosen(["signal"])
    kept = runs_of(signal, claim_records.load(ROOT / "results" / "claims"))["he"][0]
    path = tmp_path / kept.run / "record.json"
    records.write(path, altered(kept, {"provenance.git_dirty": True}))
    monkeypatch.setattr(script, "RESULTS", tmp_path / "none")
    missing = {}
    for dirty in (True, False):
        monkeypatch.setattr(script, "is_changed", lambda dirty=dirty: dirty)
        missing[dirty] = script.missing([signal], tmp_path, again=False)
    assert (len(missing[True]), len(missing[False])) == (39, 40)
    assert [name for name, overrides in missing[False].items() if "rerun=true" in overrides] == [
        kept.run
    ]
    assert "it is run again" in capsys.readouterr().err
