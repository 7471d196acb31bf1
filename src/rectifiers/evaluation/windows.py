"""Scores of every window of a map, without cutting the windows out.

A bin of the pyramid has the same offset and extent in every window, so one stride-1 maximum over the whole map gives
that bin for all windows at once; only the fully connected layers work window by window.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.nn.networks.pyramid import SpatialPyramid, bin_edges

CHUNK_BYTES = 64 * 2**20  # of features at a time: bounds the memory, whatever the size of the image


def mean_window_scores(head: nn.Sequential, maps: Tensor, window: int) -> Tensor:
    """Return the mean softmax over all `window` x `window` windows of maps [N, C, H, W], stride 1: [N, classes].

    head: a SpatialPyramid or Flatten, then layers on vectors. Equal to pooling and scoring each window on its own.
    """
    first, rest = head[0], head[1:]
    rows, columns = maps.shape[-2] - window + 1, maps.shape[-1] - window + 1
    features = (
        _PyramidFeatures(first, maps, window) if isinstance(first, SpatialPyramid) else _FlatFeatures(maps, window)
    )
    row_bytes = len(maps) * columns * features.size * maps.element_size()
    step = max(1, CHUNK_BYTES // row_bytes)
    total: Tensor | float = 0.0
    for top in range(0, rows, step):
        scores = rest(features.rows(top, min(step, rows - top)).flatten(0, 2))
        total = total + scores.float().softmax(dim=1).unflatten(0, (len(maps), -1)).sum(dim=1)
    return cast(Tensor, total) / (rows * columns)


class _PyramidFeatures:
    """The pyramid's features of all windows, from one maximum per distinct bin size; `size` of them per window."""

    def __init__(self, pyramid: SpatialPyramid, maps: Tensor, window: int) -> None:
        self.levels = [bin_edges(window, n) for n in pyramid.levels]
        self.columns = maps.shape[-1] - window + 1
        self.size = maps.shape[1] * sum(n * n for n in pyramid.levels)
        extents = {stop - start for level in self.levels for start, stop in level}
        tall = {extent: F.max_pool2d(maps, (extent, 1), stride=1) for extent in extents}
        bin_sizes = {(b - a, d - c) for level in self.levels for a, b in level for c, d in level}
        self.maxima = {(high, wide): F.max_pool2d(tall[high], (1, wide), stride=1) for high, wide in bin_sizes}

    def rows(self, top: int, count: int) -> Tensor:
        """Return the features of the windows whose top is in [top, top + count): [N, count, columns, size]."""
        levels = []
        for level in self.levels:
            bins = [
                self.maxima[b - a, d - c][:, :, top + a : top + a + count, c : c + self.columns]
                for a, b in level
                for c, d in level
            ]
            levels.append(torch.stack(bins, dim=2).flatten(1, 2))  # channels first, then bins, as in SpatialPyramid
        return torch.cat(levels, dim=1).permute(0, 2, 3, 1)


class _FlatFeatures:
    """The windows themselves as features, for a head without a pyramid."""

    def __init__(self, maps: Tensor, window: int) -> None:
        self.windows = maps.unfold(2, window, 1).unfold(3, window, 1)  # [N, C, rows, columns, window, window], a view
        self.size = maps.shape[1] * window**2

    def rows(self, top: int, count: int) -> Tensor:
        return self.windows[:, :, top : top + count].permute(0, 2, 3, 1, 4, 5).flatten(3)
