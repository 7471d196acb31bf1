"""Views of images in memory are drawn a batch at once, and are those that would be drawn one by
one."""

import numpy as np
import pytest
import torch
from scipy import stats

from rectifiers.data.sources import ArraySplit
from rectifiers.data.transforms import (
    ArrayViews,
    Geometry,
    apply_plan,
    center_plan,
    draw_numbers,
    draw_plan,
)

GEOMETRIES = [
    Geometry(36, 32, True),
    Geometry(9, 7, False),
    Geometry(12, 12, True),
    Geometry(20, 15, True, color_sigma=0.1),
    Geometry(9, 9, True, pad_px=2),
    Geometry(10, 8, False, pad_px=1),
]


@pytest.fixture
def split() -> ArraySplit:
    generator = torch.Generator().manual_seed(0)
    return ArraySplit(
        torch.randint(0, 256, (40, 3, 9, 12), dtype=torch.uint8, generator=generator), [0, 1] * 20
    )


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_batch_is_drawn_as_single_images(split: ArraySplit, geometry: Geometry) -> None:
    views, indices = ArrayViews.of(split, geometry), [7, 39, 0, 7, 21]
    assert views is not None
    for epoch in (0, 5):
        images, shifts = views.augmented(3, epoch, indices)
        plans = [draw_plan(geometry, 3, epoch, index, split.shape(index)) for index in indices]
        for image, plan, index in zip(images, plans, indices, strict=True):
            assert torch.equal(image, apply_plan(plan, split.image(index)))
        if geometry.color_sigma:
            expected = np.array([plan.shift for plan in plans], dtype=np.float32)
            assert torch.equal(shifts, torch.from_numpy(expected))
        else:
            assert shifts is None
    for image, index in zip(views.centered(indices), indices, strict=True):
        assert torch.equal(
            image, apply_plan(center_plan(geometry, split.shape(index)), split.image(index))
        )


def test_the_numbers_are_uniform() -> None:
    """Eight columns of 20,000; a right one fails in 1 of 10,000 cases."""
    numbers = draw_numbers(0, 0, range(20_000))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
