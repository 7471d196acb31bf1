"""From a source's image to the network's input size: resize the shorter side, crop, flip. All on
uint8 [C, H, W].

A plan of the transform comes first (`draw_plan`, `center_plan`). Pillow executes it here
(`apply_plan`), or `data.jpeg` does, with equal bits, while it decodes. `Reader` reads the views of
a batch from files, or whole images in several sizes; `ArrayViews` takes views, equal in every bit,
from images in memory."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from rectifiers.data import jpeg
from rectifiers.data.images import LARGEST_PIXELS
from rectifiers.data.splits import ArraySplit, Split
from rectifiers.runtime.errors import InputError


@dataclass(frozen=True)
class Geometry:
    """The shorter side after resizing, the side of the square crop, and the augmentation of
    training images.

    flip: whether half of the images are mirrored. scale_jitter_px: the shorter side is drawn from
    this range, both ends included, instead of `resize_px`. color_sigma: the colour shift of
    Krizhevsky et al. (2012), 0.1 there; 0 for none. pad_px: black pixels added to each side of a
    resized training image; the centre view is of the image without them. signal: whether an image
    is a row of `crop_px` numbers, and so is the crop.
    """

    resize_px: int
    crop_px: int
    flip: bool
    scale_jitter_px: tuple[int, int] | None = None
    color_sigma: float = 0.0
    pad_px: int = 0
    signal: bool = False

    @property
    def crop(self) -> tuple[int, int]:
        """Height and width of the crop."""
        return 1 if self.signal else self.crop_px, self.crop_px


@dataclass(frozen=True)
class Plan:
    """The transform of one image: resize to `size` (height, width), pad, crop to `crop`, mirror.

    corner: row and column of the crop's first pixel in the padded image. pad_px: black pixels on
    each side.

    shift: grey levels that are added to red, green and blue afterwards, float64 [3]; None for none.
    """

    size: tuple[int, int]
    corner: tuple[int, int]
    crop: tuple[int, int]
    mirrored: bool
    shift: np.ndarray | None
    pad_px: int = 0


# The covariance of RGB over ImageNet's training pixels in [0, 1], as commonly quoted: eigenvalues,
# and eigenvectors as columns. Krizhevsky et al. write "times the eigenvalue", but their released
# code multiplies by the roots. Which of the two this paper used is unknown ("as in [Krizhevsky]");
# here it is the text's.
COLOR_VALUES = np.array([0.2175, 0.0188, 0.0045])
COLOR_VECTORS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
WHITE = 255
# Random numbers of an image, in this order: for its shorter side, the crop's row and column,
# mirroring, and three for the colours. One is spare: 8 of 8 bytes are the longest blake2b hash.
DRAWS = 8
SMALLEST_DRAW = 2.0**-53  # apart from 0
MAX_RESIZED_BYTES = 2**30  # of the images of an `ArrayViews`


def resized(height: int, width: int, px: int) -> tuple[int, int]:
    """Return the height and width whose shorter side is `px`, the longer one rounded down, as
    torchvision does. An image so long and thin that they exceed LARGEST_PIXELS is refused."""
    longer = int(px * max(height, width) / min(height, width))
    if px * longer > LARGEST_PIXELS:
        raise InputError(
            f"an image of {height} x {width} px would have more than {LARGEST_PIXELS:,} px when "
            f"its shorter side is {px}; remove it"
        )
    return (px, longer) if height <= width else (longer, px)


def resize_shorter(image: Tensor, px: int) -> Tensor:
    """Scale so that the shorter side is `px`: Pillow's bilinear (antialiased), the aspect ratio
    kept.

    Pillow computes in integers, so every machine gets the same bytes; torch's kernels differ
    between machines."""
    return _resize(image, resized(image.shape[-2], image.shape[-1], px))


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(image.shape[-2:]) == size:
        return image
    return F.pil_to_tensor(F.resize(F.to_pil_image(image), list(size)))


def pad(image: Tensor, px: int) -> Tensor:
    """Add `px` black pixels to each side."""
    return torch.nn.functional.pad(image, [px] * 4) if px else image


def draw_numbers(seed: int, epoch: int, indices: Sequence[int]) -> np.ndarray:
    """Return what is random in the plans of the training images `indices`, float64 [n, DRAWS],
    uniform in [0, 1).

    An image's numbers are a hash of (seed, epoch, its index), which costs a tenth of a generator's
    set-up."""
    names = (f"augmentation {seed} {epoch} {index}".encode() for index in indices)
    hashes = b"".join(hashlib.blake2b(name, digest_size=8 * DRAWS).digest() for name in names)
    words = np.frombuffer(hashes, dtype="<u8").reshape(-1, DRAWS)
    return (words >> 11) * SMALLEST_DRAW  # a float64 holds 53 of the 64 bits


def draw_plan(
    geometry: Geometry, seed: int, epoch: int, index: int, shape: tuple[int, int]
) -> Plan:
    """Draw the plan of a training image of `shape` (height, width): a pure function of the
    arguments, so that neither workers nor ranks nor restarts change the network's input."""
    (numbers,) = draw_numbers(seed, epoch, [index])

    low, high = geometry.scale_jitter_px or (geometry.resize_px, geometry.resize_px)
    size = resized(*shape, low + int(numbers[0] * (high - low + 1)))

    # how many places there are for the crop's first row and column
    rows, columns = (size[i] + 2 * geometry.pad_px - geometry.crop[i] + 1 for i in (0, 1))
    corner = int(numbers[1] * rows), int(numbers[2] * columns)

    mirrored = bool(numbers[3] < 0.5) and geometry.flip
    shift = color_shift(geometry, numbers)
    return Plan(size, corner, geometry.crop, mirrored, shift, geometry.pad_px)


def color_shift(geometry: Geometry, numbers: np.ndarray) -> np.ndarray | None:
    """Return the `shift` of a plan by an image's `draw_numbers`."""
    if not geometry.color_sigma:
        return None
    from scipy.special import ndtri  # here and not above: most runs shift no colours

    # The normal distribution's inverse makes uniform numbers normal; of 0 it would be infinite.
    alphas = geometry.color_sigma * ndtri(numbers[4:7] + SMALLEST_DRAW / 2)
    return WHITE * (COLOR_VECTORS @ (COLOR_VALUES * alphas))


def apply_plan(plan: Plan, image: Tensor) -> Tensor:
    """Return the view that `plan` describes, uint8 [C, height, width]; the device adds the
    colour shift."""
    (top, left), (height, width) = plan.corner, plan.crop
    padded = pad(_resize(image, plan.size), plan.pad_px)
    crop = padded[:, top : top + height, left : left + width]
    return crop.flip(-1) if plan.mirrored else crop


def center_plan(geometry: Geometry, shape: tuple[int, int]) -> Plan:
    """Return the plan of the central crop, the view that validation and preprocessing use."""
    size = resized(*shape, geometry.resize_px)
    top, left = (round((size[i] - geometry.crop[i]) / 2) for i in (0, 1))
    return Plan(size, (top, left), geometry.crop, False, None)


PlanFor = Callable[[tuple[int, int]], Plan]  # from an image's height and width


class Reader:
    """Reads views of a split's images; the pixels are the same with the C decoder and without."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.encoded = None if jpeg.unavailable_reason() else getattr(split, "encoded", None)

    def read(self, indices: Sequence[int], plans_for: Sequence[PlanFor], out: Tensor) -> list[Plan]:
        """Write a view of each image into `out`, uint8 [N, C, height, width]; return the
        plans of the views.

        plans_for: makes each image's plan from its height and width.

        Raises:
            InputError: where an image cannot be read.
        """
        # First all files and plans, then all pixels: each part stays in the cache, which is a tenth
        # faster.
        opened = [self._open(*request) for request in zip(indices, plans_for, strict=True)]
        results: list[Plan] = []
        for view, (encoded, plan), index, plan_for in zip(
            out, opened, indices, plans_for, strict=True
        ):
            if plan is not None and _decode_crop(encoded, plan, view):
                results.append(plan)
            else:
                results.append(self._read_by_pillow(index, plan_for, view))
        return results

    def resized(self, index: int, scales_px: Collection[int]) -> list[Tensor]:
        """Return an image resized to each shorter side, uint8 [C, H, W], by Pillow or as it would;
        it is decoded once."""
        encoded = b"" if self.encoded is None else self.encoded(index)
        if shape := jpeg.read_size(encoded):
            images = jpeg.resize(encoded, [resized(*shape, px) for px in scales_px])
            if images is not None:
                return images
        image = self.split.image(index)
        return [resize_shorter(image, px) for px in scales_px]

    def _open(self, index: int, plan_for: PlanFor) -> tuple[bytes, Plan | None]:
        """Return an image's file with its plan; None where the file is not for the C decoder."""
        if self.encoded is None:
            return b"", None
        encoded = self.encoded(index)
        shape = jpeg.read_size(encoded)
        return encoded, None if shape is None else _plan(index, plan_for, shape)

    def _read_by_pillow(self, index: int, plan_for: PlanFor, view: Tensor) -> Plan:
        """Write an image's view, and return its plan."""
        image = self.split.image(index)
        plan = _plan(index, plan_for, (image.shape[-2], image.shape[-1]))
        view.copy_(apply_plan(plan, image))
        return plan


def _plan(index: int, plan_for: PlanFor, shape: tuple[int, int]) -> Plan:
    """Return the plan of an image; an InputError names the image."""
    try:
        return plan_for(shape)
    except InputError as error:
        raise InputError(f"image {index} cannot be used: {error}") from error


def _decode_crop(encoded: bytes, plan: Plan, view: Tensor) -> bool:
    """Write the view of a JPEG file by the C decoder; return False where Pillow has to."""
    if plan.pad_px:  # the decoder crops within the image alone
        return False
    return jpeg.crop(encoded, plan.size, plan.corner, plan.mirrored, view)


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
        if type(split) is not ArraySplit or geometry.scale_jitter_px or not len(split.labels):
            return None

        first = resize_shorter(split.images[0], geometry.resize_px)
        if first.shape == split.images.shape[1:]:  # they have the size already
            return cls(split.images, geometry)
        if first.numel() * len(split.labels) > MAX_RESIZED_BYTES:
            return None
        resized = [resize_shorter(image, geometry.resize_px) for image in split.images]
        return cls(torch.stack(resized), geometry)

    def augmented(
        self, seed: int, epoch: int, indices: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Return training views, uint8 [n, C, height, width], and the colour shifts, float32
        [n, 3], of n `indices`."""
        geometry, (height, width) = self.geometry, self.geometry.crop
        numbers = draw_numbers(seed, epoch, indices)

        images, places = self.images, torch.tensor(indices)
        if geometry.pad_px:  # of this batch alone
            images, places = pad(images[places], geometry.pad_px), torch.arange(len(places))

        corners = numbers[:, 1:3] * (np.array(images.shape[-2:]) - geometry.crop + 1)
        tops, lefts = torch.from_numpy(corners.astype(np.int64)).T
        crops = images.unfold(2, height, 1).unfold(3, width, 1)  # all there are, without a copy
        views = crops[places, :, tops, lefts]

        if geometry.flip:
            mirrored = torch.from_numpy(numbers[:, 3] < 0.5)
            views[mirrored] = views[mirrored].flip(-1)
        if not geometry.color_sigma:
            return views, None
        shifts = np.array([color_shift(geometry, row) for row in numbers], dtype=np.float32)
        return views, torch.from_numpy(shifts)

    def centered(self, indices: Sequence[int]) -> Tensor:
        """Return the central views, uint8 [n, C, height, width], of n `indices`."""
        rows, columns = self.images.shape[-2:]
        top, left = center_plan(self.geometry, (rows, columns)).corner
        height, width = self.geometry.crop
        return self.images[torch.tensor(indices), :, top : top + height, left : left + width]
