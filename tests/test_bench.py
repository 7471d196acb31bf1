"""The measurements of speed, and the page that is made of them."""

import json
import re
import sys
from pathlib import Path

import pytest

from conftest import ROOT, load_script
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import Row


def test_the_page_of_timings_is_what_the_measurements_say_and_every_bench_has_a_section() -> None:
    performance = load_script("performance")
    assert (ROOT / "docs" / "results" / "performance.md").read_text() == performance.document()
    benches = {path.stem for path in (ROOT / "scripts" / "bench").glob("*.py")} - {
        "harness",
        "peers",
        "photos",
        "roof",
    }
    questions, on_gpus = re.findall(r"for question in ([^;]+);", (ROOT / "Makefile").read_text())
    assert benches == set(performance.SECTIONS) == set(questions.split())
    assert set(on_gpus.split()) == {"prelu", "step", "scaling"}


def test_a_bench_puts_its_numbers_beside_those_of_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = load_script("bench/harness")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness.torch, "set_num_threads", lambda _: None)
    ratio = {"median": 1.5, "q25": 1.25, "q75": 1.75}
    numbers = {
        "windows": [1, 2],
        "seconds": {"dense": 2.0},
        "times_dense": {"dense": ratio},
        "difference": 1e-9,
    }
    for rounds in ("4", "5"):
        for question in ("windows", "other"):
            monkeypatch.setattr(sys, "argv", [f"scripts/bench/{question}.py", rounds])
            monkeypatch.setattr(
                harness, "section", lambda name, found: f"{name}: {found['rounds']} rounds"
            )
            harness.measure(lambda rounds: numbers, "about", rounds=7)
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text())
    assert kept["machine"]["device"] == "cpu"
    assert list(kept["questions"]) == ["other", "windows"]
    assert kept["questions"]["windows"]["rounds"] == 5
    assert kept["questions"]["windows"]["versions"]["torch"]
    assert kept["questions"]["windows"].items() >= numbers.items()
    assert "windows: 5 rounds" in capsys.readouterr().out


def test_steps_are_timed_and_shown_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As make bench-gpu does it, on a network of two layers; a GPU's memory is given."""
    monkeypatch.syspath_prepend(ROOT / "scripts" / "bench")
    step = load_script("bench/step")
    small = [Row("conv1", "conv", 4, kernel=3, stride=32), Row("fc1", "linear", 1000)]
    monkeypatch.setattr(step.harness, "paper_rows", lambda _: small)
    monkeypatch.setattr(
        step, "paper_network", lambda _: Network(small, PReLU, channels=3, input_px=224)
    )
    monkeypatch.setattr(step, "SIDE", 16)
    monkeypatch.setattr(step, "STEPS", [each for each in step.STEPS if not each.compiled])
    numbers = step.main(rounds=2, batch=2)
    assert (
        numbers["times_as_fast"].keys()
        == numbers["ms_an_image"].keys()
        == {str(each) for each in step.STEPS}
    )
    about = {"rounds": 2, "batch": 2, "versions": {"torch": "2"}, "code": "0"}
    macros = load_script("performance")
    plain = macros.section("step", {**numbers, **about})
    assert "GiB" not in plain
    shown = macros.section(
        "step", {**numbers, **about, "peak_bytes": dict.fromkeys(numbers["ms_an_image"], 3 * 2**29)}
    )
    assert shown.count("| 1.50 |") == len(step.STEPS)
    assert "| GiB beside weights and gradients |" in shown
