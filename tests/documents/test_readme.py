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


def test_the_readme_is_two_screens() -> None:
    assert README.count("\n") <= 130


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-run.md"])
def test_shown_run_is_that_of_make_train(page: str) -> None:
    name = run_id(science(compose_config("activation=prelu", "init=he")))
    shown = (ROOT / page).read_text().partition("<!-- make train -->")[2]
    assert f"\nrun {name} " in shown.partition("<!-- end -->")[0]


def negated(number: str) -> str:
    return number[1:] if number.startswith("-") else f"-{number}"


FINDINGS = re.findall(r"^\| (.*results/claims/.*) \|$", README, flags=re.MULTILINE)


@pytest.mark.parametrize("row", FINDINGS)
def test_findings_have_their_claims_numbers_and_verdicts(row: str) -> None:
    found, evidence = row.split(" | ")[1:]
    pages = re.findall(r"\((results/claims/\w+/page\.md)\)", row)
    records = "".join((ROOT / page).read_text() for page in pages)
    records = re.sub(r" (points|degrees|epochs) \(", " (", records)
    verdict = evidence.partition("]")[0].removeprefix("[").capitalize()
    assert f"**{verdict}**" in (ROOT / pages[-1]).read_text()
    effects = re.findall(r"(-?[\d.]+)[^()\d]*\((-?[\d.]+ to -?[\d.]+)\)", found)
    shares = re.findall(r"\d of \d", found)
    assert effects or shares
    assert all(f"{share} seeds" in records for share in shares)
    for effect, interval in effects:  # "lowers by 2 (1 to 3)" is -2 (-3 to -1)
        low, high = interval.split(" to ")
        flipped = f"{negated(effect)} ({negated(high)} to {negated(low)})"
        assert f" {effect} ({interval})" in records or f" {flipped}" in records


FOUND = "What the paper says, and what we see here"


def test_numbers_of_verdicts_are_the_claims() -> None:
    lines = (RESULTS / "CLAIMS.md").read_text().splitlines()
    head = next(line for line in lines if line.startswith("| images |"))
    row = next(line for line in lines if line.startswith("| 32 px and more | the paper's |"))
    names, numbers = (line.split("|")[3:-1] for line in (head, row))
    counts = {
        name.strip(): number.strip()
        for name, number in zip(names, numbers, strict=True)
        if number.strip() and name.strip() != "not run"
    }
    text = " ".join(section(FOUND).split())
    shown = re.findall(
        r"(\d+) (?:is|are|has) ([a-z ]+?)(?:,| and| \()", text.partition("Of the")[2]
    )
    assert {name: number for number, name in shown} == counts


def test_settings_beside_findings_are_their_claims() -> None:
    text = " ".join(section(FOUND).split())
    seeds, epochs = re.search(r"from CIFAR-10, with (\d) seeds and (\d) epochs", text).groups()
    photographs, more_seeds, more_epochs = re.search(
        r"Imagenette \(([\d,]+) training .*? (\d) seeds and (\d+) epochs", text
    ).groups()
    rows = re.findall(
        r"^\| .*After ([\d,]+) steps.*\((results/claims/\w+/page\.md)\) \|$", README, re.M
    )
    assert len(rows) == 4
    for steps, path in rows:
        page, is_cifar = (ROOT / path).read_text(), "cifar" in path
        length = f" {epochs if is_cifar else more_epochs} epochs ({steps} steps)"
        assert length in page
        assert f"| {seeds if is_cifar else more_seeds} |" in page
        assert is_cifar or f"each of {photographs} images" in page
    slope = re.search(r"a slope fixed at ([\d.]+)", text)[1]
    page = (RESULTS / "claims/imagenette_learned_slope/page.md").read_text()
    assert f"activation.slope={slope} " in page
    low, high = re.search(r"from ([\d.]+) to ([\d.]+) %", text).groups()
    page = (RESULTS / "claims/imagenette_table2/page.md").read_text()
    assert f"prelu minus relu ({high} and {low})" in page


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
    headline = Card(entries["mish"], entries, {}, {}).markdown().split("\n\n")[1]
    assert " ".join(shown.replace("\n> ", " ").split()) == headline


def test_what_swap_prelu_saves_is_measured() -> None:
    path = ROOT / "results" / "bench" / "amd-epyc-avx512.json"
    steps = json.loads(path.read_text())["questions"]["networks"]["step"]
    lines = README[README.index("| share of torch's | iresnet18") :].splitlines()
    names, times, memory = (lines[i].strip("|").split("|")[1:] for i in (0, 2, 3))
    for name, *shown in zip(names, times, memory, strict=True):
        step = next(step for key, step in steps.items() if key.startswith(name.strip()))
        kept = step["kept_bytes"]
        ratios = (
            step["over_before"]["after swap_prelu"]["median"],
            kept["after swap_prelu"] / kept["torch's PReLU"],
        )
        assert [float(number) for number in shown] == [round(ratio, 2) for ratio in ratios], name
        assert kept["after swap_prelu"] == kept["ReLU"]


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
