"""Each method against the numpy formulas of the course notes, on real digits."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rectifiers.data import preprocess as P
from rectifiers.data.preprocess import PixelMoments, Preprocess, fit
from rectifiers.data.sources import digits
from refusals import refused


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    train = digits().train
    return torch.stack([train.image(i) for i in range(600)])


@pytest.fixture(scope="module")
def moments(images: torch.Tensor) -> PixelMoments:
    return PixelMoments(lambda: images.split(100))


@pytest.fixture(scope="module")
def flat(images: torch.Tensor) -> np.ndarray:
    return images.flatten(1).double().numpy() / 255


def result(
    method, moments: PixelMoments, images: torch.Tensor, scale: float | str = 1.0
) -> np.ndarray:
    return fit(method, moments, scale).double()(images).flatten(1).numpy()


def test_means(moments: PixelMoments, images: torch.Tensor, flat: np.ndarray) -> None:
    assert np.allclose(result(P.none, moments, images), flat, atol=1e-6)
    assert np.allclose(result(P.scalar_mean, moments, images), flat - flat.mean(), atol=1e-6)
    assert np.allclose(result(P.pixel_mean, moments, images), flat - flat.mean(0), atol=1e-6)
    colour = torch.arange(4 * 3 * 2 * 2, dtype=torch.uint8).view(4, 3, 2, 2)
    means = (colour.double() / 255).mean((0, 2, 3), keepdim=True)
    found = fit(P.channel_mean, PixelMoments(lambda: [colour]), 1.0)(colour)
    assert torch.allclose(found.double(), colour.double() / 255 - means, atol=1e-6)


def test_standardize_gives_unit_variance(moments, images, flat) -> None:
    z, varies = result(P.standardize, moments, images), flat.std(0) > 0
    assert not varies.all()  # the corners of the digits are always black
    assert np.allclose(
        z[:, varies],
        ((flat - flat.mean(0)) / np.where(varies, flat.std(0), 1))[:, varies],
        atol=1e-4,
    )
    assert not z[:, ~varies].any()


def test_minmax_fills_minus_one_to_one(moments, images, flat) -> None:
    z, varies = result(P.minmax, moments, images), flat.std(0) > 0
    assert np.allclose(z[:, varies].min(0), -1, atol=1e-6)
    assert np.allclose(z[:, varies].max(0), 1, atol=1e-6)
    assert not z[:, ~varies].any()


def test_pca_decorrelates_and_keeps_distances(moments, images, flat) -> None:
    z = result(P.pca, moments, images)
    covariance = z.T @ z / len(z)
    assert np.allclose(covariance, np.diag(np.diag(covariance)), atol=1e-6)
    assert (np.diff(np.diag(covariance)) < 1e-6).all()
    centred = flat - flat.mean(0)
    assert np.allclose(
        np.linalg.norm(z[0] - z[1]), np.linalg.norm(centred[0] - centred[1]), atol=1e-5
    )
    values = np.linalg.svd(centred.T @ centred / len(centred))[1]
    assert np.allclose(np.diag(covariance), values, atol=1e-6)


def test_reduction_keeps_the_first_coordinates(moments: PixelMoments, images: torch.Tensor) -> None:
    whole, few = result(P.pca, moments, images), result(partial(P.pca_reduce, k=5), moments, images)
    assert np.allclose(few, whole[:, :5], atol=1e-6)
    assert fit(partial(P.pca_reduce, k=5), moments, 1.0).flat_output == 5


@pytest.mark.parametrize(
    ("method", "shape", "scale", "sentence"),
    [
        (partial(P.pca_reduce, k=65), (1, 8, 8), 1.0, r"preprocess\.k=65 is more than the 64"),
        (partial(P.zca, epsilon=0.0), (1, 8, 8), 1.0, r"preprocess\.epsilon=0"),
        (P.zca, (3, 40, 40), 1.0, r"4800 numbers per image.*lower data\.crop_px"),
        (P.pixel_mean, (1, 4, 4), "unit_rms", "all training images are equal"),
    ],
)
def test_unusable_fits_are_refused(method, shape, scale: float | str, sentence: str) -> None:
    blank = torch.zeros(2, *shape, dtype=torch.uint8)
    with refused(sentence):
        fit(method, PixelMoments(lambda: [blank]), scale)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
def test_whitening_divides_by_the_std(moments, images, flat, epsilon) -> None:
    centred = flat - flat.mean(0)
    u, s, _ = np.linalg.svd(centred.T @ centred / len(centred))
    expected = centred @ u / np.sqrt(s + epsilon)
    white = result(partial(P.pca_whiten, epsilon=epsilon), moments, images)
    kept = s > 1e-6
    # an axis has no sign
    assert np.allclose(np.abs(white[:, kept]), np.abs(expected[:, kept]), atol=1e-3)
    _, axes = P.eigenbasis(moments)  # but for its largest component, which is positive
    assert torch.equal(axes.max(1).values, axes.abs().max(1).values)
    zca = fit(partial(P.zca, epsilon=epsilon), moments, 1.0)
    assert zca.flat_output is None
    assert zca(images).shape == images.shape
    assert np.allclose(
        result(partial(P.zca, epsilon=epsilon), moments, images), expected @ u.T, atol=1e-3
    )


METHODS = [P.none, P.scalar_mean, P.channel_mean, P.pixel_mean, P.pca, P.zca, P.standardize]
METHODS += [partial(P.pca_reduce, k=10)]


@pytest.mark.parametrize("method", METHODS)
def test_unit_rms_is_one(method, moments: PixelMoments, images: torch.Tensor) -> None:
    squares = result(method, moments, images, "unit_rms") ** 2
    assert np.sqrt(squares.mean()) == pytest.approx(1, rel=1e-5)


def test_unit_rms_counts_the_scale_before_the_matrix(moments, images) -> None:
    def method(moments: PixelMoments) -> P.Affine:
        scale = torch.linspace(0.5, 2, 64, dtype=torch.float64).view(1, 8, 8)
        return P.Affine(moments.mean, scale, P.eigenbasis(moments)[1][:10], image_form=False)

    squares = result(method, moments, images, "unit_rms") ** 2
    assert np.sqrt(squares.mean()) == pytest.approx(1, rel=1e-5)


def test_number_as_scale_multiplies(moments, images, flat) -> None:
    z = result(P.pixel_mean, moments, images, 255)
    assert np.allclose(z, 255 * (flat - flat.mean(0)), atol=1e-3)


def test_order_and_batches_change_no_bit(moments: PixelMoments, images: torch.Tensor) -> None:
    shuffled = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
    other = PixelMoments(lambda: shuffled.split(77))
    assert torch.equal(other.mean, moments.mean)
    assert torch.equal(other.square, moments.square)
    assert torch.equal(other.covariance, moments.covariance)


def test_color_shifts_are_grey_levels() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    shifts = torch.tensor([[1.5, 0.0, -300.0], [0.25, 400.0, 2.0]])
    preprocess = Preprocess(torch.full((3, 1, 1), 100.0), torch.full((3, 1, 1), 0.5), None, True)
    # neither rounded nor cut at 0 and 255
    expected = (images.float() + shifts[:, :, None, None] - 100) * 0.5
    assert torch.equal(preprocess(images, shifts), expected)
    assert torch.equal(preprocess(images), preprocess(images, torch.zeros(2, 3)))


def test_statistics_are_resized_by_bilinear_interpolation() -> None:
    """From 2 to 4 px, pixel centres lie at -1/4, 1/4, 3/4 and 5/4 of the fitted ones; ends are
    clamped."""
    offset = torch.tensor([[[0.0, 4.0], [8.0, 12.0]]])
    scale = torch.tensor([[[1.0, 1.0], [2.0, 2.0]]])
    blank = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    offsets = torch.tensor([0.0, 2.0, 6.0, 8.0])[:, None] + torch.tensor([0.0, 1.0, 3.0, 4.0])
    scales = torch.tensor([1.0, 1.25, 1.75, 2.0])[:, None]
    mapped = Preprocess(offset, scale, None, True)(blank)
    torch.testing.assert_close(mapped, (-offsets * scales)[None, None])


def test_moments_of_two_processes_are_of_all_images(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (20, 1, 4, 4), generator=generator).to(torch.uint8)
    whole, rest = (PixelMoments(lambda part=part: [part]) for part in (images, images[8:]))
    white = PixelMoments.WHITE
    others = iter(
        [
            torch.tensor(12),
            rest.mean * 12 * white,
            rest.square * 12 * white**2,
            rest.low * white,
            rest.high * white,
        ]
    )
    reduce = {"sum": torch.add, "min": torch.minimum, "max": torch.maximum}
    monkeypatch.setattr(P, "all_reduce", lambda x, how: reduce[how](x, next(others).to(x)))
    found = PixelMoments(lambda: [images[:8]])
    for name in ("mean", "square", "low", "high"):
        torch.testing.assert_close(getattr(found, name), getattr(whole, name))


def test_cached_maps_follow_the_code_of_crops(monkeypatch, tmp_path: Path) -> None:
    before = P.statistics_key({})
    changed = tmp_path / "transforms.py"
    changed.write_text("other code")
    monkeypatch.setattr(P.transforms, "__file__", str(changed))
    assert P.statistics_key({}) != before


def test_no_eigenvalue_is_below_zero() -> None:
    """Rounding makes those of a singular covariance slightly negative."""
    moments = SimpleNamespace(covariance=torch.diag(torch.tensor([2.0, -1e-9, 1.0])))
    assert P.eigenbasis(moments)[0].tolist() == [2, 1, 0]  # type: ignore[arg-type]
