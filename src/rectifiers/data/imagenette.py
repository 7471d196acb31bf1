"""Imagenette 2 (fast.ai): 9,469 + 3,925 photographs of ten classes of ImageNet, in one of its
official sizes or any other."""

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.error import URLError

from torchvision import datasets

from rectifiers.data.sources import Source, folder, missing, root_folder
from rectifiers.runtime.errors import InputError

Size = Literal["full", "320px", "160px"]
IMAGES = {  # of each class, in train and in val
    "n01440764": (963, 387),  # tench
    "n02102040": (955, 395),  # English springer
    "n02979186": (993, 357),  # cassette player
    "n03000684": (858, 386),  # chain saw
    "n03028079": (941, 409),  # church
    "n03394916": (956, 394),  # French horn
    "n03417042": (961, 389),  # garbage truck
    "n03425413": (931, 419),  # gas pump
    "n03445777": (951, 399),  # golf ball
    "n03888257": (960, 390),  # parachute
}


def imagenette(root: str | None = None, size: Size = "320px", download: bool = False) -> Source:
    """Imagenette 2: 9,469 + 3,925 photographs of ten classes of ImageNet.

    root: a folder with `train/<wnid>/` and `val/<wnid>/`, in whatever size its photographs have,
    or one for the official archives, `data/` by default. There, the archive of `size` (of the
    photographs' shorter sides) is downloaded and unpacked where `download` allows it. The hash is
    that of `data=folder`.
    """
    place = root_folder(root)
    has_splits = (place / "train").is_dir() and (place / "val").is_dir()
    base = place if has_splits else _unpacked(place, size, download)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing images: see below
        source = replace(folder(str(base)), name="imagenette")
    reason = _difference(source)
    if reason is not None:
        again = "get the official archive again" if base == place else "remove it and unpack again"
        raise InputError(
            f"{base} holds other images than Imagenette 2's ({reason}); {again}, or read images "
            "of your own by data=folder"
        )
    return source


def _unpacked(place: Path, size: Size, download: bool) -> Path:
    """Return the folder of the official archive of a size, which is made where it is missing."""
    name = "imagenette2" if size == "full" else f"imagenette2-{size.removesuffix('px')}"
    if not (place / name).is_dir():
        try:
            datasets.Imagenette(place, size=size, download=download)
        except (URLError, OSError, RuntimeError) as error:
            file = f"train/ and val/, or {name}.tgz"
            raise missing("imagenette", place, file, error) from error
    return place / name


def _difference(source: Source) -> str | None:
    """Return how a source differs from Imagenette 2 by its classes and numbers of images."""
    if source.test is not None:
        return "it has a test/"
    if missing := IMAGES.keys() - set(source.classes):
        return f"it has no images of {min(missing)}"
    if others := set(source.classes) - IMAGES.keys():
        return f"{min(others)} is none of its classes"
    for part, split in enumerate((source.train, source.val)):
        counts = Counter(split.labels)
        for label, (wnid, images) in enumerate(IMAGES.items()):
            if counts[label] != images[part]:
                name = f"{('train', 'val')[part]}/{wnid}"
                return f"{name} has {counts[label]:,} images and not {images[part]:,}"
    return None
