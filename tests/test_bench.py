"""The measurements of speed, and the page that is made of them."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from conftest import ROOT, load_script
from rectifiers.data import jpeg
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import Row

ABOUT = {"rounds": 2, "batch": 2, "versions": {"torch": "2"}, "code": "0"}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the benches, which import each other by name."""
    folder = ROOT / "scripts" / "bench"
    monkeypatch.syspath_prepend(folder)
    return folder


def test_page_is_made_of_the_results_of_all_benches(bench: Path) -> None:
    performance = load_script("performance")
    assert (ROOT / "docs" / "results" / "performance.md").read_text() == performance.document()
    names = {path.stem for path in bench.glob("*.py")} - {"harness"}
    on_cpus, on_gpus = re.findall(r"for question in ([^;]+);", (ROOT / "Makefile").read_text())
    assert names == performance.SECTIONS.keys() == set(on_cpus.split())
    assert set(on_gpus.split()) == names - {"pipeline"}
    for path in performance.RESULTS.glob("*.json"):
        assert json.loads(path.read_text())["questions"].keys() <= names


def test_results_of_one_machine_share_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = load_script("bench/harness")
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness.torch, "set_num_threads", lambda _: None)
    numbers = {"gflops": {"float32": {"a product of matrices": 2.0}}}
    for rounds in ("4", "5"):
        for question in ("roof", "other"):
            monkeypatch.setattr(sys, "argv", [f"scripts/bench/{question}.py", rounds])
            monkeypatch.setattr(
                harness, "section", lambda name, results: f"{name}: {results['rounds']} rounds"
            )
            harness.measure(lambda rounds: numbers, "about", rounds=7)
    (path,) = tmp_path.glob("*.json")
    results = json.loads(path.read_text())
    assert results["machine"]["device"] == "cpu"
    assert list(results["questions"]) == ["other", "roof"]
    assert results["questions"]["roof"]["rounds"] == 5
    assert results["questions"]["roof"]["versions"]["torch"]
    assert results["questions"]["roof"].items() >= numbers.items()
    assert "roof: 5 rounds" in capsys.readouterr().out


def test_steps_are_timed_and_shown_on_any_device(
    bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As make bench-gpu does it, on a network of two layers; a GPU's memory is given."""
    step = load_script("bench/step")
    small = [Row("conv1", "conv", 4, kernel=3, stride=32), Row("fc1", "linear", 1000)]
    monkeypatch.setattr(step.harness, "paper_rows", lambda _: small)
    monkeypatch.setattr(
        step, "paper_network", lambda _: Network(small, PReLU, channels=3, input_px=224)
    )
    monkeypatch.setattr(step, "SIDE", 16)
    monkeypatch.setattr(step, "STEPS", [way for way in step.STEPS if not way.compiled])
    numbers = step.main(rounds=2, batch=2)
    names = {str(way) for way in step.STEPS}
    assert numbers["times_as_fast"].keys() == numbers["ms_an_image"].keys() == names
    performance = load_script("performance")
    assert "GiB" not in performance.section("step", {**numbers, **ABOUT})
    peaks = dict.fromkeys(numbers["ms_an_image"], 3 * 2**29)
    page = performance.section("step", {**numbers, **ABOUT, "peak_bytes": peaks})
    assert page.count("| 1.50 |") == len(step.STEPS)
    assert "| GiB beside weights and gradients |" in page


def test_roof_counts_operations_per_second(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that gives every way a millisecond."""
    roof = load_script("bench/roof")
    monkeypatch.setattr(roof, "SIDE", 16)
    monkeypatch.setattr(roof, "CONVOLUTIONS", ((4, 3),))
    monkeypatch.setattr(roof, "multiply_and_add", lambda: 5e6)
    monkeypatch.setattr(roof, "interleave", lambda ways, *_: dict.fromkeys(ways, [1e-3] * 2))
    gflops = roof.main(rounds=2)["gflops"]["float32"]
    assert gflops["a product of matrices"] == pytest.approx(2 * 16**3 / 1e6)
    if roof.DEVICE == "cpu":
        convolution = 2 * 8 * 9 * 4 * 4 * 3 * 3 / 1e6
        assert gflops["a 3x3 convolution of 4 channels, NCHW"] == pytest.approx(convolution)
        assert gflops["a loop of fused multiply-adds"] == pytest.approx(5.0)
    page = load_script("performance").section("roof", {"gflops": {"float32": gflops}, **ABOUT})
    assert page.count("\n| ") == 1 + len(gflops)


@pytest.fixture
def pipeline(bench: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if reason := jpeg.unavailable_reason():
        pytest.skip(reason)
    module = load_script("bench/pipeline")
    monkeypatch.setattr(module, "PHOTOS", 4)
    monkeypatch.setattr(module, "BATCH", 2)
    return module


def test_shards_of_the_pipeline_hold_the_pixels_of_its_files(
    pipeline: ModuleType, tmp_path: Path
) -> None:
    pipeline.write_photos(tmp_path / "photos")
    files = pipeline.folder(str(tmp_path / "photos"))
    shards = pipeline.write_shards(tmp_path / "photos", tmp_path / "prepared", times=2)
    assert (len(files.train.labels), len(shards.train.labels)) == (4, 8)
    for index in range(8):
        assert np.array_equal(shards.train.image(index), files.train.image(index % 4))


def test_every_way_of_the_pipeline_reads_an_epoch(pipeline: ModuleType, tmp_path: Path) -> None:
    pipeline.write_photos(tmp_path)
    sizes: list[torch.Size] = []

    def drain(loader: DataLoader) -> None:
        for batch in loader:
            images = batch.images if hasattr(batch, "images") else batch[0]
            sizes.append(images.shape)

    pipeline.drain = drain
    ways = pipeline.torchvisions(tmp_path / "train")
    ways["ours"] = pipeline.ours(pipeline.folder(str(tmp_path)))
    for way in ways.values():
        way()
    assert sizes == [(2, 3, 224, 224)] * 2 * len(ways)
