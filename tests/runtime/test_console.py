"""Long work says where it is: by lines where stderr is no terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from conftest import compose_config
from rectifiers.runtime import console
from rectifiers.runtime.console import progress_bar
from rectifiers.training.run import train


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to stderr, which is no terminal."""
    text = io.StringIO()
    monkeypatch.setattr(console, "stderr", Console(file=text))
    return text


@pytest.fixture
def at_every_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "FIRST_LINE_S", 0)
    monkeypatch.setattr(console, "LINE_EVERY_S", 0)


def advance_by_the_second(seconds: int) -> None:
    """Do 2 of 400 images a second, for a while."""
    now = 0.0
    with progress_bar("testing dense", 400, clock=lambda: now) as advance:
        for _ in range(seconds):
            now += 1
            advance(2)


def test_lines_come_after_half_a_minute_and_every_minute(output: io.StringIO) -> None:
    advance_by_the_second(160)
    assert output.getvalue().splitlines() == [
        "testing dense: 60 of 400 images, 0:02:50 left",
        "testing dense: 180 of 400 images, 0:01:50 left",
        "testing dense: 300 of 400 images, 0:00:50 left",
    ]


def test_only_the_first_of_several_processes_prints(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch, at_every_advance: None
) -> None:
    for name, value in {
        "TORCHELASTIC_RUN_ID": "x",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "GROUP_WORLD_SIZE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with progress_bar("testing", 2) as advance:
            advance(1)
    assert output.getvalue().startswith("testing: 1 of 2 images")
    assert len(output.getvalue().splitlines()) == 1


def test_fitting_the_preprocessing_and_testing_print_lines(
    tmp_path: Path, output: io.StringIO, at_every_advance: None
) -> None:
    small = (
        "data=digits8",
        "model=mlp",
        "trainer.max_epochs=1",
        "logger=none",
        "evaluation=ten_view",
        "preprocess=pixel_mean",
    )
    train(compose_config(*small, f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"), {})
    assert "fitting the preprocessing: 1,077 of 1,077 images" in output.getvalue()
    assert "testing ten_view: 450 of 450 images" in output.getvalue()
