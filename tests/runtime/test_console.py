"""Long work says where it is: by lines where stderr is no terminal."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from conftest import compose_config, load_script
from rectifiers.data.imagenet.archives import Expected
from rectifiers.runtime import console
from rectifiers.runtime.console import duration, progress_bar, state
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
    times: Iterator[float] = iter(range(seconds + 1))
    with progress_bar("testing dense", 400, clock=lambda: next(times)) as advance:
        for _ in range(seconds):
            advance(2)


def test_a_line_after_half_a_minute_and_then_every_minute_says_count_rate_and_time_left(
    output: io.StringIO,
) -> None:
    advance_by_the_second(160)
    assert output.getvalue().splitlines() == [
        "testing dense: 60 of 400 images, 2 per second, 3 min left",
        "testing dense: 180 of 400 images, 2 per second, 110 s left",
        "testing dense: 300 of 400 images, 2 per second, 50 s left",
    ]


def test_short_work_prints_nothing(output: io.StringIO) -> None:
    advance_by_the_second(29)
    assert output.getvalue() == ""


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


def test_a_terminal_shows_a_bar_with_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(console, "stderr", Console(file=shown, force_terminal=True, width=120))
    with progress_bar("testing", 400) as advance:
        advance(30)
    assert "30 of 400 images" in shown.getvalue()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((5, 10, "networks", 0.0), "5 of 10 networks"),
        ((5, 10, "networks", 0.125), "5 of 10 networks, 0.125 per second, 40 s left"),
        (
            (10**9, 15 * 10**10, "bytes", 2e8),
            "1.0 GB of 150.0 GB, 200.0 MB per second, 12 min left",
        ),
    ],
)
def test_a_line_gives_amounts_in_their_unit(arguments: tuple, text: str) -> None:
    assert state(*arguments) == text


def test_a_duration_has_the_units_that_matter() -> None:
    assert [duration(s) for s in (-3, 0.4, 119, 120, 7000, 11100)] == [
        "0 s",
        "0 s",
        "119 s",
        "2 min",
        "117 min",
        "3 h 05 min",
    ]


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


def test_the_stages_of_imagenet_print_lines(
    miniature: Expected, tmp_path: Path, output: io.StringIO, at_every_advance: None
) -> None:
    script = load_script("prepare_imagenet")
    settings = script.Settings(
        root=str(tmp_path / "it"), store="plain", shard_bytes=10**6, resize_px=20, crop_px=16
    )
    script.verify_all(miniature, None)
    script.run_prepare(miniature, settings, 1)
    script.run_statistics(settings, tmp_path / "statistics", 1)
    lines = output.getvalue().splitlines()
    for work in ("reading ILSVRC2012_img_train.tar", "storing", "checking", "statistics"):
        assert any(line.startswith(f"{work}: ") for line in lines), work
