"""Scores of every window of a map, without cutting the windows out.

A bin of the pyramid has the same offset and extent in every window, so one stride-1 maximum over
the whole map gives that bin for all windows at once; only the fully connected layers work window by
window."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.models.network import SpatialPyramid, bin_edges

CHUNK_BYTES = 64 * 2**20  # of features at a time: bounds the memory, whatever the size of the image


def mean_window_scores(head: nn.Sequential, maps: Tensor, window: int) -> Tensor:
    """Return the mean softmax over all `window` x `window` windows of maps [N, C, H, W], stride 1:
    [N, classes].

    head: a SpatialPyramid or Flatten, then layers on vectors. Equal to pooling and scoring each
    window on its own."""
    first, rest = head[0], head[1:]
    rows, columns = maps.shape[-2] - window + 1, maps.shape[-1] - window + 1
    if isinstance(first, SpatialPyramid):
        bins, features = sum(n * n for n in first.levels), _pyramid_features(first, maps, window)
    else:
        bins, cut = (
            window**2,
            maps.unfold(2, window, 1).unfold(3, window, 1),
        )  # [N, C, rows, columns, ...]: a view

        def features(top: int, count: int) -> Tensor:
            return cut[:, :, top : top + count].permute(0, 2, 3, 1, 4, 5).flatten(3)

    step = max(1, CHUNK_BYTES // (len(maps) * columns * maps.shape[1] * bins * maps.element_size()))
    total = torch.zeros((), device=maps.device)
    for top in range(0, rows, step):
        scores = rest(features(top, min(step, rows - top)).flatten(0, 2))
        total = total + scores.float().softmax(dim=1).unflatten(0, (len(maps), -1)).sum(dim=1)
    return total / (rows * columns)


def _pyramid_features(
    pyramid: SpatialPyramid, maps: Tensor, window: int
) -> Callable[[int, int], Tensor]:
    """Return a function that gives the pyramid's features of `count` rows of windows from `top` on.

    The features are [N, count, columns, size], from one maximum over the map per distinct size of a
    bin."""
    levels = [bin_edges(window, n) for n in pyramid.levels]
    columns = maps.shape[-1] - window + 1
    tall = {
        high: F.max_pool2d(maps, (high, 1), stride=1)
        for high in {b - a for level in levels for a, b in level}
    }
    sizes = {(b - a, d - c) for level in levels for a, b in level for c, d in level}
    maxima = {(high, wide): F.max_pool2d(tall[high], (1, wide), stride=1) for high, wide in sizes}

    def features(top: int, count: int) -> Tensor:
        parts = []
        for level in levels:
            edges = [(a, b, c, d) for a, b in level for c, d in level]
            bins = [
                maxima[b - a, d - c][:, :, top + a : top + a + count, c : c + columns]
                for a, b, c, d in edges
            ]
            parts.append(
                torch.stack(bins, dim=2).flatten(1, 2)
            )  # channels first, then bins, as in SpatialPyramid
        return torch.cat(parts, dim=1).permute(0, 2, 3, 1)

    return features
