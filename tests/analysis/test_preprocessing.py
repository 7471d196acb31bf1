"""Preprocessing as pictures: what the components are, what is rebuilt from them, and what whitening
does."""

import pytest
import torch

from conftest import compose_config
from rectifiers.analysis.preprocessing import analyse, whitened
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.data.preprocess import PixelMoments, eigenbasis


def made(tmp_path, *more: str, **settings):
    sizes = ("data.resize_px=8", "data.crop_px=8") if not more else ()
    config = compose_config("model=mlp", *sizes, f"cache_dir={tmp_path}", *more)
    return analyse(config, **{"components": [1, 10, 64], **settings})


def test_all_components_rebuild_the_images(tmp_path) -> None:
    numbers = made(tmp_path)
    pictures = numbers["pictures"]
    torch.testing.assert_close(pictures["from_64"], pictures["originals"])
    assert numbers["error"]["1"] > numbers["error"]["10"] > 0.01 > numbers["error"]["64"]
    assert numbers["explained"]["64"] == pytest.approx(1)
    assert numbers["explained"]["1"] == pytest.approx(
        numbers["eigenvalues"][0] / sum(numbers["eigenvalues"])
    )
    assert pictures["components"].shape == (36, 1, 8, 8)
    gram = pictures["components"].flatten(1) @ pictures["components"].flatten(1).T
    torch.testing.assert_close(gram, torch.eye(36, dtype=torch.float64))


def test_whitened_images_have_unit_covariance(tmp_path) -> None:
    setup = AnalysisSetup(
        compose_config("model=mlp", "data.resize_px=8", "data.crop_px=8", f"cache_dir={tmp_path}")
    )
    moments = PixelMoments(setup.data.statistics_batches)
    values, rows = eigenbasis(moments)
    images = torch.cat(list(setup.data.statistics_batches())).double() / 255
    coordinates = (images - moments.mean).flatten(1) @ rows.T
    white = whitened(coordinates, values, rows, 1e-9) @ rows.T
    covariance = white.T @ white / len(white)
    clear = values > 1e-4
    torch.testing.assert_close(
        covariance[clear][:, clear],
        torch.eye(int(clear.sum()), dtype=torch.float64),
        atol=1e-4,
        rtol=0,
    )
