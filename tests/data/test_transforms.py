import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torchvision.transforms.v2.functional import pil_to_tensor

from rectifiers.data.transforms import (
    COLOR_VALUES,
    COLOR_VECTORS,
    Geometry,
    center_view,
    resize_shorter,
    shift_colors,
    train_view,
)

FALSE_ALARM = 1e-4


def ramp(height: int, width: int) -> torch.Tensor:
    """An image whose pixel values say where they stand: channel 0 the row, channel 1 the column."""
    rows = torch.arange(height).view(-1, 1).expand(height, width)
    columns = torch.arange(width).view(1, -1).expand(height, width)
    return torch.stack([rows, columns, 0 * rows]).to(torch.uint8)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 40))
def test_the_shorter_side_gets_the_size_and_the_ratio_stays(height: int, width: int, px: int) -> None:
    out = resize_shorter(torch.zeros(1, height, width, dtype=torch.uint8), px)
    assert min(out.shape[-2:]) == px
    assert abs(max(out.shape[-2:]) - px * max(height, width) / min(height, width)) <= 1
    assert out.dtype == torch.uint8


def test_resizing_is_pillows_antialiased_bilinear_to_one_level() -> None:
    photo = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    ours = resize_shorter(pil_to_tensor(Image.fromarray(photo)), 32)
    theirs = pil_to_tensor(Image.fromarray(photo).resize((48, 32), Image.Resampling.BILINEAR))
    assert (ours.int() - theirs.int()).abs().max() <= 1


def test_a_training_view_depends_on_seed_epoch_and_index_alone() -> None:
    geometry = Geometry(40, 32, True)
    image = ramp(40, 50)
    first = train_view(image, geometry, seed=0, epoch=1, index=2)
    torch.manual_seed(7)
    np.random.seed(7)
    assert torch.equal(first, train_view(image, geometry, seed=0, epoch=1, index=2))
    others = [train_view(image, geometry, *key) for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3))]
    assert not any(torch.equal(first, other) for other in others)


def test_crops_are_uniform_and_half_of_them_are_mirrored() -> None:
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


def test_without_flip_nothing_is_mirrored_and_the_crops_stay() -> None:
    image = ramp(36, 36)
    for index in range(50):
        plain = train_view(image, Geometry(36, 32, False), 0, 0, index)
        either = train_view(image, Geometry(36, 32, True), 0, 0, index)
        assert torch.equal(plain, either) or torch.equal(plain, either.flip(-1))
        assert plain[1, 0, 0] < plain[1, 0, -1]


def test_the_centre_view_is_the_centre() -> None:
    view = center_view(ramp(36, 40), Geometry(36, 32, True))
    assert (int(view[0, 0, 0]), int(view[1, 0, 0])) == (2, 4)
    assert view.shape == (3, 32, 32)


def test_the_jittered_side_is_uniform_over_the_range_and_both_its_ends() -> None:
    geometry, draws = Geometry(40, 32, False, scale_jitter_px=(32, 36)), 3000
    image = ramp(80, 80)
    rows = [int(v[0, -1, 0]) - int(v[0, 0, 0]) for v in (train_view(image, geometry, 0, 0, i) for i in range(draws))]
    # 32 of px rows are cut from an image that was 80 high: the ramp over the crop tells px
    px = [min(range(32, 37), key=lambda p: abs(r - 31 * 80 / p)) for r in rows]
    assert stats.chisquare(np.bincount(px, minlength=37)[32:]).pvalue > FALSE_ALARM


def test_the_color_shift_follows_the_eigenvectors_of_rgb() -> None:
    grey = torch.full((3, 40, 40), 128, dtype=torch.uint8)
    first = shift_colors(grey, np.array([0.1, 0, 0]))[:, 0, 0].int() - 128
    assert first.tolist() == np.rint(0.1 * 0.2175 * 255 * COLOR_VECTORS[:, 0]).tolist()  # -3, -3, -3
    assert np.allclose(COLOR_VECTORS.T @ COLOR_VECTORS, np.eye(3), atol=1e-3)
    std = np.sqrt(COLOR_VECTORS**2 @ COLOR_VALUES)  # of a channel: ImageNet's
    assert np.allclose(std, [0.284, 0.276, 0.290], atol=1e-3)

    geometry, draws = Geometry(40, 32, False, color_sigma=0.1), 4000
    shifts = [train_view(grey, geometry, 0, 0, i)[:, 0, 0].double().numpy() - 128 for i in range(draws)]
    # variance of the projection on the first direction: (0.1 * 0.2175 * 255)^2, and 3 x 1/12 of rounding at most
    along = np.var(np.array(shifts) @ COLOR_VECTORS[:, 0]) / (0.1 * 0.2175 * 255) ** 2
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], draws - 1) / (draws - 1)
    assert low < along < high * 1.01
    assert torch.equal(
        shift_colors(torch.full((3, 1, 1), 255, dtype=torch.uint8), np.array([-9.0, 0, 0])).max(),
        torch.tensor(255, dtype=torch.uint8),
    )


def test_jitter_and_colors_leave_the_other_draws_alone_when_switched_off() -> None:
    image = ramp(40, 50)
    assert torch.equal(
        train_view(image, Geometry(40, 32, True), 0, 1, 2),
        train_view(image, Geometry(40, 32, True, None, 0.0), 0, 1, 2),
    )
