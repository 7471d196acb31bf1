"""Imagenette 2 (fast.ai): 9,469 + 3,925 photographs of ten classes of ImageNet, in one of its
official sizes or any other."""

import re
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.error import URLError

from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from rectifiers.data.images import FolderSplit
from rectifiers.data.sources import Source, failed_download, folder, not_official, root_folder
from rectifiers.runtime.errors import InputError

Size = Literal["full", "320px", "160px"]
ARCHIVES: dict[Size, tuple[str, str]] = {  # file and md5, which torchvision keeps to itself
    "full": ("imagenette2.tgz", "fe2fc210e6bb7c5664d602c3cd71e612"),
    "320px": ("imagenette2-320.tgz", "3df6f0d01a2c9592104656642f5e78a3"),
    "160px": ("imagenette2-160.tgz", "e793b78cc4c9e9a4ccc0c1155377a412"),
}
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
NAME = re.compile(r"(?P<wnid>n\d{8})_\d+\.JPEG|ILSVRC2012_val_\d{8}\.JPEG")


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
        warnings.simplefilter("ignore")  # of missing images and other files: see below
        source = replace(folder(str(base)), name="imagenette")
    reason = _difference(source)
    if reason is not None:
        again = "get the official archive again" if base == place else "remove it and unpack again"
        raise InputError(
            f"{base} holds other images than Imagenette 2's ({reason}); {again}, or read images "
            "of your own by data=folder"
        )
    return source


def _unpacked(place: Path, size: Size, is_allowed: bool) -> Path:
    """Return the folder of the official archive of a size, which is made where it is missing."""
    name, md5 = ARCHIVES[size]
    archive, base = place / name, place / Path(name).stem
    if base.is_dir():
        return base
    if archive.exists() and not check_integrity(archive, md5):
        raise not_official(archive)
    if not is_allowed:
        raise InputError(
            f"data.root={place} contains neither train/ and val/ nor {base.name}; give the folder "
            f"of the photographs, or data.download=true to fetch and unpack {name}"
        )
    try:
        datasets.Imagenette(place, size=size, download=True)
    except (URLError, OSError, RuntimeError) as error:
        raise failed_download("imagenette", place, name, error) from error
    return base


def _difference(source: Source) -> str | None:
    """Return how a source differs from Imagenette 2 by its classes, numbers and names of files."""
    if source.test is not None:
        return "it has a test/"
    if missing := IMAGES.keys() - set(source.classes):
        return f"it has no images of {min(missing)}"
    if others := set(source.classes) - IMAGES.keys():
        return f"{min(others)} is none of its classes"
    for part, split in enumerate((source.train, source.val)):
        assert isinstance(split, FolderSplit)
        counts = Counter(split.labels)
        for label, (wnid, images) in enumerate(IMAGES.items()):
            if counts[label] != images[part]:
                name = f"{('train', 'val')[part]}/{wnid}"
                return f"{name} has {counts[label]:,} images and not {images[part]:,}"
        for path, label in zip(split.paths, split.labels, strict=True):
            match = NAME.fullmatch(path.name)
            if match is None or match["wnid"] not in (None, source.classes[label]):
                return f"{path} has another name than ImageNet's"
    return None
