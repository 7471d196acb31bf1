"""CIFAR-10 (Krizhevsky 2009), in one order and with one hash, from its official archive or from a
folder of PNG files.

An image is a row of bytes: its class, then its 3,072 values, the red, green and blue plane, as in
the set's own binary version. The rows of each split are sorted by class and then by the official
file name, which the archive holds too."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.error import URLError

import numpy as np
import torch
from torchvision import datasets
from torchvision.datasets.utils import download_url

from rectifiers.data.cifar10_archive import (
    NAMES,
    PACKED,
    PIXELS,
    UNPACKED,
    is_unpacked,
    read_packed,
    read_unpacked,
)
from rectifiers.data.folders import LeftOut, list_classes, read_rgb
from rectifiers.data.sources import ArraySplit, Source
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DEFAULT = "data"
PER_CLASS = {"train": 5000, "test": 1000}
DIGESTS = (
    "12ff41c8e5e073b315a8cabb9164400e",
    "169e12e58bac22adcea07d97a9bb8377",
)  # blake2b-128 of both splits' rows

Read = Callable[[], np.ndarray]


class _OtherImages(Exception):
    """The images are not those of CIFAR-10."""


def cifar10(root: str | None = None, download: bool = False, cache_dir: str = ".cache") -> Source:
    """CIFAR-10: 50,000 + 10,000 colour images, 32 x 32, ten classes, with the same hash in any of
    its forms.

    root: a folder with the official python archive, packed or unpacked, or with
    `train/<class>/<official name>.png` and `test/...`; `data/` by default. Where `download` allows
    it the archive is downloaded into `data/` or an empty
    folder. cache_dir: where the pixels are kept as one array, as long as the files stay what they
    are.

    Raises:
        InputError: where there are no such files, or they hold other images.
    """
    try:
        rows = _cached(*_find(root, download), Path(cache_dir))
    except _OtherImages as error:
        raise InputError(
            f"data.root={root or DEFAULT} holds other images than CIFAR-10's ({error}); get "
            f"the official {PACKED}, "
            "or read images of your own by data=folder"
        ) from error
    splits = [
        ArraySplit(
            torch.from_numpy(part[:, 1:]).unflatten(1, (3, 32, 32)).contiguous(),
            part[:, 0].tolist(),
        )
        for part in _parts(rows)
    ]
    return Source("cifar10", CLASSES, 3, splits[0], splits[1], digests=DIGESTS)


def _parts(rows: np.ndarray) -> list[np.ndarray]:
    return np.split(rows, [len(CLASSES) * PER_CLASS["train"]])


def _digests(rows: np.ndarray) -> tuple[str, ...]:
    return tuple(
        hashlib.blake2b(part.tobytes(), digest_size=16).hexdigest() for part in _parts(rows)
    )


def _find(root: str | None, download: bool) -> tuple[list[Path], Read]:
    """Return the files that hold the images, and a function that reads the rows of all of them."""
    place = Path(root or DEFAULT)
    if root is not None and not place.is_dir():
        raise InputError(
            f"data.root={root} is not a folder; create it, or leave data.root out to use data/"
        )
    if _has_splits(place):
        images = [
            image for split in PER_CLASS for image in _list_images(place / split, PER_CLASS[split])
        ]
        return [path for path, _ in images], partial(_read_images, images)
    for folder in (place / UNPACKED, place):
        if is_unpacked(folder):
            return [folder / name for name in NAMES], partial(read_unpacked, folder)
    if not (place / PACKED).is_file():
        if root is not None:
            _check_is_empty(place)
        _download(place, download)
    return [place / PACKED], partial(read_packed, place / PACKED)


def _has_splits(folder: Path) -> bool:
    return all((folder / split).is_dir() for split in PER_CLASS)


def _check_is_empty(place: Path) -> None:
    """Refuse a folder of other files: more likely it is a mistake than the place for the
    archive."""
    if place.resolve() == Path(DEFAULT).resolve() or all(
        path.name.startswith(".") for path in place.iterdir()
    ):
        return
    parent = place.absolute().parent
    remedy = (
        f"did you mean its parent, data.root={parent}?"
        if _has_splits(parent)
        else f"put {PACKED} there, give an empty folder for the download, or read images of "
        "your own by data=folder"
    )
    raise InputError(
        f"data.root={place} has no train/ and test/, nor the official archive of CIFAR-10; {remedy}"
    )


def _download(place: Path, is_allowed: bool) -> None:
    if not is_allowed:
        raise InputError(
            f"data=cifar10 has no files under data.root={place} and data.download=false; put "
            f"{PACKED} there, or give data.download=true"
        )
    try:
        download_url(datasets.CIFAR10.url, str(place), PACKED, datasets.CIFAR10.tgz_md5)
    except (URLError, OSError, RuntimeError) as error:
        raise InputError(
            f"data=cifar10 is not under data.root={place} and could not be downloaded "
            f"({' '.join(str(error).split())}); put {PACKED} there, or choose data=digits, "
            "which needs none"
        ) from error


def _list_images(folder: Path, per_class: int) -> list[tuple[Path, int]]:
    """Return the image files of a split in order, with their classes."""
    found = list_classes(folder, LeftOut())
    if tuple(found) != CLASSES:
        raise _OtherImages(f"{folder} has other classes")
    for name, paths in found.items():
        if len(paths) != per_class:
            raise _OtherImages(f"{folder / name} has {len(paths):,} images and not {per_class:,}")
    return [(path, label) for label, paths in enumerate(found.values()) for path in paths]


def _read_images(images: Sequence[tuple[Path, int]]) -> np.ndarray:
    rows = np.empty((len(images), 1 + PIXELS), np.uint8)
    with progress_bar("reading all images", len(images), "files") as advance:
        for row, (path, label) in zip(rows, images, strict=True):
            image = read_rgb(path, str(path))
            if image.shape != (3, 32, 32):
                raise _OtherImages(
                    f"{path} has {image.shape[1]} x {image.shape[2]} px and not 32 x 32"
                )
            row[0], row[1:] = label, image.flatten()
            advance(1)
    return rows


def _cached(files: Sequence[Path], read: Read, cache_dir: Path) -> np.ndarray:
    """Return the rows of all images, uint8 [60000, 3073]: those in the cache, where it knows
    `files` as they are.

    Raises:
        _OtherImages: where they are not those of CIFAR-10, by their hash.
    """
    stats = [(path, os.stat(path)) for path in files]
    states = [
        [str(path.absolute()), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]
        for path, s in stats
    ]
    key = hashlib.blake2b(json.dumps(states).encode(), digest_size=8).hexdigest()
    kept, known = (cache_dir / "cifar10" / name for name in ("rows.npy", key))
    try:
        if known.exists():
            rows = np.load(kept, allow_pickle=False)
            if _digests(rows) == DIGESTS:
                return rows
    except (OSError, EOFError, ValueError):  # it is gone or damaged
        pass
    rows = read()
    if _digests(rows) != DIGESTS:
        raise _OtherImages("their pixels and labels have another hash")
    try:
        with atomic_file(kept) as file:
            np.save(file, rows)
        known.touch()
    except OSError as error:
        raise InputError(
            f"cache_dir cannot be written ({error}); give another cache_dir"
        ) from error
    return rows
