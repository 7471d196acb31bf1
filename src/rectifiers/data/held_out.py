"""Three splits: val chooses rates, drops and the end of a training, and test is looked at once, by
a finished run."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rectifiers.data.sources import ArraySplit, Source, Split
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed

SHARE = 10  # one in so many images of a class is for validation, where no number is given


@dataclass(frozen=True)
class Part:
    """Some images of a split, in its order."""

    whole: Split
    indices: np.ndarray

    @cached_property
    def labels(self) -> Sequence[int]:
        return np.asarray(self.whole.labels)[self.indices].tolist()

    def image(self, index: int) -> Tensor:
        return self.whole.image(int(self.indices[index]))

    def shape(self, index: int) -> tuple[int, int]:
        return self.whole.shape(int(self.indices[index]))

    def digest(self) -> str:
        return part_digest(self.whole.digest(), self.indices)


class EncodedPart(Part):
    """Some images of a split of files."""

    def encoded(self, index: int) -> bytes:
        return self.whole.encoded(int(self.indices[index]))  # type: ignore[attr-defined]


def part_digest(whole: str, indices: np.ndarray) -> str:
    """Return the hash of the images `indices` of a split with the hash `whole`."""
    return hashlib.blake2b(
        f"{whole} ".encode() + indices.astype("<i8").tobytes(), digest_size=16
    ).hexdigest()


def take(split: Split, indices: np.ndarray) -> Split:
    """Return some images of a split, in memory where they are there."""
    if type(split) is ArraySplit:  # one of the user's own may read its images in another way
        return ArraySplit(
            split.images[torch.from_numpy(indices)], np.asarray(split.labels)[indices].tolist()
        )
    return (EncodedPart if hasattr(split, "encoded") else Part)(split, indices)


def three_splits(source: Source, val_per_class: int | None = None) -> Source:
    """Return `source` with its held-out images as test, and a part of its training images as val.

    A source that has three splits already keeps them. The rule is fixed: it depends on the order of
    the training images alone, and on no seed. val_per_class: images of each class; None for a
    tenth, and at least one.

    Raises:
        InputError: where a class has too few images.
    """
    if source.test is not None:
        return source
    train, val = choose(source.train.labels, source.classes, val_per_class)
    return replace(
        source,
        train=take(source.train, train),
        val=take(source.train, val),
        test=source.val,
        digests=source.split_digests,
        remainder=part_digest(source.split_digests[0], train),
    )


def choose(
    labels: Sequence[int], classes: Sequence[str], val_per_class: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending (train, val) indices: see `three_splits`.

    Of each class, images are drawn by a hash of its place and of the draw's number, since
    neighbours in the order of file names may be pictures of one thing."""
    by_class = np.split(
        np.argsort(labels, kind="stable"),
        np.cumsum(np.bincount(labels, minlength=len(classes)))[:-1],
    )
    chosen = []
    for label, (name, own) in enumerate(zip(classes, by_class, strict=True)):
        count = val_per_class or max(1, len(own) // SHARE)
        if count >= len(own):
            fewer = "lower data.val_per_class, " if val_per_class else ""
            raise InputError(
                f"{count} of the {len(own)} training images of class {name} would be for "
                "validation, which leaves none "
                f"to train on; add images, {fewer}or give data.protocol=paper, where the "
                "held-out images both choose "
                "and test"
            )
        drawn: set[int] = set()
        for draw in itertools.count():
            if len(drawn) == count:
                break
            drawn.add(derive_seed("val", label, draw) % len(own))
        chosen.append(own[sorted(drawn)])
    val = np.sort(np.concatenate(chosen))
    return np.setdiff1d(np.arange(len(labels)), val, assume_unique=True), val
