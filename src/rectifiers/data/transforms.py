"""From a source's image to the network's input size: resize the shorter side, crop, flip. All on uint8 [C, H, W]."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from rectifiers.seeds import mix


@dataclass(frozen=True)
class Geometry:
    """Shorter side after resizing, side of the square crop, and whether a training image may be mirrored."""

    resize_px: int
    crop_px: int
    flip: bool


def resize_shorter(image: Tensor, px: int) -> Tensor:
    """Scale so that the shorter side is `px`: bilinear, antialiased, the aspect ratio kept."""
    return image if min(image.shape[-2:]) == px else F.resize(image, [px], antialias=True)


def train_view(image: Tensor, geometry: Geometry, seed: int, epoch: int, index: int) -> Tensor:
    """Return a random crop, mirrored in half of the cases: a pure function of (seed, epoch, index).

    The number of workers, the rank and a restart therefore do not change what the network sees.
    """
    stream = np.random.Generator(np.random.Philox(key=mix("augmentation", seed, epoch, index)))
    image = resize_shorter(image, geometry.resize_px)
    height, width = image.shape[-2:]
    top = int(stream.integers(0, height - geometry.crop_px + 1))
    left = int(stream.integers(0, width - geometry.crop_px + 1))
    mirrored = bool(stream.integers(0, 2))
    crop = image[:, top : top + geometry.crop_px, left : left + geometry.crop_px]
    return crop.flip(-1) if mirrored and geometry.flip else crop


def center_view(image: Tensor, geometry: Geometry) -> Tensor:
    """Return the central crop of the resized image."""
    return F.center_crop(resize_shorter(image, geometry.resize_px), [geometry.crop_px])
