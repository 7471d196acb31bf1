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
from rectifiers.claims import archive as claim_records
from rectifiers.claims.archive import arm_hashes, claim_exclusion_reason, runs_of
from rectifiers.claims.claims import claims
from rectifiers.cli import runner
from rectifiers.cli.composition import compose_job
from rectifiers.results.frame import exclusion_reason
from rectifiers.runs import record as records
from rectifiers.runs.identity import arm_hash, run_id, science

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def by_name(name: str):
    return next(claim for claim in claims() if claim.name == name)


@pytest.mark.process
def test_missing_runs_are_those_without_a_record(tmp_path: Path) -> None:
    script = load_script("claims")
    both = [by_name("mean_response"), by_name("uniform_weights")]
    missing = script.missing(both, tmp_path, again=True)
    assert len(missing) == 3 * by_name("mean_response").seeds  # they share the runs with ReLU
    typed = ("claim=mean_response", *by_name("mean_response").arms["prelu"])
    runs = {run_id(science(compose_config(*typed, f"seed={s}"))) for s in (20, 27)}
    assert runs <= missing.keys()
    configs = [compose_job(tuple(overrides))[0] for overrides in missing.values()]
    assert [run_id(science(config)) for config in configs] == list(missing)
    hashes = {arm_hashes()[claim.name][arm] for claim in both for arm in claim.arms}
    assert {arm_hash(science(config)) for config in configs} == hashes
    assert {config.runs_dir for config in configs} == {tmp_path}
    done = next(iter(missing))
    (kept,) = (r for r in claim_records.load(ROOT / "results" / "claims") if r.run == done)
    records.write(tmp_path / done / "record.json", kept)
    left = script.missing(both, tmp_path, again=True)
    assert missing.keys() - left.keys() == {done}


@pytest.mark.process
@pytest.mark.parametrize(("search", "seeds"), [(False, range(5)), (True, [1000])])
def test_an_arm_starts_from_a_run_of_its_seed(tmp_path: Path, search, seeds) -> None:
    script, claim = load_script("claims"), by_name("cifar_deepening")
    jobs = script.missing([claim], tmp_path, again=True, search=search)
    configs = {name: compose_job(tuple(job))[0] for name, job in jobs.items()}
    started = [config for config in configs.values() if config.init.from_weights is not None]
    assert {config.seed for config in started} == set(seeds)
    for config in started:
        folder = config.init.from_weights
        source = configs[folder.name]  # is run, too
        assert (source.runs_dir, source.seed) == (folder.parent, config.seed)
        assert arm_hash(science(source)) == arm_hashes()[claim.name]["shallow"]
    arms = {arm for arm in arm_hashes()[claim.name] if arm.startswith("deepened")}
    asked = {arm for arm in arms if ("at" in arm) == search}
    found = {arm_hash(science(config)) for config in started}
    assert found == {arm_hashes()[claim.name][arm] for arm in asked}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project that has the smallest claim alone, with half its seeds."""
    place = tmp_path / "project"
    for name in ("src", "conf", "scripts"):
        shutil.copytree(ROOT / name, place / name)
    shutil.copytree(ROOT / "results" / "text", place / "results" / "text")
    shutil.copy(ROOT / "results" / "earlier_ids.csv", place / "results")
    arms = Path("results", "claims", "signal", "arms.yaml")
    (place / arms).parent.mkdir(parents=True)
    shutil.copy(ROOT / arms, place / arms)
    asked = place / "conf" / "claim" / "signal.yaml"
    for other in asked.parent.iterdir():
        if other != asked:
            other.unlink()
    texts = {
        "findings": """
- {question: "Is it kept?", whose: ours, find: {signal: "By {{ tests[0].with_n() }}."}}
""",
        "notes": 'notes: [{statement: "It is kept.", kept_by: [signal]}]\n',
    }
    for page, text in texts.items():
        (place / "results" / "text" / f"{page}.yaml").write_text(text)
    # for five
    text = asked.read_text().replace("seeds: 10", "seeds: 5").replace("[0.97, 1.03]", "[0.9, 1.1]")
    asked.write_text(text)
    return place


@pytest.mark.process
def test_a_claim_is_run_broken_completed_and_judged(project: Path) -> None:
    """As `make claims` does it: 20 runs."""
    place, environment = project, {**ENVIRONMENT, "PYTHONPATH": str(project / "src")}

    def call(*arguments: str, status: int = 0) -> str:
        options = {"cwd": place, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *arguments], **options, timeout=300)
        assert done.returncode == status, done.stderr
        return done.stdout if "--json" in arguments else done.stdout + done.stderr

    def stamps() -> list[int]:
        return [
            (place / "runs" / "claims" / name / "record.json").stat().st_mtime_ns for name in names
        ]

    answer = call("scripts/claims.py", "run", "signal", "--jobs", "2")
    assert "missing runs: 20" in answer
    assert "runs to do: 20, at a time: 2" in answer
    names = sorted(path.parent.name for path in place.glob("runs/claims/[0-9a-f]*/record.json"))
    assert len(names) == 20
    kept = stamps()
    shutil.rmtree(place / "runs" / "claims" / names[3])
    assert "missing runs: 1\n" in call("scripts/claims.py", "run", "signal")
    changed = [one != other for one, other in zip(kept, stamps(), strict=True)]
    assert changed == [name == names[3] for name in names]
    assert "missing runs: 0\n" in call("scripts/claims.py", "run", "signal")

    record = records.load(place / "runs" / "claims" / names[0] / "record.json")
    assert exclusion_reason(record) == "it is of a claim"
    assert "not committed" in str(claim_exclusion_reason(record))  # a copy outside of any checkout
    assert "left out" in call("scripts/report.py", "collect")
    for name in names:
        path = place / "runs" / "claims" / name / "record.json"
        records.write(path, altered(records.load(path), {"provenance.git_dirty": False}))
    assert json.loads(call("scripts/report.py", "collect", "--json"))["claims"] == names
    verdicts = json.loads(call("scripts/report.py", "claims", "--json"))["verdicts"]
    assert verdicts["signal"] == "supported"
    text = (place / "results" / "CLAIMS.md").read_text()
    (place / "results" / "CLAIMS.md").write_text(text + "by hand")
    stale = call("scripts/report.py", "claims", "--check", status=1)
    assert f"not what the records say: {place / 'results' / 'CLAIMS.md'}; run python" in stale


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
    again = [name for name, overrides in missing[False].items() if "rerun=true" in overrides]
    assert again == [kept.run]
    assert "it is run again" in capsys.readouterr().err


@pytest.mark.process
def test_overrides_reach_runs_whose_ids_they_keep(tmp_path: Path, monkeypatch, call) -> None:
    trained: list[tuple[str, ...]] = []
    monkeypatch.setattr(runner, "run_all", lambda runs, jobs: trained.extend(runs))
    command = ("scripts/claims.py", "run", "signal", "--again", "--runs", tmp_path)
    more = ("trainer=gpu", "data.num_workers=1", "channels_last=true")
    assert call(*command, *more).returncode == 0
    configs = [compose_job(overrides)[0] for overrides in trained]
    assert len(configs) == 40
    assert {config.trainer.accelerator for config in configs} == {"gpu"}
    assert {(config.data.num_workers, config.channels_last) for config in configs} == {(1, True)}
    kept = load_script("claims").missing([by_name("signal")], tmp_path, again=True)
    assert [run_id(science(config)) for config in configs] == list(kept)
    together = ("logger.wandb.mode=offline", "logger=wandb")
    assert call(*command[:3], *together, *command[3:]).returncode == 0
    del trained[40:]
    seeds = ("seed=3", "seed=0", "data.split_seed=0")  # 0 is the first run's own
    for changing in ("optim.lr=1", *seeds, "nonsense=1", "evaluation=ten_view"):
        refused = call(*command[:3], "data.num_workers=1", changing, *command[3:])
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()[-1:]
        assert changing.partition("=")[0] in line
    assert call(*command[:3], "seed=3", *command[4:]).returncode == 2  # though no run is missing
    assert "signal has no search" in call("scripts/claims.py", "search", "signal").stderr
    assert len(trained) == 40
