"""Splits: images with labels, by index; parts of them, and the rules that choose the parts."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed

SHARE = 10  # one in so many images of a class is for validation, where no number is given


class Split(Protocol):
    """Images with labels, by index.

    A split that also has `encoded(index) -> bytes`, the file that `image` decodes to RGB, is read
    faster for JPEG files. One that has `inspect(cache_dir) -> Inspection` is inspected before it
    is used, by one process for all, and `outline() -> str` is then a hash of what is known of it
    without reading."""

    @property
    def labels(self) -> Sequence[int]:
        """The class of every image, by index."""
        ...

    def image(self, index: int) -> Tensor:
        """Return one image, uint8 [C, H, W]."""
        ...

    def shape(self, index: int) -> tuple[int, int]:
        """Return the height and width of one image, without decoding it."""
        ...

    def digest(self) -> str:
        """Return a hash of every image's content and label, the same on any machine."""
        ...


@dataclass(frozen=True)
class ArraySplit:
    """Images of one size in memory, uint8 [N, C, H, W]."""

    images: Tensor
    labels: Sequence[int]

    def image(self, index: int) -> Tensor:
        return self.images[index]

    def shape(self, index: int) -> tuple[int, int]:
        height, width = self.images.shape[-2:]
        return height, width

    def digest(self) -> str:
        content = hashlib.blake2b(str(tuple(self.images.shape)).encode(), digest_size=16)
        content.update(self.images.contiguous().numpy().tobytes())
        # with a fixed size and order of bytes, the same on any machine
        content.update(np.asarray(self.labels, dtype="<i8").tobytes())
        return content.hexdigest()


@dataclass(frozen=True)
class Part:
    """The images `indices` of a split, in their order."""

    split: Split
    indices: np.ndarray

    @cached_property
    def labels(self) -> Sequence[int]:
        return np.asarray(self.split.labels)[self.indices].tolist()

    def image(self, index: int) -> Tensor:
        return self.split.image(int(self.indices[index]))

    def shape(self, index: int) -> tuple[int, int]:
        return self.split.shape(int(self.indices[index]))

    def digest(self) -> str:
        return part_digest(self.split.digest(), self.indices)


class EncodedPart(Part):
    """Some images of a split of files."""

    def encoded(self, index: int) -> bytes:
        return self.split.encoded(int(self.indices[index]))  # type: ignore[attr-defined]


def part_digest(digest: str, indices: np.ndarray) -> str:
    """Return the hash of the images `indices` of a split with the hash `digest`."""
    content = f"{digest} ".encode() + indices.astype("<i8").tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def take(split: Split, indices: np.ndarray) -> Split:
    """Return the images `indices` of a split; of images in memory, a copy in memory."""
    if type(split) is ArraySplit:  # a class derived from it may read its images in another way
        labels = np.asarray(split.labels)[indices].tolist()
        return ArraySplit(split.images[torch.from_numpy(indices)], labels)
    if hasattr(split, "encoded"):
        return EncodedPart(split, indices)
    return Part(split, indices)


def choose(
    labels: Sequence[int], classes: Sequence[str], val_per_class: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending (train, val) indices: see `three_splits`.

    Of each class, images are drawn by a hash of its place and of the draw's number. They are not
    simply the last ones: neighbours in the order of file names may be pictures of one thing.

    Raises:
        InputError: where a class would have no image left to train on.
    """
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=len(classes)))
    by_class = np.split(order, ends[:-1])

    chosen: list[int] = []
    for label, (name, members) in enumerate(zip(classes, by_class, strict=True)):
        count = val_per_class or max(1, len(members) // SHARE)
        if count >= len(members):
            raise InputError(
                f"{count} of the {len(members)} training images of class {name} would be for "
                "validation, which leaves none to train on; add images, lower "
                "data.val_per_class, or give data.protocol=paper, where the held-out images both "
                "choose and test"
            )
        drawn, draws = set[int](), itertools.count()
        while len(drawn) < count:  # a place that is drawn twice counts once
            drawn.add(derive_seed("val", label, next(draws)) % len(members))
        chosen += members[sorted(drawn)].tolist()

    val = np.array(sorted(chosen))
    return np.setdiff1d(np.arange(len(labels)), val, assume_unique=True), val
