"""From a source's image to the network's input size: resize the shorter side, crop, flip. All on uint8 [C, H, W]."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from rectifiers.seeds import mix


@dataclass(frozen=True)
class Geometry:
    """Shorter side after resizing, side of the square crop, and how a training image may differ from its file.

    flip: mirrored in half of the cases. scale_jitter_px: the shorter side is drawn from this range, both ends included,
    instead of `resize_px`. color_sigma: the colour shift of Krizhevsky et al. (2012), 0.1 there; 0 for none.
    """

    resize_px: int
    crop_px: int
    flip: bool
    scale_jitter_px: tuple[int, int] | None = None
    color_sigma: float = 0.0


# The covariance of RGB over ImageNet's training pixels in [0, 1], as everybody quotes it: eigenvalues, and eigenvectors
# as columns. That they are variances and not their roots is a reading: the paper says only "as in [Krizhevsky]".
COLOR_VALUES = np.array([0.2175, 0.0188, 0.0045])
COLOR_VECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


def resize_shorter(image: Tensor, px: int) -> Tensor:
    """Scale so that the shorter side is `px`: Pillow's bilinear (antialiased), the aspect ratio kept.

    Pillow computes in whole numbers, so every machine gets the same bytes; torch's own kernels differ between machines.
    """
    if min(image.shape[-2:]) == px:
        return image
    return F.pil_to_tensor(F.resize(F.to_pil_image(image), [px]))


def train_view(image: Tensor, geometry: Geometry, seed: int, epoch: int, index: int) -> Tensor:
    """Return a random crop, varied as `geometry` says: a pure function of (seed, epoch, index).

    The number of workers, the rank and a restart therefore do not change what the network sees.
    """
    stream = np.random.Generator(np.random.Philox(key=mix("augmentation", seed, epoch, index)))
    jitter = geometry.scale_jitter_px
    px = geometry.resize_px if jitter is None else int(stream.integers(jitter[0], jitter[1] + 1))
    image = resize_shorter(image, px)
    height, width = image.shape[-2:]
    top = int(stream.integers(0, height - geometry.crop_px + 1))
    left = int(stream.integers(0, width - geometry.crop_px + 1))
    mirrored = bool(stream.integers(0, 2))
    crop = image[:, top : top + geometry.crop_px, left : left + geometry.crop_px]
    crop = crop.flip(-1) if mirrored and geometry.flip else crop
    return crop if geometry.color_sigma == 0 else shift_colors(crop, stream.normal(0, geometry.color_sigma, 3))


def shift_colors(image: Tensor, alphas: np.ndarray) -> Tensor:
    """Add sum_i alpha_i lambda_i p_i to every RGB pixel, uint8 [3, H, W]; the paper's "random color altering".

    DEVIATION: the shift is rounded to whole grey levels and stops at 0 and 255; images stay bytes until the device.
    """
    shift = torch.from_numpy(np.rint(COLOR_VECTORS @ (COLOR_VALUES * alphas) * 255).astype(np.int16))
    return (image.to(torch.int16) + shift[:, None, None]).clamp_(0, 255).to(torch.uint8)


def center_view(image: Tensor, geometry: Geometry) -> Tensor:
    """Return the central crop of the resized image."""
    return F.center_crop(resize_shorter(image, geometry.resize_px), [geometry.crop_px])
