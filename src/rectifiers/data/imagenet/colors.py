"""Colour statistics of a training split: the mean image, and mean, spread and principal components
of RGB."""

import numpy as np

from rectifiers.data.datamodule import CenterDataset
from rectifiers.data.imagenet.prepare import map_in_order
from rectifiers.data.sources import Source
from rectifiers.data.splits import Split
from rectifiers.data.transforms import COLOR_VALUES, COLOR_VECTORS, Geometry
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.schema import JsonObject

BATCH = 64  # images that a thread reads at a time
WHITE = 255
# of the pinned eigenvalues and eigenvectors; an eigensolver's last bits differ between machines
DIGITS = 9


def measure_colors(split: Split, geometry: Geometry, threads: int) -> tuple[JsonObject, np.ndarray]:
    """Return (statistics, mean image) of the centre crops of a split, RGB with white at 1.

    The mean image is float64 [3, crop, crop]. All sums are of integers, so neither threads nor
    machines change them. The covariance is that of the RGB values of single pixels over all crops,
    with its eigenvalues (variances, descending), its eigenvectors (columns; rows R, G, B) and the
    constants commonly quoted for ImageNet. Every statistic names its number of images.
    """
    images, side = len(split.labels), geometry.crop_px
    source = Source("statistics", (), 3, split, split)
    views = CenterDataset(source, "train", geometry, skip_bad=False)

    places = range(images)
    batches = [places[start : start + BATCH] for start in places[::BATCH]]
    total, products = np.zeros((3, side, side), np.int64), np.zeros((3, 3), np.int64)
    with progress_bar("statistics", images) as advance:
        for batch in map_in_order(views.batch, batches, threads):
            crops = batch.images
            total += crops.sum(0).numpy()
            pixels = crops.transpose(0, 1).flatten(1).double()
            products += (pixels @ pixels.T).numpy().astype(np.int64)  # exact: below 2^53
            advance(len(crops))

    num_pixels, sums = images * side**2, total.sum((1, 2)).tolist()
    covariance = _covariance(num_pixels, sums, products)
    values, vectors = _eigenbasis(covariance)
    statistics = {
        "data": split.digest(),
        "resize_px": geometry.resize_px,
        "crop_px": side,
        "mean_image": {"images": images},
        "channels": {
            "images": images,
            "pixels": num_pixels,
            "mean": [part / (num_pixels * WHITE) for part in sums],
            "std": np.sqrt(covariance.diagonal()).tolist(),
        },
        "rgb_covariance": {
            "images": images,
            "pixels": num_pixels,
            "matrix": covariance.tolist(),
            "eigenvalues": values.tolist(),
            "eigenvectors": vectors.tolist(),
        },
        "quoted_for_imagenet": {
            "eigenvalues": COLOR_VALUES.tolist(),
            "eigenvectors": COLOR_VECTORS.tolist(),
        },
    }
    return statistics, total / (images * WHITE)


def _covariance(count: int, sums: list[int], products: np.ndarray) -> np.ndarray:
    """Return the covariance [3, 3] of RGB with white at 1, from sums over `count` pixels.

    sums: of each channel. products: of each pair of channels, int64 [3, 3]. All is computed in
    integers up to the last division: count^2 cov(x, y) = count sum(xy) - sum(x) sum(y)."""
    by_channel = np.array(sums, object)  # Python's integers have no limit
    scaled = count * products.astype(object) - np.outer(by_channel, by_channel)
    return (scaled / (count * WHITE) ** 2).astype(float)


def _eigenbasis(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues, descending, and the eigenvectors as columns, rounded."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    # an eigenvector may have either sign: the one that is nearer to the quoted vector
    signs = np.sign((vectors * COLOR_VECTORS).sum(0))
    # 0 is added because -0.0 would be written as such
    return values.round(DIGITS) + 0.0, (vectors * signs).round(DIGITS) + 0.0
