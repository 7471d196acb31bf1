"""Test protocols: what of an image the network sees, how the scores of one scale are made, and what that costs.

A protocol is made for a crop size, `center(crop_px, **settings)`, and named in `conf/evaluation/`. Scores are averaged
after the softmax, over the views or windows of a scale first and over scales then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rectifiers.config import LARGEST_PX, InputError
from rectifiers.data.preprocess import Preprocess
from rectifiers.data.transforms import resize_shorter
from rectifiers.evaluation import views
from rectifiers.evaluation.windows import mean_window_scores
from rectifiers.models.network import Network
from rectifiers.models.spec import map_sizes, multiply_adds


class Scored(Protocol):
    """What a protocol tests: a network and the preprocessing before it."""

    network: Network
    preprocess: Preprocess

    def __call__(self, images: Tensor) -> Tensor:
        """Map uint8 [N, C, crop, crop] to scores [N, classes]."""
        ...


class TestProtocol(Protocol):
    """Views of an image for each of `scales_px`, and their mean score."""

    @property
    def scales_px(self) -> Sequence[int]:
        """The shorter sides that an image is resized to."""
        ...

    def views(self, image: Tensor, px: int) -> Tensor:
        """Return what the network sees of one image at the scale `px`, uint8 [V, C, H, W]."""
        ...

    def score(self, scored: Scored, views: Tensor) -> Tensor:
        """Return the mean softmax of views [N, V, C, H, W], float32 [N, classes]."""
        ...

    def multiply_adds(self, network: Network, height: int, width: int) -> int:
        """Return the multiply-adds of one image of this size over all scales."""
        ...


@dataclass(frozen=True)
class Crops:
    """Crops of the resized image, each through the whole network."""

    cut: Callable[[Tensor, int], Tensor]
    count: int
    crop_px: int
    scale_px: int

    @property
    def scales_px(self) -> Sequence[int]:
        return (self.scale_px,)

    def views(self, image: Tensor, px: int) -> Tensor:
        return self.cut(resize_shorter(image, px), self.crop_px)

    def score(self, scored: Scored, views: Tensor) -> Tensor:
        scores = scored(views.flatten(0, 1)).float().softmax(dim=1)
        return scores.unflatten(0, views.shape[:2]).mean(dim=1)

    def multiply_adds(self, network: Network, height: int, width: int) -> int:
        return self.count * sum(shape.multiply_adds for shape in network.shapes)


def center(crop_px: int, *, scale_px: int) -> Crops:
    """One view, the centre of the resized image."""
    return Crops(views.center, 1, crop_px, _usable([scale_px], crop_px)[0])


def ten_view(crop_px: int, *, scale_px: int) -> Crops:
    """Ten views: corners and centre of the whole resized image, and their mirrors."""
    return Crops(views.ten_view, 10, crop_px, _usable([scale_px], crop_px)[0])


@dataclass(frozen=True)
class Dense:
    """Every window of the last map, of the size that the map has in training; one pass through the trunk a scale."""

    crop_px: int
    scales_px: Sequence[int]
    mirror: bool

    def views(self, image: Tensor, px: int) -> Tensor:
        resized = resize_shorter(image, px)[None]
        return torch.cat([resized, resized.flip(-1)]) if self.mirror else resized

    def score(self, scored: Scored, views: Tensor) -> Tensor:
        network = scored.network
        maps = network.trunk(scored.preprocess(views.flatten(0, 1)))
        scores = mean_window_scores(network.head, maps, self._window(network))
        return scores.unflatten(0, views.shape[:2]).mean(dim=1)

    def _window(self, network: Network) -> int:
        if not len(network.trunk):
            raise InputError(
                "dense testing needs maps, and this network has no conv layers; choose evaluation=[center,ten_view]"
            )
        return map_sizes(network.shapes, self.crop_px, self.crop_px)[0]

    def multiply_adds(self, network: Network, height: int, width: int) -> int:
        window, total = self._window(network), 0
        for px in self.scales_px:
            sides = [px * side // min(height, width) for side in (height, width)]
            rows, columns = map_sizes(network.shapes, *sides)
            trunk, head = multiply_adds(network.shapes, *sides)
            total += trunk + head * (rows - window + 1) * (columns - window + 1)
        return total * (2 if self.mirror else 1)


def dense(crop_px: int, *, scales_px: list, mirror: bool = True) -> Dense:
    """All windows of the last map at each scale, with mirror images (section 3, "Testing")."""
    return Dense(crop_px, _usable(scales_px, crop_px), mirror)


def _usable(scales_px: Sequence[int], crop_px: int) -> tuple[int, ...]:
    usable = isinstance(scales_px, list) and scales_px and len(set(map(str, scales_px))) == len(scales_px)
    if not usable or any(type(px) is not int or not crop_px <= px <= LARGEST_PX for px in scales_px):
        raise InputError(
            f"the scales {scales_px} of a protocol are not usable; give different whole numbers from "
            f"data.crop_px={crop_px} to {LARGEST_PX}"
        )
    return tuple(scales_px)
