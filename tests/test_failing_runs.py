"""A run that fails ends: with its sentence, an exit status that is not 0, and no process left behind."""

import sys
from pathlib import Path

import pytest
import torch

from photos import jpeg, photo
from processes import alone, finish, start, weights

LONGEST_S = 60  # far more than a run takes that fails, and far less than forever
SMALL = ("data=folder", "model=mini", "activation=relu", "optim.global_batch=4", "optim.epochs=1", "logger=none")


def photos(place: Path) -> Path:
    """Two classes of four images for training and for validation."""
    for part in ("train", "val"):
        for group in "ab":
            (place / part / group).mkdir(parents=True)
            for i in range(4):
                (place / part / group / f"{i}.jpg").write_bytes(jpeg(photo(40, 48, i)))
    return place


def refused(command: list[str]) -> str:
    """Run a command that must fail, and return what it says; its pipes close when its last process has ended."""
    process = start(command)
    _, said = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 1, said
    return said


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("part", ["train", "val"])
def test_an_image_that_cannot_be_read_ends_the_run(tmp_path: Path, part: str, workers: int) -> None:
    root = photos(tmp_path / "photos")
    (root / part / "b" / "2.jpg").write_bytes(b"")
    said = refused(alone(tmp_path, *SMALL, f"data.root={root}", f"compute.workers={workers}"))
    assert "2.jpg cannot be read as an image" in said


@pytest.mark.process
def test_an_image_that_cannot_be_read_ends_the_testing_of_weights(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    finish(alone(tmp_path, *SMALL, f"data.root={root}"))
    torch.save({key.removeprefix("network."): value for key, value in weights(tmp_path).items()}, tmp_path / "net.pt")
    (root / "val" / "b" / "2.jpg").write_bytes(b"")
    of_weights = [f"run={tmp_path}/net.pt", *SMALL[:3], f"data.root={root}", f"cache_dir={tmp_path}"]
    assert "2.jpg cannot be read" in refused([sys.executable, "scripts/evaluate.py", *of_weights, "compute.workers=2"])
