"""A checkpoint file is what was written, or is not used."""

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import same_bits
from rectifiers.runtime.errors import InputError
from rectifiers.training.checkpoints import LAST, PREVIOUS, AtomicCheckpointIO, newest


def checkpoint(value: float) -> dict[str, Any]:
    weights = torch.full((4, 3), value)
    own = {"run": "abc", "codes": ["x"], "history": [{"epoch": 1, "train_loss": value}]}
    return {"state_dict": {"weight": weights, "bias": torch.arange(3.0)}, "rectifiers": own}


@pytest.mark.process
def test_changed_byte_is_found_or_harmless(tmp_path: Path) -> None:
    """Every byte of the zip's directory, and every seventh before it."""
    path, right = tmp_path / LAST, checkpoint(0.5)
    AtomicCheckpointIO().save_checkpoint(right, path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as parts:
        directory = parts.start_dir
    draw, tried, found = random.Random(0), 0, 0
    for place in (*range(0, directory, 7), *range(directory, len(whole))):
        changes = {1 << draw.randrange(8)} | ({0xFF} if place >= directory else set())
        for changed in changes:
            content = bytearray(whole)
            content[place] ^= changed
            path.write_bytes(content)
            tried += 1
            try:
                read = AtomicCheckpointIO().load_checkpoint(path)
            except InputError:
                found += 1
                continue
            assert same_bits(read["state_dict"], right["state_dict"]), (place, changed)
            assert read["rectifiers"] == right["rectifiers"], (place, changed)
    assert tried / 3 < found < tried  # the others are of times, paddings and the like


@pytest.mark.parametrize("place", ["weights", "directory", "half of it"])
def test_previous_replaces_a_damaged_checkpoint(tmp_path: Path, capfd, place: str) -> None:
    for value in (0.25, 0.5):
        AtomicCheckpointIO().save_checkpoint(checkpoint(value), tmp_path / LAST)
    content = bytearray((tmp_path / LAST).read_bytes())
    weight = content.index(torch.full((4, 3), 0.5).numpy().tobytes())
    if place == "half of it":
        del content[len(content) // 2 :]
    else:
        content[weight if place == "weights" else content.rindex(b"archive/data/0")] ^= 1
    (tmp_path / LAST).write_bytes(content)
    assert newest(tmp_path) == tmp_path / PREVIOUS
    previous = AtomicCheckpointIO().load_checkpoint(tmp_path / PREVIOUS)
    assert previous["rectifiers"] == checkpoint(0.25)["rectifiers"]
    assert "last.ckpt cannot be read (" in capfd.readouterr().err
    assert (tmp_path / "last.ckpt.damaged").read_bytes() == content
