"""What a training split says of its pixels: the mean image, and mean, spread and principal components of RGB."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from rectifiers.data.parallel import in_order
from rectifiers.data.reading import Reader
from rectifiers.data.sources import Split
from rectifiers.data.transforms import COLOR_VALUES, COLOR_VECTORS, Geometry, center_plan
from rectifiers.runtime.errors import InputError

DIGITS = 9  # of what comes out of an eigensolver, whose last bits differ between machines; the file is pinned


def measure_colors(
    split: Split, geometry: Geometry, threads: int, on_image: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], np.ndarray]:
    """Return (statistics, mean image) of the centre crops of a split, RGB with white at 1.

    The mean image is float64 [3, crop, crop]. All sums are of integers, so neither threads nor machines can change
    them. The covariance is that of the RGB values of single pixels over all crops; the constants that everybody quotes
    for ImageNet stand beside its eigenvalues (variances, descending) and eigenvectors (columns, rows R, G, B). Each
    says how many images went in.

    Raises:
        InputError: for an image that cannot be read.
    """
    images = len(split.labels)
    total = np.zeros((3, geometry.crop_px, geometry.crop_px), np.int64)
    products = np.zeros((3, 3), np.int64)

    reader, plan_for = Reader(split), partial(center_plan, geometry)

    def center(index: int) -> np.ndarray:
        views = torch.empty(1, 3, geometry.crop_px, geometry.crop_px, dtype=torch.uint8)
        (found,) = reader.read([index], [plan_for], views)
        if isinstance(found, InputError):
            raise found
        return views[0].numpy()

    for crop in in_order(center, range(images), threads):
        total += crop
        pixels = crop.reshape(3, -1).astype(np.float64)
        products += (pixels @ pixels.T).astype(np.int64)  # exact: below 2^53
        on_image()
    count = images * geometry.crop_px**2
    sums = [int(channel.sum()) for channel in total]
    # In whole numbers as far as it goes: count^2 cov = count sum(xy) - sum(x) sum(y).
    covariance = np.array(
        [[(count * int(products[a, b]) - sums[a] * sums[b]) / (count * 255) ** 2 for b in range(3)] for a in range(3)]
    )
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    vectors = vectors * np.sign((vectors * COLOR_VECTORS).sum(0))  # the sign that is nearer to the quoted one
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
        "quoted_for_imagenet": {"eigenvalues": COLOR_VALUES.tolist(), "eigenvectors": COLOR_VECTORS.tolist()},
    }
    return statistics, total / (images * 255)


def _rounded(numbers: np.ndarray) -> list:
    return (np.round(numbers, DIGITS) + 0.0).tolist()
