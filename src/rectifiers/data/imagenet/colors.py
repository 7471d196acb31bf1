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
    count, sums = images * side**2, total.sum((1, 2)).tolist()
    # In integers as far as possible: count^2 cov = count sum(xy) - sum(x) sum(y). Python's have no
    # limit.
    means = np.array(sums, object)
    scaled = count * products.astype(object) - np.outer(means, means)
    covariance = (scaled / (count * 255) ** 2).astype(float)
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    vectors = vectors * np.sign((vectors * COLOR_VECTORS).sum(0))  # nearer to the quoted vector
    statistics = {
        "data": split.digest(),
        "resize_px": geometry.resize_px,
        "crop_px": side,
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
            "eigenvalues": (values.round(DIGITS) + 0.0).tolist(),
            "eigenvectors": (vectors.round(DIGITS) + 0.0).tolist(),
        },
        "quoted_for_imagenet": {
            "eigenvalues": COLOR_VALUES.tolist(),
            "eigenvectors": COLOR_VECTORS.tolist(),
        },
    }
    return statistics, total / (images * 255)
