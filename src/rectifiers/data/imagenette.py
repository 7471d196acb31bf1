"""Imagenette 2 (fast.ai): 9,469 + 3,925 photographs of ten classes of ImageNet, in one of its
official sizes or any other."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal

from torchvision import datasets

from rectifiers.data.sources import Source, folder, missing
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import root_folder

Size = Literal["full", "320px", "160px"]
NAMES = {  # in words, of the folders of WordNet's numbers
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}
WNIDS = tuple(NAMES)
IMAGES = (9469, 3925)  # in train and in val


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
    counts = len(source.train.labels), len(source.val.labels)
    if (source.classes, counts, source.test) != (WNIDS, IMAGES, None):
        again = "get the official archive again" if base == place else "remove it and unpack again"
        raise InputError(
            f"{base} holds other images than Imagenette 2, which has {IMAGES[0]:,} + {IMAGES[1]:,} "
            f"of ten classes, and no test/; {again}, or read images of your own by data=folder"
        )
    return source


def _unpacked(place: Path, size: Size, download: bool) -> Path:
    """Return the folder of the official archive of a size, which is made where it is missing."""
    name = "imagenette2" if size == "full" else f"imagenette2-{size.removesuffix('px')}"
    if not (place / name).is_dir():
        try:
            datasets.Imagenette(place, size=size, download=download)
        except (OSError, RuntimeError) as error:
            file = f"train/ and val/, or the unpacked {name}/"
            raise missing("imagenette", place, file, error) from error
    return place / name
