"""The statistics of a training split, against numpy's on the same pixels."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenet.colors import measure_colors
from rectifiers.data.sources import ArraySplit
from rectifiers.data.transforms import (
    COLOR_VALUES,
    COLOR_VECTORS,
    Geometry,
    apply_plan,
    center_plan,
)
from rectifiers.runtime.errors import InputError


def test_colors_are_those_of_centre_crops(prepared: Path) -> None:
    split, geometry = imagenet(str(prepared)).train, Geometry(72, 64, flip=False)
    found, mean = measure_colors(split, geometry, threads=2)
    plans = [center_plan(geometry, split.shape(i)) for i in range(72)]
    crops = (
        np.stack([apply_plan(plan, split.image(i)).numpy() for i, plan in enumerate(plans)]).astype(
            np.float64
        )
        / 255
    )
    assert np.allclose(mean, crops.mean(0), rtol=0, atol=1e-14)
    pixels = crops.transpose(1, 0, 2, 3).reshape(3, -1)
    assert found["channels"]["mean"] == pytest.approx(pixels.mean(1), abs=1e-13)
    assert found["channels"]["std"] == pytest.approx(pixels.std(1), abs=1e-12)
    matrix = np.array(found["rgb_covariance"]["matrix"])
    assert np.allclose(matrix, np.cov(pixels, bias=True), rtol=0, atol=1e-12)
    values, vectors = (
        np.array(found["rgb_covariance"][key]) for key in ("eigenvalues", "eigenvectors")
    )
    assert np.allclose(vectors * values @ vectors.T, matrix, atol=1e-8)
    assert (np.diff(values) <= 0).all()
    assert [found[key]["images"] for key in ("mean_image", "channels", "rgb_covariance")] == [
        72
    ] * 3
    assert found["channels"]["pixels"] == found["rgb_covariance"]["pixels"] == 72 * 64 * 64
    assert found["quoted_for_imagenet"]["eigenvalues"] == COLOR_VALUES.tolist()


def test_the_number_of_threads_changes_no_bit(prepared: Path) -> None:
    split, geometry = imagenet(str(prepared)).train, Geometry(72, 64, flip=False)
    one, mean_of_one = measure_colors(split, geometry, threads=1)
    three, mean_of_three = measure_colors(split, geometry, threads=3)
    assert one == three
    assert (mean_of_one == mean_of_three).all()


def test_unreadable_image_is_named(prepared: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(prepared, tmp_path / "copied"))
    shard = root / "train" / "shard-00001.bin"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(InputError, match=r"image \d+ of .*train \(shard-00001\.bin from byte 0\)"):
        measure_colors(imagenet(str(root)).train, Geometry(72, 64, flip=False), threads=2)


def test_images_drawn_from_the_quoted_components_reproduce_them() -> None:
    """20,000 pixels of N(1/2, V diag(values) V' / 16): an eigenvalue is off by more than 5 % once
    in 10^6 draws."""
    import torch

    draw = np.random.default_rng(0).standard_normal((3, 20000)) * np.sqrt(COLOR_VALUES)[:, None] / 4
    pixels = (
        (127.5 + 255 * COLOR_VECTORS @ draw)
        .round()
        .clip(0, 255)
        .astype(np.uint8)
        .reshape(3, 100, 200)
    )
    images = torch.from_numpy(np.stack([pixels[:, :, :100], pixels[:, :, 100:]]))
    found, _ = measure_colors(ArraySplit(images, [0, 1]), Geometry(100, 100, flip=False), threads=1)
    assert np.array(found["rgb_covariance"]["eigenvalues"]) * 16 == pytest.approx(
        COLOR_VALUES, rel=0.05
    )
    expected = COLOR_VECTORS
    assert np.array(found["rgb_covariance"]["eigenvectors"]) == pytest.approx(expected, abs=0.05)
