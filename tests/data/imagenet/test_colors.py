"""The statistics of a training split, against numpy's on the same pixels."""

from pathlib import Path

import numpy as np
import pytest

from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenet.colors import measure_colors
from rectifiers.data.transforms import (
    COLOR_VALUES,
    Geometry,
    apply_plan,
    center_plan,
)


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
