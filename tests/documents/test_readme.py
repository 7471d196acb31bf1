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


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-run.md"])
def test_shown_run_is_that_of_make_train(page: str) -> None:
    name = run_id(science(compose_config("activation=prelu", "init=he")))
    shown = (ROOT / page).read_text().partition("<!-- make train -->")[2]
    assert f"\nrun {name} " in shown.partition("<!-- end -->")[0]


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


def starts_beside_initialize() -> tuple[list[int], list[int]]:
    """On how many networks torch's default and the authors' rule end with a clearly higher loss
    than `initialize`, and with a clearly lower one."""
    networks = (RESULTS / "STARTS.md").read_text().split("\n## ")[1:]
    ends = [re.findall(r"\| \S+ \((\S+) to (\S+)\) \|$", network, re.M) for network in networks]
    assert {len(starts) for starts in ends} == {2}
    better = [sum(float(low) > 0 for low, _ in of_start) for of_start in zip(*ends, strict=True)]
    worse = [sum(float(high) < 0 for _, high in of_start) for of_start in zip(*ends, strict=True)]
    return better, worse


def test_quoted_numbers_are_those_of_their_files() -> None:
    one_seed = re.search(
        r"in ([\d.]+) % of comparisons\*\* \(95 % interval ([\d.]+ to [\d.]+)\)",
        " ".join((RESULTS / "SHORTCUTS.md").read_text().split()),
    )
    human = re.search(
        r"networks minus annotator 1 \| -([\d.]+) \| ([\d.]+) \|",
        (ROOT / "docs" / "results" / "human-level.md").read_text(),
    )
    better, worse = starts_beside_initialize()
    learned = re.findall(
        r"^\| learned minus ([\d.]+) \| \S+ \| (\S+) \((.+?)\) \|",
        (RESULTS / "LANGUAGE_MODEL.md").read_text(),
        re.M,
    )
    (slope, middle, middle_range), (_, long, long_range) = learned[1:]
    audited = re.search(
        r"We audited (\d+) networks", (ROOT / "docs" / "explanation" / "audit.md").read_text()
    )
    error, low, high = re.search(r"^ten_view +(\S+) +(\S+) to (\S+) ", README, re.M).groups()
    runs = (RESULTS / "claims" / "cifar_figure3" / "runs.csv").read_text().count("\n") - 1

    paths = (RESULTS / "benchmark").glob("*.json")
    entries = {path.stem: checked(EntryResults, json.loads(path.read_text())) for path in paths}
    headline = Card(entries["mish"], entries, {}, {}, "").markdown().split("\n\n")[1]

    timed = json.loads((RESULTS / "bench" / "amd-epyc-avx512.json").read_text())
    steps = timed["questions"]["networks"]["step"].values()
    times = [step["over_before"]["after swap_prelu"]["median"] for step in steps]
    kept = [step["kept_bytes"] for step in steps]
    assert all(sizes["after swap_prelu"] == sizes["ReLU"] for sizes in kept)
    memory = [sizes["after swap_prelu"] / sizes["torch's PReLU"] for sizes in kept]

    text = " ".join(README.replace("\n> ", " ").split())
    for quoted in (
        f"in {float(one_seed[1]):.0f} % of comparisons",
        f"in {one_seed[1]} % of comparisons ({one_seed[2]}; ",
        f"They differ by {human[1]} points, with a standard error of {human[2]}",
        f"lower than that of the authors' rule on {better[1]} and higher on {worse[1]} (",
        f"with torch's default, it is lower on {better[0]} (the ViT) and higher on {worse[0]} (",
        f"best of five fixed slopes, {slope}, a learned one changes the loss by {middle} nats per "
        f"byte ({middle_range}) after 4,000 steps, and by {long} ({long_range}) after 16,000,",
        f"Of {audited[1]} networks of torchvision and timm",
        f"{error} % ({low} to {high}) by ten views",
        f"[{runs} runs](results/claims/cifar_figure3/runs.csv)",
        headline,
        f"{min(times):.2f} to {max(times):.2f} of the time",
        f"kept {min(memory):.2f} to {max(memory):.2f} of these bytes",
    ):
        assert quoted in text


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
