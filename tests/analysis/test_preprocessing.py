"""Preprocessing as pictures: what the components are, and what is rebuilt from them."""

import pytest
import torch

from conftest import compose_config
from rectifiers.analysis.preprocessing import analyse


def test_all_components_rebuild_the_images(tmp_path) -> None:
    sizes = ("data.resize_px=8", "data.crop_px=8", f"cache_dir={tmp_path}")
    numbers = analyse(compose_config("model=mlp", *sizes), components=[1, 10, 64])
    pictures = numbers["pictures"]
    torch.testing.assert_close(pictures["from_64"], pictures["originals"])
    assert numbers["error"]["1"] > numbers["error"]["10"] > 0.01 > numbers["error"]["64"]
    assert numbers["explained"]["64"] == pytest.approx(1)
    expected = numbers["eigenvalues"][0] / sum(numbers["eigenvalues"])
    assert numbers["explained"]["1"] == pytest.approx(expected)
    assert pictures["components"].shape == (36, 1, 8, 8)
    gram = pictures["components"].flatten(1) @ pictures["components"].flatten(1).T
    torch.testing.assert_close(gram, torch.eye(36, dtype=torch.float64))
