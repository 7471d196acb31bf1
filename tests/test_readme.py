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
from rectifiers.runs.identity import run_id, science

README = (ROOT / "README.md").read_text()


def test_the_first_result_is_of_the_run_that_make_train_makes() -> None:
    name = run_id(science(compose_config("activation=prelu", "init=he")))
    shown = README[README.index("<!-- make train -->") : README.index("<!-- end -->")]
    assert f"run {name} " in shown
    assert f"runs/{name}/record.json" in shown


def negated(number: str) -> str:
    return number[1:] if number.startswith("-") else f"-{number}"


def test_the_findings_are_those_of_the_records() -> None:
    shown = README.partition("## Findings")[2].partition("\n## ")[0]
    pages = [ROOT / "results" / "FINDINGS.md", *(ROOT / "results" / "claims").glob("*.md")]
    records = "".join(page.read_text() for page in pages)
    effects = re.findall(r"(-?[\d.]+)[^()\d]*\((-?[\d.]+ to -?[\d.]+)\)", " ".join(shown.split()))
    assert effects
    for effect, interval in effects:  # "lower by 2 (1 to 3)" is -2 (-3 to -1)
        low, high = interval.split(" to ")
        flipped = f"{negated(effect)} ({negated(high)} to {negated(low)})"
        texts = f" {effect} ({interval})", f" {flipped}"
        assert any(text in records for text in texts), effect


def test_what_swap_prelu_saves_is_measured() -> None:
    path = ROOT / "results" / "bench" / "amd-epyc-avx512.json"
    steps = json.loads(path.read_text())["questions"]["networks"]["step"]
    lines = README[README.index("| | iresnet18") :].splitlines()
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
