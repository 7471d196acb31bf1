"""Views of images that lie in memory, a batch at once, equal in every bit to those that `Reader`
makes one by one."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rectifiers.data.sources import ArraySplit, Split
from rectifiers.data.transforms import (
    Geometry,
    center_plan,
    color_shift,
    draw_numbers,
    pad,
    resize_shorter,
)

MAX_BYTES = 2**30  # of resized images


class ArrayViews:
    """Views of a split's images, which are resized once, since all have one size and none is drawn.

    images: uint8 [N, C, H, W], resized.
    """

    def __init__(self, images: Tensor, geometry: Geometry) -> None:
        self.images, self.geometry = images, geometry

    @classmethod
    def of(cls, split: Split, geometry: Geometry) -> "ArrayViews | None":
        """Return the views of a split; None where they are not in memory, vary in size, or take too
        much.

        A class derived from ArraySplit may give other images than those that it holds, and is asked
        for each."""
        if (
            type(split) is not ArraySplit
            or geometry.scale_jitter_px is not None
            or not len(split.labels)
        ):
            return None
        first = resize_shorter(split.images[0], geometry.resize_px)
        if first.shape == split.images.shape[1:]:
            return cls(split.images, geometry)
        if first.numel() * len(split.labels) > MAX_BYTES:
            return None
        return cls(
            torch.stack([resize_shorter(image, geometry.resize_px) for image in split.images]),
            geometry,
        )

    def augmented(
        self, seed: int, epoch: int, indices: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Return training views, uint8 [n, C, side, side], and the colour shifts, float32 [n, 3],
        of n `indices`."""
        geometry, side = self.geometry, self.geometry.crop_px
        numbers = draw_numbers(seed, epoch, indices)
        images, rows = self.images, torch.tensor(indices)
        if geometry.pad_px:
            images, rows = pad(images[rows], geometry.pad_px), torch.arange(len(rows))
        corners = numbers[:, 1:3] * (np.array(images.shape[-2:]) - side + 1)
        tops, lefts = torch.from_numpy(corners.astype(np.int64)).T
        views = images.unfold(2, side, 1).unfold(3, side, 1)[rows, :, tops, lefts]
        if geometry.flip:
            mirrored = torch.from_numpy(numbers[:, 3] < 0.5)
            views[mirrored] = views[mirrored].flip(-1)
        if not geometry.color_sigma:
            return views, None
        return views, torch.from_numpy(
            np.array([color_shift(geometry, each) for each in numbers], dtype=np.float32)
        )

    def centered(self, indices: Sequence[int]) -> Tensor:
        """Return the central views, uint8 [n, C, side, side], of n `indices`."""
        top, left = center_plan(
            self.geometry, (self.images.shape[-2], self.images.shape[-1])
        ).corner
        side = self.geometry.crop_px
        return self.images[torch.tensor(indices), :, top : top + side, left : left + side]
