"""Colour statistics of a training split: the mean image, and mean, spread and principal components
of RGB."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from rectifiers.data.imagenet.preparation import map_in_order
from rectifiers.data.splits import Split
from rectifiers.data.transforms import (
    COLOR_VALUES,
    COLOR_VECTORS,
    Geometry,
    Reader,
    center_plan,
)
from rectifiers.runtime.errors import InputError

# of the pinned eigenvalues and eigenvectors; an eigensolver's last bits differ between machines
DIGITS = 9


def measure_colors(
    split: Split, geometry: Geometry, threads: int, on_image: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], np.ndarray]:
    """Return (statistics, mean image) of the centre crops of a split, RGB with white at 1.

    The mean image is float64 [3, crop, crop]. All sums are of integers, so neither threads nor
    machines change them. The covariance is that of the RGB values of single pixels over all crops,
    with its eigenvalues (variances, descending), its eigenvectors (columns; rows R, G, B) and the
    constants commonly quoted for ImageNet. Every statistic names its number of images.

    Raises:
        InputError: for an image that cannot be read.
    """
    images = len(split.labels)
    total = np.zeros((3, geometry.crop_px, geometry.crop_px), np.int64)
    products = np.zeros((3, 3), np.int64)

    reader, plan_for = Reader(split), partial(center_plan, geometry)

    def center(index: int) -> np.ndarray:
        views = torch.empty(1, 3, geometry.crop_px, geometry.crop_px, dtype=torch.uint8)
        (plan,) = reader.read([index], [plan_for], views)
        if isinstance(plan, InputError):
            raise plan
        return views[0].numpy()

    for crop in map_in_order(center, range(images), threads):
        total += crop
        pixels = crop.reshape(3, -1).astype(np.float64)
        products += (pixels @ pixels.T).astype(np.int64)  # exact: below 2^53
        on_image()
    count = images * geometry.crop_px**2
    sums = [int(channel.sum()) for channel in total]
    # In integers as far as possible: count^2 cov = count sum(xy) - sum(x) sum(y).
    covariance = np.array(
        [
            [
                (count * int(products[a, b]) - sums[a] * sums[b]) / (count * 255) ** 2
                for b in range(3)
            ]
            for a in range(3)
        ]
    )
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    vectors = vectors * np.sign(
        (vectors * COLOR_VECTORS).sum(0)
    )  # the sign nearer to the quoted vector
    statistics = {
        "data": split.digest(),
        "resize_px": geometry.resize_px,
        "crop_px": geometry.crop_px,
        "mean_image": {"images": images},
        "channels": {
            "images": images,
            "pixels": count,
            "mean": [part / (count * 255) for part in sums],
            "std": np.sqrt(covariance.diagonal()).tolist(),
        },
        "rgb_covariance": {
            "images": images,
            "pixels": count,
            "matrix": covariance.tolist(),
            "eigenvalues": _rounded(values),
            "eigenvectors": _rounded(vectors),
        },
        "quoted_for_imagenet": {
            "eigenvalues": COLOR_VALUES.tolist(),
            "eigenvectors": COLOR_VECTORS.tolist(),
        },
    }
    return statistics, total / (images * 255)


def _rounded(numbers: np.ndarray) -> list:
    return (np.round(numbers, DIGITS) + 0.0).tolist()
