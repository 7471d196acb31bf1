"""The views that a protocol scores: crops of a resized image, uint8 [C, H, W] -> [V, C, crop, crop]."""

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F


def center(image: Tensor, crop_px: int) -> Tensor:
    """One view, the centre."""
    return F.center_crop(image, [crop_px])[None]


def ten_view(image: Tensor, crop_px: int) -> Tensor:
    """Ten views: the four corners of the whole resized image and its centre, and the mirror image of each.

    Mirrors of the same five crops: torchvision's `ten_crop` mirrors the image first, which moves the mirrored centre by
    a pixel where the margin is odd.
    """
    crops = torch.stack(F.five_crop(image, [crop_px]))
    return torch.cat([crops, crops.flip(-1)])
