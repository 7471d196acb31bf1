"""Splits: images with labels, by index, in memory or in files below a folder."""

import hashlib
import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.v2.functional import pil_to_tensor

from rectifiers.data.images import (
    FORMATS,
    Inspection,
    check_pixels,
    digest_files,
    remember,
    unreadable_reason,
)
from rectifiers.runtime.console import progress_bar
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
        content.update(np.asarray(self.labels, dtype="<i8").tobytes())
        return content.hexdigest()


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


def split_balanced(
    labels: Sequence[int], val_fraction: float, split_seed: int
) -> tuple[list[int], list[int]]:
    """Return ascending (train, val) indices, disjoint and complete, with the same share of each
    class in val.

    A pure function of its arguments. A class's share is exact to within one image.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    splitter = StratifiedShuffleSplit(n_splits=1, test_size=val_fraction, random_state=split_seed)
    try:
        train, val = next(splitter.split(np.zeros(len(labels)), labels))
    except ValueError as error:
        raise InputError(
            f"data.val_fraction={val_fraction} leaves a class without images in one split "
            f"({len(labels)} images of {len(set(labels))} classes); give a fraction nearer to 0.5"
        ) from error
    return sorted(train.tolist()), sorted(val.tolist())


# ---- image files ----


def read_rgb(
    file: Path | BytesIO,
    name: str,
    formats: tuple[str, ...] = FORMATS,
    remedy: str = "repair or remove it",
) -> Tensor:
    """Decode an image file to uint8 [3, H, W].

    name: its name in messages. formats: the decoders to try. remedy: the end of the message
    where it cannot be read.

    Raises:
        InputError: for a file that no decoder reads, is too large, or has more than 8 bits per
        channel.
    """
    try:
        with Image.open(file, formats=formats) as image:
            check_pixels(image)
            return pil_to_tensor(image.convert("RGB"))
    except Exception as error:  # a hostile file can raise anything
        reason = str(error).partition(" <_io")[0]  # Pillow appends the file object
        raise InputError(f"{name} cannot be read as an image ({reason}); {remedy}") from error


@dataclass(frozen=True)
class FolderSplit:
    """Image files of any size below a folder, each read as RGB when it is needed."""

    root: Path
    paths: Sequence[Path]
    labels: Sequence[int]

    @classmethod
    def of_classes(
        cls, root: Path, classes: Sequence[str], images: Mapping[str, list[Path]]
    ) -> "FolderSplit":
        """Return the split of the images of each class; a label is a class' place in `classes`."""
        labelled = [
            (path, label) for label, name in enumerate(classes) for path in images.get(name, [])
        ]
        return cls(root, [path for path, _ in labelled], [label for _, label in labelled])

    def image(self, index: int) -> Tensor:
        return read_rgb(self.paths[index], str(self.paths[index]))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of the file, of which a JPEG decoder may read a part."""
        try:
            return self.paths[index].read_bytes()
        except OSError as error:
            raise InputError(
                f"{self.paths[index]} cannot be read ({error}); repair or remove it"
            ) from error

    def shape(self, index: int) -> tuple[int, int]:
        try:
            with Image.open(self.paths[index], formats=FORMATS) as image:
                return image.height, image.width
        except Exception as error:
            raise InputError(
                f"{self.paths[index]} cannot be read as an image ({error}); repair or remove it"
            ) from error

    def digest(self) -> str:
        return self.inspect(None).digest

    def inspect(self, cache_dir: Path | None) -> Inspection:
        """Read every file, unless none has changed since an inspection that `cache_dir` keeps."""
        about = [self._names(), list(self.labels)]
        return remember(cache_dir, self.paths, about, self._inspect)

    def _inspect(self) -> Inspection:
        hashes, unreadable = [], []
        with (
            progress_bar("reading all images", len(self.paths), "files") as advance,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # Pillow's, of metadata
            for index, path in enumerate(self.paths):
                body = self.encoded(index)
                hashes.append(hashlib.blake2b(body, digest_size=16).digest())
                reason = unreadable_reason(body)
                if reason is not None:
                    unreadable.append(
                        f"{path} cannot be read as an image ({reason}); repair or remove it"
                    )
                advance(1)
        return Inspection(
            digest_files(zip(self._names(), self.labels, hashes, strict=True)), unreadable
        )

    def outline(self) -> str:
        """Return a hash of the names, the labels and the sizes of the files."""
        sizes = (b"%d" % path.stat().st_size for path in self.paths)
        return digest_files(zip(self._names(), self.labels, sizes, strict=True))

    def _names(self) -> list[str]:
        """Return the paths below the root, such as "train/cat/1.jpg"."""
        start = len(str(self.root / "x")) - 1
        return [str(path)[start:] for path in self.paths]


def list_classes(folder: Path, skipped: list[str]) -> dict[str, list[Path]]:
    """Return the image files of every sub-folder, by its name; both are sorted, and a class may
    have no images.

    Links are followed to files and to folders, as torchvision does. Images that lie in no class,
    hidden ones, among them the `._name` that macOS writes, and other files are added to `skipped`.

    Raises:
        InputError: for a link to nothing or to a folder around it, for what is neither file nor
        folder, and for a folder that cannot be read. A pipe would be waited for without end, so
        nothing is opened here.
    """
    classes = {}
    for entry in _entries(folder, skipped):
        if entry.is_dir():
            classes[entry.name] = _images_below(entry.path, skipped, around=[folder])
        else:
            skipped.append(entry.path)
    return classes


def _images_below(folder: str, skipped: list[str], around: list[Path]) -> list[Path]:
    if any(os.path.samefile(folder, other) for other in around):
        raise InputError(f"{folder} is a link to a folder that it lies in; remove it")
    images: list[Path] = []
    for entry in _entries(Path(folder), skipped):
        if entry.is_dir():
            images += _images_below(entry.path, skipped, [*around, Path(folder)])
        elif _is_named_as_image(entry.name):
            images.append(Path(entry.path))
        else:
            skipped.append(entry.path)
    return images


def _entries(folder: Path, skipped: list[str]) -> list[os.DirEntry[str]]:
    """Return the files and folders of a folder, sorted by their names and without the hidden ones.

    Raises:
        InputError: for what `list_classes` names, and for a name that is no text.
    """
    entries = []
    try:
        with os.scandir(folder) as scanned:
            for entry in scanned:
                if any("\ud800" <= letter <= "\udfff" for letter in entry.name):  # other bytes
                    raise InputError(f"{entry.path!a} has a name that is no UTF-8 text; rename it")
                if entry.name.startswith("."):
                    if entry.is_dir() or _is_named_as_image(entry.name):
                        skipped.append(entry.path)
                elif entry.is_dir() or entry.is_file():
                    entries.append(entry)
                elif entry.is_symlink() and not os.path.exists(entry.path):
                    raise InputError(f"{entry.path} is a link to nothing; repair or remove it")
                else:
                    raise InputError(f"{entry.path} is neither a file nor a folder; remove it")
    except OSError as error:
        raise InputError(
            f"{folder} cannot be listed ({error}); make it readable or remove it"
        ) from error
    return sorted(entries, key=lambda entry: entry.name)


def _is_named_as_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMG_EXTENSIONS
