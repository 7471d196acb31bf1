"""CIFAR-10 (Krizhevsky 2009), in one order and with one hash, from its official archive or from a
folder of PNG files.

An image is a row of bytes: its class, then its 3,072 values, the red, green and blue plane, as in
the set's own binary version. The rows of each split are sorted by class and then by the official
file name, which the archive holds too."""

import hashlib
import io
import pickle
import tarfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from torchvision import datasets
from torchvision.datasets.utils import download_url

from rectifiers.data.images import LARGEST_BYTES, list_classes, read_rgb, write_cache
from rectifiers.data.sources import Source, missing
from rectifiers.data.splits import ArraySplit, take
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import root_folder
from rectifiers.runtime.ranges import Count

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARCHIVE = datasets.CIFAR10.filename
PER_CLASS = {"train": 5000, "test": 1000}
PIXELS = 3 * 32 * 32
LARGEST_ARCHIVE = 2**28  # bytes, of a file that is read into memory; the official one has 170 MB
DIGESTS = (  # blake2b-128 of both splits' rows
    "12ff41c8e5e073b315a8cabb9164400e",
    "169e12e58bac22adcea07d97a9bb8377",
)


def cifar10(
    root: str | None = None,
    download: bool = False,
    cache_dir: str = ".cache",
    train_per_class: Count | None = None,
    halved: bool = False,
) -> Source:
    """CIFAR-10: 50,000 + 10,000 colour images, 32 x 32, ten classes, with the same hash in any of
    its forms.

    train_per_class: so many training images of each class, evenly spaced by file name; None for
    all. halved: whether a pixel is the mean of 2 x 2, rounded half up, so that images are 16 x 16.

    root: a folder with the official python archive, or with `train/<class>/<official name>.png`
    and `test/...`; `data/` by default. Where `download` allows it the archive is downloaded into
    `data/` or an empty folder. cache_dir: where the pixels are kept as one array, which is used
    instead of any files from then on.
    """
    rows = _cached_rows(Path(cache_dir), root_folder(root), download)
    train, val = (_split_of(part) for part in _parts(rows))
    if train_per_class is None and not halved:
        return Source("cifar10", CLASSES, 3, train, val, digests=DIGESTS)

    if train_per_class is not None:
        train = _evenly_spaced(train, min(train_per_class, PER_CLASS["train"]))
    if halved:
        train, val = _halved(train), _halved(val)
    return Source("cifar10", CLASSES, 3, train, val)


def _split_of(rows: np.ndarray) -> ArraySplit:
    images = torch.from_numpy(rows[:, 1:]).unflatten(1, (3, 32, 32)).contiguous()
    return ArraySplit(images, rows[:, 0].tolist())


def _evenly_spaced(train: ArraySplit, number: int) -> ArraySplit:
    """Return `number` training images of each class."""
    size = PER_CLASS["train"]
    firsts = np.arange(len(CLASSES)) * size  # images are sorted by class and file name
    spaced = np.arange(number) * size // number
    indices = np.add.outer(firsts, spaced).ravel()
    part = take(train, indices)
    assert isinstance(part, ArraySplit)  # as images in memory are
    return part


def _halved(split: ArraySplit) -> ArraySplit:
    """Return the means of 2 x 2 pixels, in integers, so that every machine has the same bytes."""
    blocks = split.images.unflatten(-1, (16, 2)).unflatten(-3, (16, 2))
    sums = blocks.sum((-1, -3), dtype=torch.int16)
    return ArraySplit(((sums + 2) // 4).to(torch.uint8), split.labels)


def _parts(rows: np.ndarray) -> list[np.ndarray]:
    return np.split(rows, [len(CLASSES) * PER_CLASS["train"]])


def _digests(rows: np.ndarray) -> tuple[str, ...]:
    return tuple(
        hashlib.blake2b(part.tobytes(), digest_size=16).hexdigest() for part in _parts(rows)
    )


def _other_images(place: Path, reason: str) -> InputError:
    return InputError(
        f"data.root={place} holds other images than CIFAR-10's ({reason}); get the official "
        f"{ARCHIVE}, or read images of your own by data=folder"
    )


def _cached_rows(cache_dir: Path, place: Path, download: bool) -> np.ndarray:
    """Return the rows of all images, uint8 [60000, 3073], from the cache or the files."""
    path = cache_dir / "cifar10" / "rows.npy"
    try:
        rows = np.load(path, allow_pickle=False)
        if _digests(rows) == DIGESTS:
            return rows
    except (OSError, EOFError, ValueError):  # it is missing or damaged
        pass
    rows = _read(place, download)
    if _digests(rows) != DIGESTS:
        raise _other_images(place, "their pixels and labels have another hash")
    write_cache(path, rows)
    return rows


def _read(place: Path, download: bool) -> np.ndarray:
    """Return the rows of all images, from the form that they have."""
    if all((place / split).is_dir() for split in PER_CLASS):
        return _read_images(place)
    if not (place / ARCHIVE).is_file():
        _download(place, download)
    return _read_archive(place / ARCHIVE)


def _download(place: Path, is_allowed: bool) -> None:
    """Download the official archive into `place`, which is `data/` or empty."""
    is_default = place.resolve() == Path("data").resolve()
    if not is_default and any(not path.name.startswith(".") for path in place.iterdir()):
        raise InputError(  # more likely a mistake than the place for the archive
            f"data.root={place} contains neither train/ and test/ nor {ARCHIVE}; give a folder "
            f"that does, an empty one to download into, or data=folder for images of your own"
        )
    if not is_allowed:
        raise missing("cifar10", place, ARCHIVE, "data.download=false")
    try:
        download_url(datasets.CIFAR10.url, str(place), ARCHIVE, datasets.CIFAR10.tgz_md5)
    except (OSError, RuntimeError) as error:
        raise missing("cifar10", place, ARCHIVE, error) from error


def _read_images(root: Path) -> np.ndarray:
    """Return the rows of all images of a folder of PNG files."""
    images: list[tuple[Path, int]] = []  # files with their labels
    for split, per_class in PER_CLASS.items():
        classes = list_classes(root / split)
        sizes = {name: len(paths) for name, paths in classes.items()}
        if sizes != dict.fromkeys(CLASSES, per_class):
            raise _other_images(root, f"{split} has not {per_class:,} images of each class")
        for label, paths in enumerate(classes.values()):
            images += [(path, label) for path in paths]

    rows = np.empty((len(images), 1 + PIXELS), np.uint8)
    with progress_bar("reading all images", len(images), "files") as advance:
        for row, (path, label) in zip(rows, images, strict=True):
            if path.stat().st_size > LARGEST_BYTES:
                raise unreadable(path, f"it has more than {LARGEST_BYTES:,} bytes")
            image = read_rgb(path, str(path))
            if image.shape != (3, 32, 32):
                raise _other_images(root, f"{path} has not 32 x 32 px")
            row[0], row[1:] = label, image.flatten()
            advance(1)
    return rows


def _read_archive(path: Path) -> np.ndarray:
    """Return the rows of all images of the official archive. Nothing is unpickled but what has the
    official md5, and nothing is written to disk."""
    is_small = path.stat().st_size <= LARGEST_ARCHIVE
    body = path.read_bytes() if is_small else b""  # which has another md5
    if hashlib.md5(body, usedforsecurity=False).hexdigest() != datasets.CIFAR10.tgz_md5:
        raise InputError(
            f"{path} is not the official one, by its md5; remove it and get the official one"
        )
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        splits = [
            _unpickle_rows(archive, [name for name, _ in batches])
            for batches in (datasets.CIFAR10.train_list, datasets.CIFAR10.test_list)
        ]
    return np.concatenate(splits)


def _unpickle_rows(archive: tarfile.TarFile, batches: Sequence[str]) -> np.ndarray:
    """Return the rows of one split, whose images lie shuffled in several pickled batches."""
    images: list[tuple[int, bytes, np.ndarray]] = []  # class, file name, pixels
    for name in batches:
        member = archive.extractfile(f"{datasets.CIFAR10.base_folder}/{name}")
        assert member is not None
        batch = pickle.load(member, encoding="bytes")
        pixels = batch[b"data"].reshape(-1, PIXELS)
        images += zip(batch[b"labels"], batch[b"filenames"], pixels, strict=True)

    images.sort(key=itemgetter(0, 1))
    labels = np.array([label for label, _, _ in images], np.uint8)
    return np.column_stack([labels, np.stack([pixels for _, _, pixels in images])])
