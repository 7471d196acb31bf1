"""Spatial pyramid pooling (He et al. 2014): a map of any size becomes a vector of fixed length."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def bin_edges(side: int, n: int) -> list[tuple[int, int]]:
    """Return [start, stop) of each of `n` bins over `side` positions: floor(i side / n) to ceil((i
    + 1) side / n)."""
    return [(i * side // n, -(-(i + 1) * side // n)) for i in range(n)]


class SpatialPyramid(nn.Module):
    """Max pooling into n x n bins per level n, [N, C, H, W] -> [N, C * sum(n^2)].

    Bin i of n spans floor(i H / n) to ceil((i + 1) H / n), the rule of the authors' released
    pooling code; it is what `adaptive_max_pool2d` computes, for any map size, even one smaller than
    n.
    DEVIATION: SPP-net trains with windows of ceil(H / n) and strides of floor(H / n); one rule in
    training and testing makes both the same function (the two agree on the paper's 18 x 18 maps).
    """

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = tuple(levels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([_Level.apply(x, n).flatten(1) for n in self.levels], dim=1)

    def extra_repr(self) -> str:
        return f"levels={self.levels}"


class _Level(torch.autograd.Function):
    """`adaptive_max_pool2d` with a deterministic gradient, on CUDA too.

    Bins overlap where n does not divide the side, and torch's CUDA kernel adds their gradients in
    the order in which its threads arrive. Here one bin is added after the other; on a CPU the bits
    equal those of torch's own kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int) -> Tensor:
        pooled, positions = F.adaptive_max_pool2d(x, n, return_indices=True)
        ctx.save_for_backward(positions)
        ctx.sides = x.shape[-2:]
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (positions,), (gradient,) = ctx.saved_tensors, gradients
        flat = gradient.new_zeros(*gradient.shape[:2], ctx.sides.numel())
        for bin_positions, bin_gradient in zip(
            positions.flatten(2).split(1, 2), gradient.flatten(2).split(1, 2), strict=True
        ):
            flat.scatter_add_(
                2, bin_positions, bin_gradient
            )  # one address per channel: the order is fixed
        return flat.unflatten(2, ctx.sides), None
