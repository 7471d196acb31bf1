"""Spatial pyramid pooling (He et al. 2014): a map of any size becomes a vector of fixed length."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def spans(side: int, n: int) -> list[tuple[int, int]]:
    """Return [start, stop) of each of `n` bins over `side` positions: floor(i side / n) to ceil((i + 1) side / n)."""
    return [(i * side // n, -(-(i + 1) * side // n)) for i in range(n)]


class SpatialPyramid(nn.Module):
    """Max pooling into n x n bins a level, [N, C, H, W] -> [N, C * sum(n^2)].

    Bin i of n spans floor(i H / n) to ceil((i + 1) H / n), the rule of the authors' released pooling code; it is what
    `adaptive_max_pool2d` computes, for any map size, also one smaller than n.
    DEVIATION: SPP-net trains with windows of ceil(H / n) and strides of floor(H / n); one rule in training and testing
    makes both the same function (the two agree on the paper's 18 x 18 maps).
    """

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = tuple(levels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.adaptive_max_pool2d(x, n).flatten(1) for n in self.levels], dim=1)

    def extra_repr(self) -> str:
        return f"levels={self.levels}"
