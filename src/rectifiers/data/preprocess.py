"""Preprocessing that is fitted to the training split alone: means, scales, PCA and whitening.

Every method is an affine map of the pixels, fitted from exact sums over the centre crops of the
training images. A new method is a function `(moments, **options) -> Affine` (here or in any
importable module) and a file in `conf/preprocess/` that names it."""

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.data import transforms
from rectifiers.data.images import write_cache
from rectifiers.runtime.distributed import all_reduce, broadcast_from_rank_zero
from rectifiers.runtime.errors import InputError, first_line, unreadable
from rectifiers.runtime.files import atomic_file, check_zip
from rectifiers.runtime.ranges import Count, NonNegative
from rectifiers.runtime.schema import JsonObject

COVARIANCE_LIMIT = 4096  # numbers per image; the covariance of more does not fit into memory
EXACT_IMAGES = 256  # their squares add up to less than 2^24, so that float32 holds the sum exactly


class PixelMoments:
    """Moments of each pixel over a split's crops, float64, in units where a white pixel is 1.

    count: the number of images. mean, square (E[x^2]), low, high: [C, H, W]. The sums are of
    integers and exact, so neither the order of the images nor the number of threads or processes
    changes them.

    batches: a function that returns an iterator over the crops, uint8 [N, C, H, W] each. Several
    processes each pass over a share of their own, at least one image, and get the moments of all.

    Raises:
        InputError: where the covariance would have too many numbers.
    """

    WHITE = 255.0

    def __init__(self, batches: Callable[[], Iterable[Tensor]]) -> None:
        self._batches = batches
        count = 0
        for batch in batches():
            if count == 0:
                total = torch.zeros(batch.shape[1:], dtype=torch.float64)
                square, low, high = total.clone(), batch[0], batch[0]
            count += len(batch)
            for part in batch.split(EXACT_IMAGES):
                x = part.float()
                total += x.sum(0)
                square += x.square().sum(0)
            low, high = torch.minimum(low, batch.amin(0)), torch.maximum(high, batch.amax(0))

        # over all processes
        self.count = int(all_reduce(torch.tensor(count), "sum"))
        total, square = all_reduce(total, "sum"), all_reduce(square, "sum")
        low, high = all_reduce(low, "min").double(), all_reduce(high, "max").double()

        self.mean = total / self.count / self.WHITE
        self.square = square / self.count / self.WHITE**2
        self.low, self.high = low / self.WHITE, high / self.WHITE

    @property
    def variance(self) -> Tensor:
        return (self.square - self.mean**2).clamp_min(0)

    @cached_property
    def covariance(self) -> Tensor:
        """The [D, D] covariance, D = C H W, divided by N as in the course notes; computed in a
        second pass when it is first read."""
        size = self.mean.numel()
        if size > COVARIANCE_LIMIT:
            raise InputError(
                f"this preprocess needs the covariance of {size} numbers per image, and the limit "
                f"is {COVARIANCE_LIMIT}; lower data.crop_px, or choose preprocess=pixel_mean"
            )
        product = torch.zeros(size, size, dtype=torch.float64)
        for batch in self._batches():
            x = batch.double().flatten(1)
            product += x.T @ x  # of integers and exact, too
        product = all_reduce(product, "sum")

        flat = self.mean.flatten()
        return product / self.count / self.WHITE**2 - torch.outer(flat, flat)


@dataclass(frozen=True)
class Affine:
    """x -> (x - offset) * scale, then `matrix @ flatten(x)` where one is given; both broadcast to
    [C, H, W].

    The result is an image where `matrix` is None or `image_form` says so, else a vector of
    len(matrix) numbers."""

    offset: Tensor
    scale: Tensor
    matrix: Tensor | None = None
    image_form: bool = False


Method = Callable[[PixelMoments], Affine]


def _centred(offset: Tensor, matrix: Tensor | None = None, *, image_form: bool = False) -> Affine:
    return Affine(offset, torch.ones_like(offset), matrix, image_form)


def none(moments: PixelMoments) -> Affine:
    """The pixels as they are."""
    return _centred(torch.zeros(1, 1, 1, dtype=torch.float64))


def scalar_mean(moments: PixelMoments) -> Affine:
    """Subtract one number, the mean over all pixels and channels."""
    return _centred(moments.mean.mean().view(1, 1, 1))


def channel_mean(moments: PixelMoments) -> Affine:
    """Subtract each channel's mean."""
    return _centred(moments.mean.mean((1, 2), keepdim=True))


def pixel_mean(moments: PixelMoments) -> Affine:
    """Subtract the mean image, as the paper does."""
    return _centred(moments.mean)


def standardize(moments: PixelMoments) -> Affine:
    """Subtract each pixel's mean and divide by its standard deviation; a pixel that never varies
    becomes 0."""
    return Affine(moments.mean, _inverse(moments.variance.sqrt()))


def minmax(moments: PixelMoments) -> Affine:
    """Map each pixel's training range onto [-1, 1]; a pixel that never varies becomes 0."""
    return Affine((moments.low + moments.high) / 2, _inverse((moments.high - moments.low) / 2))


def _inverse(spread: Tensor) -> Tensor:
    return torch.where(spread > 1e-12, 1 / spread.clamp_min(1e-12), 0.0)


def eigenbasis(moments: PixelMoments) -> tuple[Tensor, Tensor]:
    """Return the covariance's eigenvalues [D], descending, and eigenvectors as rows, largest
    component positive."""
    values, vectors = torch.linalg.eigh(moments.covariance)
    values, rows = values.flip(0).clamp_min(0), vectors.T.flip(0)
    # an eigenvector may have either sign, so a rule has to choose one
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    return values, rows * largest.sign()


def pca(moments: PixelMoments) -> Affine:
    """Subtract the mean image and rotate into the eigenbasis of the covariance: a vector,
    decorrelated."""
    return _centred(moments.mean, eigenbasis(moments)[1])


def pca_reduce(moments: PixelMoments, k: Count = 100) -> Affine:
    """The first k coordinates in the eigenbasis, those of largest variance: a vector of k
    numbers."""
    _, rows = eigenbasis(moments)
    if k > len(rows):
        raise InputError(
            f"preprocess.k={k} is more than the {len(rows)} numbers per image; give "
            f"{len(rows)} or fewer"
        )
    return _centred(moments.mean, rows[:k].clone())


def pca_whiten(moments: PixelMoments, epsilon: NonNegative = 1e-5) -> Affine:
    """Rotate and divide each coordinate by sqrt(variance + epsilon): a vector, white where variance
    >> epsilon."""
    return _centred(moments.mean, _whitening(*eigenbasis(moments), epsilon))


def zca(moments: PixelMoments, epsilon: NonNegative = 1e-2) -> Affine:
    """PCA whitening rotated back into the pixel basis: a whitened image."""
    values, rows = eigenbasis(moments)
    return _centred(moments.mean, rows.T @ _whitening(values, rows, epsilon), image_form=True)


def _whitening(values: Tensor, rows: Tensor, epsilon: float) -> Tensor:
    if epsilon == 0 and values.min() <= 1e-12:
        raise InputError(
            "preprocess.epsilon=0 divides by the variance of directions in which the training "
            "images never vary; give a number above 0, such as 0.01"
        )
    return rows / (values + epsilon).sqrt()[:, None]


def residual_power(affine: Affine, moments: PixelMoments) -> float:
    """Return E[|z|^2] / dim(z) over the training crops, from the moments alone."""
    centre = moments.mean - affine.offset
    if affine.matrix is None:
        return float(((moments.variance + centre**2) * affine.scale**2).mean())
    # for z = M x, E[z_i^2] is the i-th entry of the diagonal of M E[x x^T] M^T
    second = moments.covariance + torch.outer(centre.flatten(), centre.flatten())
    matrix = affine.matrix * affine.scale.expand_as(centre).flatten()
    return float(((matrix @ second) * matrix).sum(1).mean())


class Preprocess(nn.Module):
    """A fitted affine map as a module: uint8 [N, C, H, W] -> float [N, C, H, W], or [N, k] for the
    vector forms.

    Its tensors are stored with the run, not in checkpoints.
    """

    offset: Tensor
    scale: Tensor
    matrix: Tensor | None

    def __init__(
        self, offset: Tensor, scale: Tensor, matrix: Tensor | None, image_form: bool
    ) -> None:
        super().__init__()
        self.image_form = image_form
        self.register_buffer("offset", offset, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("matrix", matrix, persistent=False)

    @property
    def flat_output(self) -> int | None:
        """The length of the result where it is a vector, else None."""
        return None if self.image_form or self.matrix is None else len(self.matrix)

    def forward(self, images: Tensor, shifts: Tensor | None = None) -> Tensor:
        """Map images; `shifts`, [N, C] grey levels or None, are added to their channels first."""
        offset, scale = self._sized(self.offset, images), self._sized(self.scale, images)
        pixels = images.to(offset.dtype)
        if shifts is not None:
            pixels = pixels + shifts.to(offset.dtype)[:, :, None, None]

        x = (pixels - offset) * scale
        if self.matrix is None:
            return x
        y = x.flatten(1) @ self.matrix.T
        return y.view_as(x) if self.image_form else y

    def _sized(self, fitted: Tensor, images: Tensor) -> Tensor:
        """Return per-pixel statistics, interpolated to images of another size as SPP-net does with
        the mean image."""
        size = images.shape[-2:]
        if fitted.shape[-2:] in ((1, 1), size):
            return fitted
        if self.matrix is not None:
            raise InputError(
                f"this preprocess rotates images of {fitted.shape[-2]} x {fitted.shape[-1]} px "
                f"and has no meaning for {size[0]} x {size[1]}; choose "
                "evaluation=[center,ten_view], or preprocess=pixel_mean"
            )
        return F.interpolate(fitted[None], size, mode="bilinear", align_corners=False)[0]

    def fitted(self) -> dict[str, Tensor | bool | None]:
        """Return the arguments that rebuild this map by `Preprocess(**fitted)`; tensors on the
        CPU."""
        return {
            "offset": self.offset.cpu(),
            "scale": self.scale.cpu(),
            "matrix": None if self.matrix is None else self.matrix.cpu(),
            "image_form": self.image_form,
        }


def fit(method: Method, moments: PixelMoments, scale: float | str) -> Preprocess:
    """Fit `method` to a training split's moments.

    scale: a factor on the result (255 gives the paper's pixel range to a centring method), or
    "unit_rms": divide by the root mean square of the training images' result, one number for all,
    so that methods differ only in centring and conditioning, and the second moment of the first
    layer's input is 1.

    Raises:
        InputError: where scale is "unit_rms" and all training images are equal.
    """
    affine = method(moments)
    if scale == "unit_rms":
        power = residual_power(affine, moments)
        if not power > 1e-12:
            raise InputError(
                "preprocess.scale=unit_rms has nothing to divide by: all training images are "
                "equal; give a number"
            )
        scale = 1 / math.sqrt(power)

    # moments are in units of white, images in grey levels
    return Preprocess(
        offset=(affine.offset * PixelMoments.WHITE).float(),
        scale=(affine.scale * float(scale) / PixelMoments.WHITE).float(),
        matrix=None if affine.matrix is None else affine.matrix.float(),
        image_form=affine.matrix is None or affine.image_form,
    )


# ---- the cache of fitted maps, by a hash of everything that each depends on ----


def statistics_key(inputs: JsonObject) -> str:
    """Return 16 hex digits of `inputs` (plain JSON types) and of the code that fits, so that maps
    fitted by other code are not taken from the cache."""
    content = hashlib.blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=8)
    for module in (__file__, transforms.__file__):
        content.update(Path(str(module)).read_bytes())
    return content.hexdigest()


def load_or_fit(folder: Path, key: str, fit: Callable[[], Preprocess]) -> Preprocess:
    """Return the map in the cache under `key`, or fit it and store it. A damaged file is replaced
    by a new fit.

    Several processes fit together."""
    path = folder / f"{key}.pt"

    def cached() -> Preprocess | None:
        try:
            return load_preprocess(path)
        except InputError:
            return None

    known = broadcast_from_rank_zero(cached)
    if known is not None:
        return known
    fitted = fit()
    # by a broadcast, so that an error of rank 0's disk is one on all
    broadcast_from_rank_zero(lambda: write_cache(path, _file_content(fitted)))
    return fitted


def save_preprocess(fitted: Preprocess, path: Path) -> None:
    """Write a fitted map, whole or not at all."""
    content = _file_content(fitted)
    with atomic_file(path) as file:
        file.write(content)


def _file_content(fitted: Preprocess) -> bytes:
    # In memory first: where a disk is full, torch raises another error than the system's.
    content = io.BytesIO()
    torch.save(fitted.fitted(), content)
    return content.getvalue()


def load_preprocess(path: Path) -> Preprocess:
    """Return the map that `save_preprocess` wrote; a damaged file does not pass its checksums."""
    try:
        check_zip(path)
        return Preprocess(**torch.load(path, weights_only=True))
    except Exception as error:  # damage can raise anything
        remedy = "train.py with rerun=true fits the preprocessing again"
        raise unreadable(path, first_line(error), remedy) from error
