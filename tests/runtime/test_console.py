"""Long work says where it is: by lines where stderr is no terminal."""

import io

import pytest
from rich.console import Console

from rectifiers.runtime import console
from rectifiers.runtime.console import progress_bar


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
