"""Sources of images: training and held-out splits of uint8 images with their classes.

A new source is a function here (or in any importable module) that returns a `Source`, and a file in
`conf/data/` that names it. It writes to its `root` only where its parameter `download` is true."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated
from urllib.error import URLError

import numpy as np
import torch
from PIL import Image
from torchvision import datasets

from rectifiers.data.images import Inspection
from rectifiers.data.splits import (
    ArraySplit,
    FolderSplit,
    Split,
    choose,
    list_classes,
    part_digest,
    split_balanced,
    take,
)
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range

UNPINNED = "unpinned-"


@dataclass(frozen=True)
class Source:
    """A data set: its class names in label order, channels (1 or 3) and its splits.

    val chooses rates, drops and the end of a training, and test is looked at once, by a finished
    run. A set with one held-out split has it as val and no test, which is the paper's protocol;
    `three_splits` makes it the test.

    pinned: for prepared data, whether a `dvc.lock` names them; None for other data. Hashes of
    unpinned data begin with UNPINNED, so that no run and no cached statistics of theirs pass for
    those of pinned data. digests: the hashes of the splits as they were opened, where they are
    known. remainder: that of what `three_splits` has left of train."""

    name: str
    classes: tuple[str, ...]
    channels: int
    train: Split
    val: Split
    pinned: bool | None = None
    digests: tuple[str, ...] | None = None
    test: Split | None = None
    remainder: str = ""

    @property
    def tested(self) -> Split:
        """What a finished run is tested on."""
        return self.val if self.test is None else self.test

    @cached_property
    def train_digest(self) -> str:
        """A hash of the content of the training split."""
        return self._mark + (self.remainder or self.split_digests[0])

    @cached_property
    def digest(self) -> str:
        """The data's hash in a record: of the classes and all content of all splits."""
        parts = "\n".join([*self.classes, *self.split_digests])
        return (
            self._mark
            + hashlib.blake2b(parts.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        )

    @cached_property
    def split_digests(self) -> tuple[str, ...]:
        """The hashes of the splits as they were opened."""
        return self.digests or tuple(split.digest() for split in self._splits)

    @property
    def _splits(self) -> list[Split]:
        return [split for split in (self.train, self.val, self.test) if split is not None]

    @property
    def outline(self) -> str:
        """A hash of what is known without reading files: the same on all processes that see the
        same data."""
        return " ".join(getattr(split, "outline", split.digest)() for split in self._splits)

    def inspected(self, cache_dir: Path, *, skip_bad: bool) -> "Source":
        """Return the source with its hashes, for which all files of all splits are read, or as it
        is with known ones.

        Raises:
            InputError: for an image that cannot be read. With `skip_bad`, one of training is named
                in a warning.
        """
        if self.digests is not None:
            return self
        train, *others = (
            split.inspect(cache_dir)
            if hasattr(split, "inspect")
            else Inspection(split.digest(), [])
            for split in self._splits
        )
        fatal = [sentence for inspection in others for sentence in inspection.unreadable]
        if not skip_bad:
            fatal = [*train.unreadable, *fatal]
        elif train.unreadable:
            first = _first_of(train.unreadable)
            warnings.warn(f"{first}; others take the places of such images", stacklevel=2)
        if fatal:
            raise InputError(_first_of(fatal))
        return replace(self, digests=(train.digest, *(other.digest for other in others)))

    @property
    def _mark(self) -> str:
        return UNPINNED if self.pinned is False else ""


def _first_of(sentences: Sequence[str]) -> str:
    more = f" (and {len(sentences) - 1:,} more)" if len(sentences) > 1 else ""
    return f"{sentences[0]}{more}"


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


def digits(
    val_fraction: Annotated[float, Range(gt=0, lt=1)] = 0.25,
    split_seed: Annotated[int, Range(ge=0, le=2**32 - 1)] = 0,
) -> Source:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 grey levels 0..16 (UCI's optical recognition
    test set).

    They are part of scikit-learn's wheel, so nothing is downloaded. The set has no split; this one
    is stratified by class."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = bunch.target.tolist()
    train, val = split_balanced(labels, val_fraction, split_seed)
    train_split, val_split = (
        ArraySplit(images[part], [labels[i] for i in part]) for part in (train, val)
    )
    return Source("digits", tuple(str(c) for c in range(10)), 1, train_split, val_split)


def fashion_mnist(root: str | None = None, download: bool = False) -> Source:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 + 10,000 grey images, 28 x 28, ten classes.

    root: a folder in torchvision's layout, `data/` by default, into which the files are downloaded
    where they are missing and `download` allows it."""
    place = Path(root or "data")
    if root is not None and not place.is_dir():
        raise InputError(
            f"data.root={root} is not a folder; create it, or leave data.root out to use data/"
        )
    try:
        parts = [datasets.FashionMNIST(place, train, download=download) for train in (True, False)]
    except (URLError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"data=fashion_mnist is not under data.root={place} and could not be downloaded "
            f"({reason}); put torchvision's files there, or choose data=digits, which needs none"
            if download
            else f"data=fashion_mnist has no whole files under data.root={place} and "
            "data.download=false; put them there, or give data.download=true"
        ) from error
    except Exception as error:  # damage can raise anything
        raise InputError(
            f"data=fashion_mnist under data.root={place} is damaged ({error}); remove it and fetch "
            "it again"
        ) from error
    train, val = (ArraySplit(part.data[:, None], part.targets.tolist()) for part in parts)
    return Source("fashion_mnist", tuple(datasets.FashionMNIST.classes), 1, train, val)


def folder(root: str | None = None) -> Source:
    """Any folder with `train/<class>/*` and `val/<class>/*`; classes are the sorted names below
    train, images are RGB.

    `test/<class>/*` is a third split. Transparency is dropped, an EXIF rotation is not applied, and
    links are followed. One warning counts the files that are not read and the classes that val or
    test have no images of.

    Raises:
        InputError: for a missing folder, a single class, a class without training images, a class
        of val or test that is not in train, or what is neither file nor folder.
    """
    if root is None:
        raise InputError(
            "data=folder needs data.root=<a folder with train/<class>/* and val/<class>/*>"
        )
    base = Path(root)
    for place in (base, base / "train", base / "val"):
        if not place.is_dir():
            raise InputError(
                f"{place} is not a folder; data.root must hold train/<class>/* and val/<class>/*"
            )
    skipped: list[str] = []
    parts = [part for part in ("train", "val", "test") if (base / part).is_dir()]
    images = {part: list_classes(base / part, skipped) for part in parts}
    classes = tuple(images["train"])
    _check_train(base / "train", images["train"])
    notes = []
    if skipped:
        notes.append(f"{len(skipped):,} files are not read, such as {min(skipped)}")
    for part in parts[1:]:
        lacking = _missing_classes(base / part, images[part], classes)
        if lacking:
            notes.append(
                f"{part} has no images of some classes ({len(lacking):,}, such as {lacking[0]})"
            )
    if notes and world().rank == 0:
        warnings.warn(f"data.root={root}: {'; '.join(notes)}", stacklevel=2)
    splits = {part: FolderSplit.of_classes(base, classes, images[part]) for part in parts}
    return Source("folder", classes, 3, splits["train"], splits["val"], test=splits.get("test"))


def _check_train(folder: Path, images: Mapping[str, Sequence[Path]]) -> None:
    """Raise an InputError unless there are two classes at least, and images of each."""
    classes = list(images)
    if not classes:
        raise InputError(f"{folder} has no class folders; put the images into train/<class>/")
    if len(classes) == 1:
        raise InputError(
            f"{folder} has a single class, {classes[0]}; add a folder for each other class"
        )
    for name, paths in images.items():
        if not paths:
            raise InputError(f"{folder / name} holds no images; add some or remove the class")


def _missing_classes(
    folder: Path, images: Mapping[str, Sequence[Path]], classes: Sequence[str]
) -> list[str]:
    """Return the classes without images in a held-out split.

    Raises:
        InputError: for a class that is not in train, or a split without images.
    """
    for name in images:
        if name not in classes:
            raise InputError(
                f"{folder / name} is a class that {folder.parent / 'train'} has not; add it "
                f"there or remove it from {folder.name}"
            )
    if not any(images.values()):
        raise InputError(f"{folder} holds no images; put them into {folder.name}/<class>/")
    return [name for name in classes if not images.get(name)]


PHOTO_CLASSES, PHOTOS_PER_CLASS = 6, {"train": 12, "val": 4}


def photos(root: str | None = None, download: bool = False) -> Source:
    """Generated JPEG photos of many sizes in ImageNet's layout, 6 classes with 12 + 4 each, written
    to `root` once where `download` allows it; the network is not used.

    A class is a hue and a direction of stripes. The photos only exercise the code; results on them
    mean nothing."""
    base = Path(root or ".cache/photos")
    stamp = base / "complete"
    if not stamp.is_file():
        if not download:
            raise InputError(f"data.root={base} holds no photos yet; give data.download=true")
        try:
            _write_photos(base)
            stamp.touch()
        except OSError as error:
            raise InputError(
                f"data.root={base} cannot be written ({error}); give another"
            ) from error
    return replace(folder(str(base)), name="photos")


def _write_photos(base: Path) -> None:
    for label in range(PHOTO_CLASSES):
        for part, count in PHOTOS_PER_CLASS.items():
            place = base / part / f"n{label:08d}"
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                draw = np.random.default_rng([label, i, len(part)])
                height, width = draw.integers(70, 130, 2)
                y, x = np.mgrid[:height, :width] / 12
                angle = np.pi * label / PHOTO_CLASSES
                stripes = np.sin(x * np.cos(angle) + y * np.sin(angle) + draw.uniform(0, 6))
                hue = np.cos(2 * np.pi * (label / PHOTO_CLASSES + np.arange(3) / 3))
                noise = draw.normal(0, 20, (height, width, 3))
                pixels = 128 + 45 * stripes[..., None] + 40 * hue + noise
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
                    place / f"{part}_{i}.JPEG", quality=90
                )
