"""Sources of images: training and held-out splits of uint8 images with their classes.

A new source is a function here (or in any importable module) that returns a `Source`, and a file in
`conf/data/` that names it. It writes to its `root` only where its parameter `download` is true."""

import gzip
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Protocol
from urllib.error import URLError

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import datasets

from rectifiers.data.folders import LeftOut, folder_split, list_classes
from rectifiers.data.inspection import Inspection
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range

UNPINNED = "unpinned-"


class Split(Protocol):
    """Images with labels, by index.

    A split that also has `encoded(index) -> bytes`, the file that `image` decodes to RGB, is read
    faster for JPEG files. One that has `inspect(cache_dir) -> Inspection` is looked at before it is
    used, by one process for all, and `outline() -> str` is then a hash of what is known of it
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
        """Return the source with its hashes, after a look at all files of all splits, or as it is
        with known ones.

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
        if slow := train.slow + sum(found.slow for found in others):
            images = sum(len(split.labels) for split in self._splits)
            warnings.warn(
                f"{slow:,} of {images:,} images are JPEG files that the C decoder leaves to "
                "Pillow, which takes two to "
                "three times as long: progressive, of four colours, or of unusual form",
                stacklevel=2,
            )
        if skip_bad and train.unreadable:
            warnings.warn(
                f"{_first_of(train.unreadable)}; others take the places of such images",
                stacklevel=2,
            )
        fatal = [sentence for found in others for sentence in found.unreadable]
        if fatal := fatal if skip_bad else [*train.unreadable, *fatal]:
            raise InputError(_first_of(fatal))
        return replace(self, digests=(train.digest, *(found.digest for found in others)))

    @property
    def _mark(self) -> str:
        return UNPINNED if self.pinned is False else ""


def _first_of(sentences: Sequence[str]) -> str:
    more = f" (and {len(sentences) - 1:,} more)" if len(sentences) > 1 else ""
    return f"{sentences[0]}{more}"


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


DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
IDX_SHAPES = {"train": (60000, 28, 28), "t10k": (10000, 28, 28)}


def fashion_mnist(root: str | None = None, download: bool = False) -> Source:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 + 10,000 grey images, 28 x 28, ten classes.

    root: a folder with the four `.gz` files (by default that of Debian's package
    `dataset-fashion-mnist`), or one in torchvision's layout. Where neither exists, the files are
    downloaded into `data/` if `download` allows it."""
    folder = Path(root or DEBIAN_FASHION_MNIST)
    if (folder / "train-images-idx3-ubyte.gz").is_file():
        splits = [_read_gz(folder, part) for part in ("train", "t10k")]
    else:
        fetched = _fetch("fashion_mnist", datasets.FashionMNIST, root, download)
        splits = [ArraySplit(part.data[:, None], part.targets.tolist()) for part in fetched]
    return Source("fashion_mnist", tuple(datasets.FashionMNIST.classes), 1, splits[0], splits[1])


def _fetch(name: str, dataset: type, root: str | None, download: bool) -> list:
    """Return both splits of a torchvision data set, downloaded if they are missing."""
    place = Path(root or "data")
    if root is not None and not place.is_dir():
        raise InputError(
            f"data.root={root} is not a folder; create it, or leave data.root out to use data/"
        )
    try:
        return [dataset(place, train=train, download=False) for train in (True, False)]
    except RuntimeError as missing:
        if not download:
            raise InputError(
                f"data={name} has no whole files under data.root={place} and data.download=false; "
                "put them there, or give data.download=true"
            ) from missing
    except Exception as error:  # damage can raise anything
        raise InputError(
            f"data={name} under data.root={place} is damaged ({error}); remove it and fetch it "
            "again"
        ) from error
    try:
        return [dataset(place, train=train, download=True) for train in (True, False)]
    except (URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"data={name} is not under data.root={place} and could not be downloaded "
            f"({' '.join(str(error).split())}); "
            "put torchvision's files there, or choose data=digits, which needs none"
        ) from error


def _read_gz(folder: Path, part: str) -> ArraySplit:
    count, *side = IDX_SHAPES[part]
    images = _read_idx(folder / f"{part}-images-idx3-ubyte.gz", (count, *side))
    labels = _read_idx(folder / f"{part}-labels-idx1-ubyte.gz", (count,))
    return ArraySplit(torch.from_numpy(images)[:, None], labels.tolist())


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read a gzipped IDX file of bytes; its header must give `shape`, and no more than that is
    unpacked."""
    header = np.array([0x00000800 + len(shape), *shape], dtype=">u4").tobytes()
    size = int(np.prod(shape))
    try:
        with gzip.open(path) as file:
            content = file.read(len(header) + size + 1)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read ({error}); install the data again") from error
    if content[: len(header)] != header or len(content) != len(header) + size:
        raise InputError(
            f"{path} is not the IDX file of {shape} bytes that Fashion-MNIST has; install the "
            "data again"
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape).copy()


def folder(root: str | None = None) -> Source:
    """Any folder with `train/<class>/*` and `val/<class>/*`; classes are the sorted names below
    train, images are RGB.

    `test/<class>/*` is a third split. Transparency is dropped, an EXIF rotation is not applied, and
    links are followed. One warning counts what is not read: images that lie in no class, hidden
    files, files of other formats, and the classes that val or test have no images of.

    Raises:
        InputError: for a missing folder, a single class, a class without training images, a class
        of val or test that is not in train, or what is neither file nor folder.
    """
    if root is None:
        raise InputError(
            "data=folder needs data.root=<a folder with train/<class>/* and val/<class>/*>"
        )
    base = Path(root)
    for part in (base, base / "train", base / "val"):
        if not part.is_dir():
            raise InputError(
                f"{part} is not a folder; data.root must hold train/<class>/* and val/<class>/*"
            )
    left_out = LeftOut()
    held_out = ["val", "test"] if (base / "test").is_dir() else ["val"]
    images = {part: list_classes(base / part, left_out) for part in ("train", *held_out)}
    train, classes = images["train"], tuple(images["train"])
    if not classes:
        raise InputError(
            f"{base / 'train'} has no class folders; put the images into train/<class>/"
        )
    if len(classes) == 1:
        raise InputError(
            f"{base / 'train'} has a single class, {classes[0]}; add a folder for each other class"
        )
    for name in classes:
        if not train[name]:
            raise InputError(
                f"{base / 'train' / name} holds no images; add some or remove the class"
            )
    parts = [f"not read are {left_out.sentence()}"] if left_out.counts else []
    for name in held_out:
        for group in images[name]:
            if group not in classes:
                raise InputError(
                    f"{base / name / group} is a class that {base / 'train'} has not; add it "
                    "there or remove it from "
                    f"{name}"
                )
        if not any(images[name].values()):
            raise InputError(f"{base / name} holds no images; put them into {name}/<class>/")
        lacking = [group for group in classes if not images[name].get(group)]
        if lacking:
            parts.append(
                f"{name} has no images of some classes ({len(lacking):,}, such as {lacking[0]})"
            )
    if parts and world().rank == 0:
        warnings.warn(f"data.root={root}: {'; '.join(parts)}", stacklevel=2)
    train_split, *others = (folder_split(base, classes, found) for found in images.values())
    return Source(
        "folder", classes, 3, train_split, others[0], test=others[1] if len(others) > 1 else None
    )


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
