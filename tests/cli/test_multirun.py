"""A sweep by Hydra whose runs are processes tells how far it is."""

import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rectifiers.cli import multirun
from rectifiers.cli.multirun import Progress, progress, submitted
from rectifiers.runtime import console


def job(jobs: Path, name: str, *parts: str) -> None:
    (jobs / name).mkdir(parents=True)
    for part in ("submitted.pkl", *parts):
        (jobs / name / f"{name}_0_{part}").touch()


def test_the_line_counts_the_jobs_of_this_sweep(tmp_path: Path) -> None:
    job(tmp_path, "4", "log.out", "result.pkl")
    before = submitted(tmp_path)
    assert progress(tmp_path, before, 60) == "0 of 0 ended, 0 running"
    job(tmp_path, "1", "log.out", "result.pkl")
    job(tmp_path, "2", "log.out")
    job(tmp_path, "3")
    assert progress(tmp_path, before, 60) == "1 of 3 ended, 1 running, 0:02:00 left"


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_lines_are_printed_while_the_runs_are_elsewhere(
    tmp_path: Path,
    is_elsewhere: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(multirun, "LOOKS_EVERY_S", 0.01)
    monkeypatch.setattr(console, "FIRST_LINE_S", 0.0)
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
    launcher = (
        {"submitit_folder": f"{tmp_path}/%j"} if is_elsewhere else {"_target_": "a.BasicLauncher"}
    )
    config, shown = OmegaConf.create({"hydra": {"launcher": launcher}}), Progress()
    shown.on_multirun_start(config)
    job(tmp_path, "1", "log.out")
    said, end = "", time.monotonic() + (10 if is_elsewhere else 0.2)
    while "0 of 1 ended, 1 running\n" not in said and time.monotonic() < end:
        said += capsys.readouterr().out
        time.sleep(0.01)
    shown.on_multirun_end(config)
    assert ("0 of 1 ended, 1 running\n" in said) == is_elsewhere
