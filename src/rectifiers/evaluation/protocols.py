"""Test protocols: which views of an image the network gets, how their scores are averaged, and what
that costs.

A protocol is made by a function `(crop_px, **settings) -> TestProtocol` that a file in
`conf/evaluation/` names. Its `scales_px` are the shorter sides that an image is resized to, each
with its weight in the mean over scales; `views` are what the network gets of one image at a scale,
uint8 [V, C, H, W]; `view_size` is the height and width of all of them, None where these follow the
image's size; `pixels` is how many they have of an image of a size, at the largest scale; `score`
is the logarithm of the mean softmax of views [N, V, C, H, W], float64 [N, classes];
`multiply_adds` is what one image of a size (px) costs over all scales.

Scores are averaged after the softmax: over the views or windows of a scale first, and over scales
then."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms.v2.functional import center_crop, five_crop

from rectifiers.data.preprocess import Preprocess
from rectifiers.data.transforms import pad, resize_shorter, resized
from rectifiers.evaluation.metrics import mean_log_scores, mean_over_views
from rectifiers.models.network import ImageNetwork, Network, SpatialPyramid, bin_edges, of_rows
from rectifiers.models.rows import map_sizes, multiply_adds
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import LARGEST_PX, Range

NEEDS_MAPS = "this network has no conv layers to test on; choose evaluation=[center,ten_view]"
CHUNK_BYTES = 64 * 2**20  # of features at a time: bounds the memory, whatever the size of the image


class ImageClassifier(Protocol):
    """What a protocol tests: a network and the preprocessing before it."""

    network: ImageNetwork
    preprocess: Preprocess

    def __call__(self, images: Tensor) -> Tensor:
        """Map uint8 [N, C, crop, crop] to scores [N, classes]."""
        ...


@dataclass(frozen=True)
class Crops:
    """Crops of the resized image, each through the whole network.

    crop: from the resized image, uint8 [C, H, W], to its views, [num_views, C, height, width].
    scale_px: the shorter side of the resized image. view_size: height and width of all views."""

    crop: Callable[[Tensor], Tensor]
    num_views: int
    scale_px: int
    view_size: tuple[int, int]

    @property
    def scales_px(self) -> Mapping[int, float]:
        return {self.scale_px: 1.0}

    def views(self, image: Tensor, px: int) -> Tensor:
        views = self.crop(resize_shorter(image, px))
        shape = (self.num_views, len(image), *self.view_size)
        if views.shape != shape:
            raise InputError(
                f"a protocol of {self.num_views} views makes {list(views.shape)} of an image; its "
                f"crop must return {list(shape)}"
            )
        return views

    def pixels(self, height: int, width: int) -> int:
        return self.num_views * math.prod(self.view_size)

    def score(self, classifier: ImageClassifier, views: Tensor) -> Tensor:
        scores = classifier(views.flatten(0, 1))
        return mean_over_views(scores.unflatten(0, views.shape[:2]))

    def multiply_adds(self, network: ImageNetwork, height: int, width: int) -> int:
        return self.num_views * network.multiply_adds


def center(crop_px: int, *, scale_px: int) -> Crops:
    """One view, the centre of the resized image."""

    def crop(image: Tensor) -> Tensor:
        return center_crop(image, [crop_px])[None]

    _check_scales([scale_px], crop_px)
    return Crops(crop, 1, scale_px, view_size=(crop_px, crop_px))


def whole(crop_px: int) -> Crops:
    """Each signal of 1 x n as it is."""

    def crop(image: Tensor) -> Tensor:
        if image.shape[1:] != (1, crop_px):
            raise InputError("evaluation=whole is for signals; choose evaluation=center")
        return image[None]

    scale_px = 1  # the height of a signal, which nothing resizes
    return Crops(crop, 1, scale_px, view_size=(1, crop_px))


def ten_view(
    crop_px: int, *, scale_px: int, pad_px: Annotated[int, Range(ge=0, le=LARGEST_PX)] = 0
) -> Crops:
    """Ten views: the four corners of the whole resized image and its centre, and the mirror image
    of each crop.

    pad_px: black pixels that are added to each side before, as in training; the centre is the same
    with them.

    torchvision's `ten_crop` mirrors the image before it crops, which moves the mirrored centre by a
    pixel where the margin is odd."""

    def crops(image: Tensor) -> Tensor:
        five = torch.stack(five_crop(pad(image, pad_px), [crop_px]))
        return torch.cat([five, five.flip(-1)])

    _check_scales([scale_px], crop_px)
    return Crops(crops, 10, scale_px, view_size=(crop_px, crop_px))


@dataclass(frozen=True)
class Dense:
    """The trunk once over the whole resized image and, with `mirror`, once over its mirror image.

    The head scores every window of the last map, of the size that the map of a training crop has.
    """

    crop_px: int
    scales_px: Mapping[int, float]
    mirror: bool = True
    view_size: ClassVar[None] = None  # it follows the image's

    def views(self, image: Tensor, px: int) -> Tensor:
        view = resize_shorter(image, px)[None]
        return torch.cat([view, view.flip(-1)]) if self.mirror else view

    def pixels(self, height: int, width: int) -> int:
        """Return how many pixels the views of an image of this size have at the largest scale."""
        size = resized(height, width, max(self.scales_px))
        return math.prod(size) * (2 if self.mirror else 1)

    def score(self, classifier: ImageClassifier, views: Tensor) -> Tensor:
        network = of_rows(classifier.network)
        maps = network.trunk(classifier.preprocess(views.flatten(0, 1)))
        scores = mean_window_scores(network.head, maps, self._window(network))
        return mean_log_scores(scores.unflatten(0, views.shape[:2]), dim=1)

    def multiply_adds(self, network: ImageNetwork, height: int, width: int) -> int:
        total = 0
        for px in self.scales_px:
            size = resized(height, width, px)
            trunk, head = multiply_adds(of_rows(network).shapes, *size)
            total += trunk + head * self._num_windows(of_rows(network), *size)
        return total * (2 if self.mirror else 1)

    def _num_windows(self, network: Network, height: int, width: int) -> int:
        """Return how many windows are scored of one resized image."""
        window = self._window(network)
        return math.prod(side - window + 1 for side in map_sizes(network.shapes, height, width))

    def _window(self, network: Network) -> int:
        """Return the side of a window, that of the last map in training."""
        if not len(network.trunk):
            raise InputError(NEEDS_MAPS)
        return map_sizes(network.shapes, self.crop_px, self.crop_px)[0]


def dense(crop_px: int, *, scales_px: list, mirror: bool = True) -> Dense:
    """All windows of the last map at each scale, with mirror images (section 3, "Testing")."""
    _check_scales(scales_px, crop_px)
    return Dense(crop_px, dict.fromkeys(scales_px, 1 / len(scales_px)), mirror)


TestProtocol = Crops | Dense


class MapViews(Dense):
    """SPP-net's views, cut from the last map: centre, corners and the middles of the sides, and the
    mirror of each.

    A view of the image becomes the window of the training map's size that lies nearest to it. For
    models A, B and C those are the positions whose centres the view covers, which is SPP-net's own
    rule.
    DEVIATION: SPP-net lets the window's size vary with the view where the stride does not divide
    the crop (14-layer model); a fixed size is what the network was trained on, and what a head
    without a pyramid needs.
    """

    def score(self, classifier: ImageClassifier, views: Tensor) -> Tensor:
        network = of_rows(classifier.network)
        maps = network.trunk(classifier.preprocess(views.flatten(0, 1)))
        maps = maps.unflatten(0, views.shape[:2])

        window = self._window(network)
        stride = math.prod(shape.row.stride for shape in network.shapes)  # px of a map position
        height, width = views.shape[-2:]
        windows = []
        for left, right in self._margins(width):
            # The mirror of a view is cut from the mirrored map, as far from its left as the view is
            # from its right.
            for direction, start in ((maps[:, 0], left), (maps[:, 1], right)):
                x = _nearest(start, stride, maps.shape[-1] - window)
                for top, _ in self._margins(height):
                    y = _nearest(top, stride, maps.shape[-2] - window)
                    windows.append(direction[:, :, y : y + window, x : x + window])
        scores = network.head(torch.stack(windows, dim=1).flatten(0, 1))
        return mean_over_views(scores.unflatten(0, (len(views), -1)))

    def _margins(self, side_px: int) -> list[tuple[int, int]]:
        """Return each view's distances from both ends of a side: one view where the side is the
        crop's, else three."""
        room = side_px - self.crop_px
        return [(0, 0)] if room == 0 else [(0, room), (room // 2, room - room // 2), (room, 0)]

    def _num_windows(self, network: Network, height: int, width: int) -> int:
        return len(self._margins(height)) * len(self._margins(width))


def multi_view(crop_px: int, *, scales_px: list) -> MapViews:
    """Up to 18 views per scale (SPP-net, section 3.1), all with the same weight: 96 at the six
    scales from 224 to 560.

    The scale of the crop itself has a single row of views, and weighs 6 where the others weigh 18.
    """
    _check_scales(scales_px, crop_px)
    num_views = {px: 6 if px == crop_px else 18 for px in scales_px}
    in_all = sum(num_views.values())
    return MapViews(crop_px, {px: count / in_all for px, count in num_views.items()})


@dataclass(frozen=True)
class Combined:
    """Several ways of testing: the mean of their mean scores, each weighing the same."""

    parts: tuple[Dense, ...]

    def multiply_adds(self, network: ImageNetwork, height: int, width: int) -> int:
        return sum(part.multiply_adds(network, height, width) for part in self.parts)


def dense_and_multi_view(crop_px: int, *, dense_scales_px: list, view_scales_px: list) -> Combined:
    """Dense testing and SPP-net's views, each over its own scales, averaged.

    The paper's section 3 names both and not how they are combined, if they are; equal weights are a
    choice of ours."""
    return Combined(
        (dense(crop_px, scales_px=dense_scales_px), multi_view(crop_px, scales_px=view_scales_px))
    )


def _nearest(px: int, stride: int, last: int) -> int:
    """Return the map position nearest to a pixel, halves rounded up, at most `last`."""
    return min((2 * px + stride) // (2 * stride), last)


def _check_scales(scales_px: list, crop_px: int) -> None:
    """Refuse anything but different whole numbers of pixels, as a configuration may give it."""

    def is_usable(px: Any) -> bool:
        return type(px) is int and crop_px <= px <= LARGEST_PX  # True and False are no sizes

    is_filled_list = isinstance(scales_px, list) and len(scales_px) > 0
    if (
        not is_filled_list
        or not all(map(is_usable, scales_px))
        or len(set(scales_px)) < len(scales_px)
    ):
        raise InputError(
            f"the scales {scales_px} of a protocol are not usable; give different whole numbers "
            f"from data.crop_px={crop_px} to {LARGEST_PX}"
        )


def mean_window_scores(head: nn.Sequential, maps: Tensor, window: int) -> Tensor:
    """Return the logarithm of the mean softmax over all `window` x `window` windows of maps
    [N, C, H, W], stride 1: float64 [N, classes].

    head: a SpatialPyramid or Flatten, then layers on vectors. Equal to pooling and scoring each
    window on its own. A bin of the pyramid has the same offset and extent in every window, so one
    stride-1 maximum over the whole map gives that bin for all windows at once; only the fully
    connected layers work window by window."""
    first, rest = head[0], head[1:]
    rows, columns = maps.shape[-2] - window + 1, maps.shape[-1] - window + 1
    if isinstance(first, SpatialPyramid):
        bins = sum(n * n for n in first.levels)
        features = _pyramid_features(first, maps, window)
    else:
        bins = window**2
        features = _flat_features(maps, window)

    row_bytes = len(maps) * columns * maps.shape[1] * bins * maps.element_size()
    step = max(1, CHUNK_BYTES // row_bytes)  # rows of windows at a time
    by_window = []
    for top in range(0, rows, step):
        scores = rest(features(top, min(step, rows - top)).flatten(0, 2))
        by_window.append(scores.unflatten(0, (len(maps), -1)))
    return mean_over_views(torch.cat(by_window, dim=1))


# From the first row of windows and their number, the features [N, count, columns, size] that the
# layers on vectors read of each window.
Features = Callable[[int, int], Tensor]


def _flat_features(maps: Tensor, window: int) -> Features:
    """Return the features of a head that flattens maps: all numbers of a window, channels first."""
    windows = maps.unfold(2, window, 1).unfold(3, window, 1)

    def features(top: int, count: int) -> Tensor:
        return windows[:, :, top : top + count].permute(0, 2, 3, 1, 4, 5).flatten(3)

    return features


def _pyramid_features(pyramid: SpatialPyramid, maps: Tensor, window: int) -> Features:
    """Return the features of a head with a pyramid, from one maximum over the map per distinct size
    of a bin."""
    columns = maps.shape[-1] - window + 1
    levels = []  # of each, its bins as (top, bottom, left, right) within a window
    for n in pyramid.levels:
        edges = bin_edges(window, n)
        levels.append([(a, b, c, d) for a, b in edges for c, d in edges])

    sizes = {(b - a, d - c) for bins in levels for a, b, c, d in bins}
    # a maximum over a column, then over the columns' maxima: bins of one height share the first
    tall = {high: F.max_pool2d(maps, (high, 1), stride=1) for high in {high for high, _ in sizes}}
    maxima = {(high, wide): F.max_pool2d(tall[high], (1, wide), stride=1) for high, wide in sizes}

    def features(top: int, count: int) -> Tensor:
        parts = []
        for level in levels:
            bins = [
                maxima[b - a, d - c][:, :, top + a : top + a + count, c : c + columns]
                for a, b, c, d in level
            ]
            # channels first, then bins, as in SpatialPyramid
            parts.append(torch.stack(bins, dim=2).flatten(1, 2))
        return torch.cat(parts, dim=1).permute(0, 2, 3, 1)

    return features
