"""Test protocols: what of an image the network sees, how the scores of one scale are made, and what that costs.

A protocol is made for a crop size, `center(crop_px, **settings)`, and named in `conf/evaluation/`. Scores are averaged
after the softmax, over the views or windows of a scale first and over scales then.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rectifiers.data.limits import LARGEST_PX
from rectifiers.data.preprocess import Preprocess
from rectifiers.data.transforms import resize_shorter
from rectifiers.evaluation import views
from rectifiers.evaluation.windows import mean_window_scores
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import map_sizes, multiply_adds
from rectifiers.runtime.errors import InputError


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
    def scales_px(self) -> Mapping[int, float]:
        """The shorter sides that an image is resized to, each with its weight in the mean over scales."""
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
    def scales_px(self) -> Mapping[int, float]:
        return {self.scale_px: 1.0}

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
class _OnMaps:
    """The trunk once over the whole resized image and once over its mirror; what is cut, is cut from the last map."""

    crop_px: int
    scales_px: Mapping[int, float]

    def views(self, image: Tensor, px: int) -> Tensor:
        resized = resize_shorter(image, px)[None]
        return torch.cat([resized, resized.flip(-1)])

    def _window(self, network: Network) -> int:
        """The side of the last map in training, which is the side of a window in testing."""
        if not len(network.trunk):
            raise InputError(
                "testing on maps needs some, and this network has no conv layers; choose evaluation=[center,ten_view]"
            )
        return map_sizes(network.shapes, self.crop_px, self.crop_px)[0]


@dataclass(frozen=True)
class Dense(_OnMaps):
    """Every window of the last map."""

    mirror: bool

    def views(self, image: Tensor, px: int) -> Tensor:
        both = super().views(image, px)
        return both if self.mirror else both[:1]

    def score(self, scored: Scored, views: Tensor) -> Tensor:
        network = scored.network
        window = self._window(network)
        maps = network.trunk(scored.preprocess(views.flatten(0, 1)))
        return mean_window_scores(network.head, maps, window).unflatten(0, views.shape[:2]).mean(dim=1)

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
    usable = _usable(scales_px, crop_px)
    return Dense(crop_px, dict.fromkeys(usable, 1 / len(usable)), mirror)


@dataclass(frozen=True)
class MapViews(_OnMaps):
    """SPP-net's views, cut from the last map: centre, corners and the middles of the sides, and the mirror of each.

    A view of the image becomes the window of the training map's size that lies nearest to it. For models A, B and C
    those are the cells whose centres the view covers, SPP-net's own rule.
    DEVIATION: SPP-net lets the window's size vary with the view where the stride does not divide the crop (14-layer
    model); a fixed size is what the network was trained on, and what a head without a pyramid needs.
    """

    def score(self, scored: Scored, views: Tensor) -> Tensor:
        network = scored.network
        window = self._window(network)
        maps = network.trunk(scored.preprocess(views.flatten(0, 1))).unflatten(0, views.shape[:2])
        stride = math.prod(shape.row.stride for shape in network.shapes)
        height, width = views.shape[-2:]
        cut = []
        for left, right in self._positions(width):
            # the mirror of a view is cut from the mirrored map, as far from its left as the view is from its right
            for maps_of, start in ((maps[:, 0], left), (maps[:, 1], right)):
                x = _nearest(start, stride, maps.shape[-1] - window)
                for top, _ in self._positions(height):
                    y = _nearest(top, stride, maps.shape[-2] - window)
                    cut.append(maps_of[:, :, y : y + window, x : x + window])
        scores = network.head(torch.stack(cut, dim=1).flatten(0, 1)).float().softmax(dim=1)
        return scores.unflatten(0, (len(views), -1)).mean(dim=1)

    def _positions(self, side_px: int) -> list[tuple[int, int]]:
        """The views' distances from both ends of a side: one view where the side is the crop's, else three."""
        room = side_px - self.crop_px
        return [(0, 0)] if room == 0 else [(0, room), (room // 2, room - room // 2), (room, 0)]

    def multiply_adds(self, network: Network, height: int, width: int) -> int:
        total = 0
        for px in self.scales_px:
            sides = [px * side // min(height, width) for side in (height, width)]
            trunk, head = multiply_adds(network.shapes, *sides)
            total += 2 * (trunk + head * math.prod(len(self._positions(side)) for side in sides))
        return total


def multi_view(crop_px: int, *, scales_px: list) -> MapViews:
    """Up to 18 views a scale (SPP-net, section 3.1), each with the same weight: 96 for the six scales from 224 to 560.

    The scale of the crop itself has a single row of views, and weighs 6 where the others weigh 18.
    """
    views = {px: 6 if px == crop_px else 18 for px in _usable(scales_px, crop_px)}
    return MapViews(crop_px, {px: count / sum(views.values()) for px, count in views.items()})


def _nearest(px: int, stride: int, last: int) -> int:
    return min((2 * px + stride) // (2 * stride), last)


def _usable(scales_px: Sequence[int], crop_px: int) -> tuple[int, ...]:
    usable = isinstance(scales_px, list) and scales_px and len(set(map(str, scales_px))) == len(scales_px)
    if not usable or any(type(px) is not int or not crop_px <= px <= LARGEST_PX for px in scales_px):
        raise InputError(
            f"the scales {scales_px} of a protocol are not usable; give different whole numbers from "
            f"data.crop_px={crop_px} to {LARGEST_PX}"
        )
    return tuple(scales_px)
