"""`scripts/analyse.py`: every analysis from the command line to its numbers and figures, and what
it refuses."""

import json
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from conftest import load_script
from sentences import sentence as sentence_of

OVERRIDES = "model=mlp model.depth=2 model.hidden=16 data.resize_px=8 data.crop_px=8 threads=1"
SMALL = OVERRIDES.split()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("analyse")


@pytest.fixture
def call(script: ModuleType, tmp_path: Path, monkeypatch, capsys):
    """Call the script in this process; return what it printed."""

    def make(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["analyse.py", *arguments, f"out={tmp_path}/out"])
        script.main()
        return capsys.readouterr().out

    return make


def files(printed: str) -> list[Path]:
    """The paths that were printed; all figures among them are drawn."""
    paths = [Path(line) for line in printed.splitlines() if line.startswith("/")]
    for path in paths:
        if path.suffix == ".svg":
            assert len(list(ElementTree.parse(path).iter())) > 15  # an empty one has 9
    return paths


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("propagation seeds=2", ["fc_2", "Eq. 13", "E[y²]"]),
        (
            "propagation inputs=gaussian seeds=1 model=small30 model.width=0.1 activation=gelu",
            ["conv3_6", "borders", "pooling"],
        ),
        ("histograms trainer.max_epochs=1", ["std of gradients"]),
        ("preprocessing components=[1,4]", ["64 numbers per image, 1,077 training", "99 %"]),
    ],
)
def test_analysis_writes_tables_numbers_and_figure(call, tmp_path, command, words) -> None:
    name, *arguments = command.split()
    chosen = {argument.partition("=")[0] for argument in arguments}
    small = [] if "model=small30" in arguments else SMALL
    small = [option for option in small if option.partition("=")[0] not in chosen]
    printed = call(name, *small, *arguments, f"cache_dir={tmp_path}/cache")
    for word in words:
        assert word in printed
    numbers, figure = files(printed)
    assert figure.name == f"{name}.svg"
    assert json.loads(numbers.read_text())["analysis"] == name
    assert numbers.parent.name.startswith(f"{name}-")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["propagate"], "propagate is no analysis; choose one of: propagation, histograms, "),
        (["propagation", "seeds=0"], "seeds=0: should be greater than or equal to 1"),
        (["propagation", "activaton=relu"], "activaton is not known; did you mean activation?"),
        (["propagation", "optim.lr=-1"], "optim.lr=-1: should be greater than 0"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    call, tmp_path: Path, arguments: list[str], problem: str, capsys
) -> None:
    with pytest.raises(SystemExit, match=r"1|2"):
        call(*arguments)
    assert problem in sentence_of(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
