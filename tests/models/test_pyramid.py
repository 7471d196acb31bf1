import math

import pytest
import torch
import torch.nn.functional as F

from rectifiers.models.network import SpatialPyramid


@pytest.mark.parametrize("side", [(18, 18), (14, 14), (13, 17), (2, 2), (1, 5)])
def test_bins_span_floor_to_ceil(side: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *side, generator=torch.Generator().manual_seed(0))
    levels = [6, 3, 2, 1]
    bins = []
    for n in levels:
        level = torch.empty(2, 3, n, n)
        for i in range(n):
            for j in range(n):
                rows = slice(math.floor(i * side[0] / n), math.ceil((i + 1) * side[0] / n))
                columns = slice(math.floor(j * side[1] / n), math.ceil((j + 1) * side[1] / n))
                level[:, :, i, j] = x[:, :, rows, columns].amax((-2, -1))
        bins.append(level.flatten(1))
    assert torch.equal(SpatialPyramid(levels)(x), torch.cat(bins, dim=1))
    assert torch.cat(bins, dim=1).shape == (2, 50 * 3)


@pytest.mark.parametrize("side", [(14, 14), (5, 4), (2, 1)])
def test_the_gradient_is_that_of_adaptive_max_pooling(side: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *side, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = SpatialPyramid([3, 2])(x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    theirs = torch.cat([F.adaptive_max_pool2d(x, n).flatten(1) for n in (3, 2)], dim=1)
    ours, expected = (torch.autograd.grad(out, x, weights)[0] for out in (y, theirs))
    assert torch.equal(ours, expected)


def test_the_gradient_has_a_gradient() -> None:
    x = torch.randn(
        1,
        2,
        4,
        5,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
        requires_grad=True,
    )
    assert torch.autograd.gradcheck(SpatialPyramid([3, 1]), x)
    assert torch.autograd.gradgradcheck(SpatialPyramid([3, 1]), x)
