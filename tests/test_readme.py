"""The README says what is: its commands run, its recipes work as typed, its lists are whole."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, compose_config, load_script
from rectifiers.runs.identity import run_id, science

README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\$ python train\.py (.*)$", README, flags=re.MULTILINE)
FILES = re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_deviations_are_those_of_the_code(call) -> None:
    done = call("scripts/deviations.py", "--check")
    assert done.returncode == 0, done.stderr


def test_the_first_result_is_of_the_run_that_make_train_makes() -> None:
    name = run_id(science(compose_config("activation=prelu", "init=he")))
    shown = README[README.index("<!-- make train -->") : README.index("<!-- end -->")]
    assert f"run {name} " in shown
    assert f"runs/{name}/record.json" in shown


@pytest.mark.parametrize("command", re.findall(r"<!-- report\.py (.*) -->", README))
def test_what_the_terminal_shows_is_what_it_prints(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"$ python scripts/report.py {command}\n" in README
    monkeypatch.setattr(sys, "argv", ["report.py", *shlex.split(command), "--runs", str(tmp_path)])
    load_script("report").main()
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()).strip("\n")
    shown = README.partition(f"<!-- report.py {command} -->\n```\n")[2].partition("\n```")[0]
    assert printed == shown


def test_make_targets_that_are_named_exist() -> None:
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", text)) | set(re.findall(r"^\$ make ([a-z-]+)", text, re.M)) <= targets


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which the README's files have been added, as a reader would."""
    place = tmp_path_factory.mktemp("copy")
    for name in ("src", "conf", "train.py"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place / name)
    assert len(FILES) == 5
    for name, content in FILES:
        path = place / name
        path.write_text((path.read_text() + "\n\n" if path.exists() else "") + content)
    return place


@pytest.mark.process
@pytest.mark.parametrize("command", [c for c in COMMANDS if "multirun" not in c])
def test_commands_and_recipes_run_as_they_are_printed(copy: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "train.py", *shlex.split(command), "optim.epochs=1", "evaluation=center"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((copy / done.stdout.splitlines()[-1]).read_text())
    if "snake" in command:
        # E[(z + sin(az)^2 / a)^2] = 1 + E[sin(az)^4] / a^2 with E[sin^4] = (3 - 4 e^{-2a^2} + e^{-8a^2}) / 8
        import math

        second = 1 + (3 - 4 * math.exp(-0.5) + math.exp(-2)) / 8 / 0.25
        assert record["init_report"][1]["forward_gain"] == pytest.approx(second**-0.5, rel=1e-6)
    if "laplace" in command:
        assert {entry["rule"] for entry in record["init_report"]} == {"laplace"}
        for entry in record["init_report"]:
            assert entry["std_drawn"] == pytest.approx(entry["std_asked"], rel=0.15)
    if "small6" in command:
        assert record["network"]["depth"] == 6


def test_the_sweep_of_the_readme_is_nine_runs() -> None:
    sizes = []
    for sweep in (c for c in COMMANDS if "multirun" in c):
        cells = 1
        for override in shlex.split(sweep, comments=True)[1:]:
            key, _, value = override.partition("=")
            for single in value.split(","):
                if not key.startswith("hydra/"):
                    compose_config(f"{key}={single}")
            cells *= len(value.split(","))
        sizes.append(cells)
    assert sizes[0] == 9


@pytest.mark.slow
def test_make_train_learns_the_digits(tmp_path: Path) -> None:
    """The README's own run. Other processors round differently, so the claim is its size: well below 5 % error."""
    arguments = [sys.executable, "train.py", "activation=prelu", "init=he", f"runs_dir={tmp_path}"]
    done = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert record["epochs"] == 75
    assert record["protocols"]["ten_view"]["top1_error_pct"] < 5
    assert len(record["drop_epochs"]) <= 2


def test_the_page_of_timings_is_what_the_measurements_say_and_every_bench_has_a_section() -> None:
    performance = load_script("performance")
    assert (ROOT / "docs" / "results" / "performance.md").read_text() == performance.document()
    benches = {path.stem for path in (ROOT / "scripts" / "bench").glob("*.py")} - {"harness", "peers", "photos", "roof"}
    (questions,) = re.findall(r"for question in ([^;]+);", (ROOT / "Makefile").read_text())
    assert benches == set(performance.SECTIONS) == set(questions.split())


def test_a_bench_puts_its_numbers_beside_those_of_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = load_script("bench/harness")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness.torch, "set_num_threads", lambda _: None)
    ratio = {"median": 1.5, "q25": 1.25, "q75": 1.75}
    numbers = {"windows": [1, 2], "seconds": {"dense": 2.0}, "times_dense": {"dense": ratio}, "difference": 1e-9}
    for rounds in ("4", "5"):
        for question in ("windows", "other"):
            monkeypatch.setattr(sys, "argv", [f"scripts/bench/{question}.py", rounds])
            monkeypatch.setattr(harness, "section", lambda name, found: f"{name}: {found['rounds']} rounds")
            harness.measure(lambda rounds: numbers, "about", rounds=7)
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text())
    assert kept["machine"]["device"] == "cpu"
    assert list(kept["questions"]) == ["other", "windows"]
    assert kept["questions"]["windows"]["rounds"] == 5
    assert kept["questions"]["windows"]["versions"]["torch"]
    assert kept["questions"]["windows"].items() >= numbers.items()
    assert "windows: 5 rounds" in capsys.readouterr().out
