"""The measurements of speed, and the page that is made of them."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from conftest import ROOT, load_script
from rectifiers.data import jpeg


@pytest.fixture
def bench(monkeypatch) -> Path:
    """The folder of the benches, which import each other by name."""
    folder = ROOT / "studies" / "bench"
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def pipeline(bench: Path, monkeypatch) -> ModuleType:
    if reason := jpeg.unavailable_reason():
        pytest.skip(reason)
    module = load_script("studies/bench/pipeline")
    monkeypatch.setattr(module, "PHOTOS", 4)
    monkeypatch.setattr(module, "BATCH", 2)
    return module


def test_shards_hold_the_pixels_of_the_files(pipeline: ModuleType, tmp_path: Path) -> None:
    pipeline.write_photos(tmp_path / "photos")
    files = pipeline.folder(str(tmp_path / "photos"))
    shards = pipeline.prepared_source(tmp_path / "photos", tmp_path)
    assert (len(files.train.labels), len(shards.train.labels)) == (4, 4)
    for index in range(4):
        assert np.array_equal(shards.train.image(index), files.train.image(index))


def test_every_pipeline_reads_an_epoch(pipeline: ModuleType, tmp_path: Path) -> None:
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


def test_processors_of_one_name_have_own_files(bench: Path, tmp_path: Path, monkeypatch) -> None:
    harness, performance = (load_script(f"studies/{n}") for n in ("bench/harness", "performance"))
    for module in (harness, performance):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    numbers = {"rounds": 2, "gflops": {"float32": {"a product of matrices": 1.0}}}
    for generation in ("25-17", "26-2", ""):  # the last: a system that does not say
        monkeypatch.setattr(harness, "generation", lambda generation=generation: generation)
        harness.publish("roof", numbers, "cpu")
    assert len(list(tmp_path.iterdir())) == 3
    headings = [line for line in performance.document().splitlines() if line.startswith("## ")]
    assert len(set(headings)) == 3
