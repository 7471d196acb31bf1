import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torchvision.transforms.v2.functional import center_crop, pil_to_tensor

from rectifiers.data.splits import ArraySplit
from rectifiers.data.transforms import (
    COLOR_VALUES,
    COLOR_VECTORS,
    ArrayViews,
    Geometry,
    apply_plan,
    center_plan,
    draw_plan,
    resize_shorter,
)

FALSE_ALARM = 1e-4
VARIED = ((66, 50), (13, 15), False)
VARIED_SHIFT = [3.2526590090739504, 3.337980220760319, 3.7049326558230073]


def train_view(
    image: torch.Tensor, geometry: Geometry, seed: int, epoch: int, index: int
) -> torch.Tensor:
    return apply_plan(
        draw_plan(geometry, seed, epoch, index, (image.shape[-2], image.shape[-1])), image
    )


def ramp(height: int, width: int) -> torch.Tensor:
    """An image whose pixel values say where they stand: channel 0 the row, channel 1 the column."""
    rows = torch.arange(height).view(-1, 1).expand(height, width)
    columns = torch.arange(width).view(1, -1).expand(height, width)
    return torch.stack([rows, columns, 0 * rows]).to(torch.uint8)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 40))
def test_shorter_side_gets_the_size(height: int, width: int, px: int) -> None:
    out = resize_shorter(torch.zeros(1, height, width, dtype=torch.uint8), px)
    assert min(out.shape[-2:]) == px
    assert abs(max(out.shape[-2:]) - px * max(height, width) / min(height, width)) <= 1
    assert out.dtype == torch.uint8


def test_resizing_is_pillows_antialiased_bilinear_to_one_level() -> None:
    photo = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    ours = resize_shorter(pil_to_tensor(Image.fromarray(photo)), 32)
    theirs = pil_to_tensor(Image.fromarray(photo).resize((48, 32), Image.Resampling.BILINEAR))
    assert (ours.int() - theirs.int()).abs().max() <= 1


def test_view_depends_on_seed_epoch_and_index() -> None:
    geometry = Geometry(40, 32, True)
    image = ramp(40, 50)
    first = train_view(image, geometry, 0, 1, 2)
    torch.manual_seed(7)
    np.random.seed(7)
    assert torch.equal(first, train_view(image, geometry, 0, 1, 2))
    others = [train_view(image, geometry, *key) for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3))]
    assert not any(torch.equal(first, other) for other in others)


def test_crops_are_uniform_and_half_are_mirrored() -> None:
    image, draws = ramp(36, 40), 4000
    views = [train_view(image, Geometry(36, 32, True), 0, 0, index) for index in range(draws)]
    mirrored = [bool(v[1, 0, 0] > v[1, 0, -1]) for v in views]
    tops = [int(v[0, 0, 0]) for v in views]
    lefts = [int(v[1].min()) for v in views]
    assert stats.chisquare(np.bincount(tops, minlength=5)).pvalue > FALSE_ALARM
    assert stats.chisquare(np.bincount(lefts, minlength=9)).pvalue > FALSE_ALARM
    assert stats.binomtest(sum(mirrored), draws, 0.5).pvalue > FALSE_ALARM
    together = np.histogram2d(tops, mirrored, bins=(5, 2))[0]
    assert stats.chi2_contingency(together).pvalue > FALSE_ALARM


def test_without_flip_the_crops_stay() -> None:
    image = ramp(36, 36)
    for index in range(50):
        plain = train_view(image, Geometry(36, 32, False), 0, 0, index)
        either = train_view(image, Geometry(36, 32, True), 0, 0, index)
        assert torch.equal(plain, either) or torch.equal(plain, either.flip(-1))
        assert plain[1, 0, 0] < plain[1, 0, -1]


def test_padded_crops_are_uniform_and_see_black_borders() -> None:
    image, draws = ramp(8, 8) + 1, 3000
    geometry = Geometry(8, 8, flip=False, pad_px=2)
    views = [train_view(image, geometry, 0, 0, index) for index in range(draws)]
    padded = torch.zeros(3, 12, 12, dtype=torch.uint8)
    padded[:, 2:10, 2:10] = image
    corners = [(top, left) for top in range(5) for left in range(5)]
    crops = [padded[:, top : top + 8, left : left + 8] for top, left in corners]
    found = [next(i for i, crop in enumerate(crops) if torch.equal(view, crop)) for view in views]
    assert stats.chisquare(np.bincount(found, minlength=25)).pvalue > FALSE_ALARM
    assert torch.equal(apply_plan(center_plan(geometry, (8, 8)), image), image)


def test_signal_is_neither_resized_nor_cut() -> None:
    signals = torch.arange(80, dtype=torch.uint8).view(2, 1, 1, 40)
    geometry = Geometry(1, 40, False, signal=True)
    views = ArrayViews.of(ArraySplit(signals, [0, 1]), geometry)
    assert torch.equal(views.centered([1, 0]), signals.flip(0))
    assert torch.equal(views.augmented(0, 1, [0, 1])[0], signals)
    assert torch.equal(train_view(signals[0], geometry, 0, 0, 0), signals[0])
    assert torch.equal(apply_plan(center_plan(geometry, (1, 40)), signals[1]), signals[1])


@settings(max_examples=30, deadline=None)
@given(st.integers(8, 90), st.integers(8, 90), st.integers(8, 30), st.integers(4, 8))
def test_the_centre_view_is_torchvisions(height: int, width: int, px: int, side: int) -> None:
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
    expected = center_crop(resize_shorter(image, px), [side])
    assert torch.equal(
        apply_plan(center_plan(Geometry(px, side, True), (height, width)), image), expected
    )


def shifts(geometry: Geometry, draws: int) -> np.ndarray:
    plans = [draw_plan(geometry, 0, 0, index, (40, 40)) for index in range(draws)]
    return np.array([plan.shift for plan in plans])


def test_color_shifts_are_independent_normals_along_the_eigenvectors() -> None:
    """Eleven tests of 4,000 draws, each of which is wrong in 1 of 10,000 seeds by chance."""
    # of a channel: ImageNet's, so the values are variances
    std = np.sqrt(COLOR_VECTORS**2 @ COLOR_VALUES)
    assert np.allclose(COLOR_VECTORS.T @ COLOR_VECTORS, np.eye(3), atol=1e-3)
    assert np.allclose(std, [0.284, 0.276, 0.290], atol=1e-3)
    drawn = shifts(Geometry(40, 32, False, color_sigma=0.1), 4000)
    alphas = drawn @ np.linalg.inv(COLOR_VECTORS.T) / (255 * COLOR_VALUES)
    for i in range(3):
        assert stats.kstest(alphas[:, i] / 0.1, "norm").pvalue > FALSE_ALARM
        assert stats.ttest_1samp(drawn[:, i], 0).pvalue > FALSE_ALARM
        assert stats.pearsonr(alphas[:, i], alphas[:, (i + 1) % 3]).pvalue > FALSE_ALARM
    along_first = drawn @ COLOR_VECTORS[:, 0]  # in grey levels
    assert np.std(along_first) == pytest.approx(5.5, rel=0.06)


def test_draws_are_independent_of_each_other() -> None:
    """Neighbouring indices and epochs are unrelated: lag-1 correlation of 3,000 corners, 1 false
    alarm in 10,000."""
    geometry = Geometry(296, 32, True, color_sigma=0.1)
    for keys in ([(0, i) for i in range(3000)], [(epoch, 0) for epoch in range(3000)]):
        plans = [draw_plan(geometry, 0, epoch, index, (296, 296)) for epoch, index in keys]
        for values in (
            [p.corner[0] for p in plans],
            [p.corner[1] for p in plans],
            [p.shift[0] for p in plans],
        ):
            assert stats.pearsonr(values[1:], values[:-1]).pvalue > FALSE_ALARM
        assert (
            stats.pearsonr([p.corner[0] for p in plans], [p.shift[0] for p in plans]).pvalue
            > FALSE_ALARM
        )


def test_jitter_is_uniform_from_256_to_512() -> None:
    geometry = Geometry(256, 224, True, scale_jitter_px=(256, 512))
    sides = [draw_plan(geometry, 0, 0, index, (375, 500)).size[0] for index in range(20_000)]
    counts = np.bincount(sides, minlength=513)
    assert (counts[:256].sum(), len(counts)) == (0, 513)
    assert counts[[256, 512]].all()
    assert stats.chisquare(counts[256:]).pvalue > FALSE_ALARM


def test_plans_of_small_images_stay() -> None:
    """Records rest on these draws; a change of their order or number would move them silently."""
    varied = Geometry(36, 32, False, scale_jitter_px=(36, 50), color_sigma=0.1)
    plan = draw_plan(varied, 1, 2, 3, (60, 45))
    assert (plan.size, plan.corner, plan.mirrored) == VARIED
    assert plan.shift.tolist() == pytest.approx(VARIED_SHIFT, rel=1e-12)
