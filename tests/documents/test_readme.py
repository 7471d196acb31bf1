"""The README says what is: a screen of it, with a picture, a run and findings that follow from the
records."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, compose_config
from rectifiers.benchmark.card import Card
from rectifiers.benchmark.entries import EntryResults
from rectifiers.runs.identity import run_id, science
from rectifiers.runtime.schema import checked

README = (ROOT / "README.md").read_text()


RESULTS = ROOT / "results"


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 160


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-run.md"])
def test_shown_run_is_that_of_make_train(page: str) -> None:
    name = run_id(science(compose_config("activation=prelu", "init=he")))
    shown = (ROOT / page).read_text().partition("<!-- make train -->")[2]
    assert f"\nrun {name} " in shown.partition("<!-- end -->")[0]


def test_front_door_has_the_numbers_of_its_pages() -> None:
    door = README.partition("<picture>")[0]
    misled = re.search(r"in (\d+) % of comparisons", door)[1]
    row = re.search(r"^\| one seed \| ([\d.]+)", (RESULTS / "SHORTCUTS.md").read_text(), re.M)
    assert misled == f"{float(row[1]):.0f}"

    error, low, high = re.search(r"([\d.]+) % \(([\d.]+) to ([\d.]+)\) by ten views", door).groups()
    assert re.search(rf"^ten_view +{error} +{low} to {high} ", README, re.M)

    models = re.search(r"Of (\d+) networks of torchvision and timm", door)[1]
    audited = (ROOT / "docs" / "explanation" / "audit.md").read_text()
    assert f"We audited {models} networks of torchvision and timm" in audited


def test_picture_shows_the_runs_that_the_text_counts() -> None:
    runs = re.search(r"\[(\d+) runs\]\(results/claims/cifar_figure3/runs\.csv\)", README)[1]
    assert (
        int(runs) == (RESULTS / "claims" / "cifar_figure3" / "runs.csv").read_text().count("\n") - 1
    )


def test_the_printed_report_is_what_the_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = re.findall(
        r"```(?:python)?\n(.*?)```", section("Initialise your own network"), re.S
    )
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.split()
    assert len(printed) == len(shown.split())
    for word, other in zip(printed, shown.split(), strict=True):
        is_number = re.fullmatch(r"[\d.]+", other)
        assert float(word) == pytest.approx(float(other), rel=0.02) if is_number else word == other


def test_shown_headline_is_that_of_the_card() -> None:
    paths = (RESULTS / "benchmark").glob("*.json")
    entries = {path.stem: checked(EntryResults, json.loads(path.read_text())) for path in paths}
    shown = re.search(
        r"^> (mish: .*?)\n\n", section("Measure your own activation") + "\n\n", re.M | re.S
    )[1]
    headline = Card(entries["mish"], entries, {}, {}, "").markdown().split("\n\n")[1]
    assert " ".join(shown.replace("\n> ", " ").split()) == headline


def test_what_swap_prelu_saves_is_measured() -> None:
    path = ROOT / "results" / "bench" / "amd-epyc-avx512.json"
    steps = json.loads(path.read_text())["questions"]["networks"]["step"]
    times, memory = [], []
    for step in steps.values():
        kept = step["kept_bytes"]
        times.append(step["over_before"]["after swap_prelu"]["median"])
        memory.append(kept["after swap_prelu"] / kept["torch's PReLU"])
        assert kept["after swap_prelu"] == kept["ReLU"]

    shown = re.search(
        r"a training step took ([\d.]+) to ([\d.]+) of the time and ([\d.]+) to ([\d.]+)", README
    ).groups()
    ends = [min(times), max(times), min(memory), max(memory)]
    assert list(shown) == [f"{end:.2f}" for end in ends]


@pytest.mark.slow
def test_make_train_learns_the_digits(tmp_path: Path) -> None:
    """The README's own run. Other processors round differently, so the claim is its size: well
    below 5 % error."""
    arguments = [sys.executable, "train.py", "activation=prelu", "init=he", f"runs_dir={tmp_path}"]
    done = subprocess.run(
        arguments,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(Path(done.stdout.splitlines()[-1]).read_text())
    assert record["epochs"] == 75
    assert record["protocols"]["ten_view"]["top1_error_pct"] < 5
    assert len(record["drop_epochs"]) <= 2
