"""Tiny-ImageNet (Stanford's course CS231n): 100,000 + 10,000 photographs of 200 classes of
ImageNet, 64 x 64, in one order and with one hash, from its official folder or from image folders.

The photographs of each split are sorted by class and then by the official file name. The official
validation images are the held-out split, for the official test images have no labels."""

import hashlib
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rectifiers.data.images import (
    Inspection,
    cached_inspection,
    list_classes,
    read_rgb,
    write_cache,
)
from rectifiers.data.sources import Source
from rectifiers.data.splits import ArraySplit
from rectifiers.runtime import machine
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError, reading
from rectifiers.runtime.files import root_folder

FOLDER = "tiny-imagenet-200"
ADDRESS = f"http://cs231n.stanford.edu/{FOLDER}.zip"
ANNOTATIONS = "val/val_annotations.txt"  # file name, class and box of each validation image
PER_CLASS = {"train": 500, "val": 50}
SHAPE = (3, 64, 64)
DIGESTS = (  # blake2b-128 of the pixels of both splits
    "e4a8b00703cd8af43ee6b16fdf627a7e",
    "efebdb170fc2f390b865671394288af5",
)
WNIDS = """
    n01443537 n01629819 n01641577 n01644900 n01698640 n01742172 n01768244 n01770393 n01774384
    n01774750 n01784675 n01855672 n01882714 n01910747 n01917289 n01944390 n01945685 n01950731
    n01983481 n01984695 n02002724 n02056570 n02058221 n02074367 n02085620 n02094433 n02099601
    n02099712 n02106662 n02113799 n02123045 n02123394 n02124075 n02125311 n02129165 n02132136
    n02165456 n02190166 n02206856 n02226429 n02231487 n02233338 n02236044 n02268443 n02279972
    n02281406 n02321529 n02364673 n02395406 n02403003 n02410509 n02415577 n02423022 n02437312
    n02480495 n02481823 n02486410 n02504458 n02509815 n02666196 n02669723 n02699494 n02730930
    n02769748 n02788148 n02791270 n02793495 n02795169 n02802426 n02808440 n02814533 n02814860
    n02815834 n02823428 n02837789 n02841315 n02843684 n02883205 n02892201 n02906734 n02909870
    n02917067 n02927161 n02948072 n02950826 n02963159 n02977058 n02988304 n02999410 n03014705
    n03026506 n03042490 n03085013 n03089624 n03100240 n03126707 n03160309 n03179701 n03201208
    n03250847 n03255030 n03355925 n03388043 n03393912 n03400231 n03404251 n03424325 n03444034
    n03447447 n03544143 n03584254 n03599486 n03617480 n03637318 n03649909 n03662601 n03670208
    n03706229 n03733131 n03763968 n03770439 n03796401 n03804744 n03814639 n03837869 n03838899
    n03854065 n03891332 n03902125 n03930313 n03937543 n03970156 n03976657 n03977966 n03980874
    n03983396 n03992509 n04008634 n04023962 n04067472 n04070727 n04074963 n04099969 n04118538
    n04133789 n04146614 n04149813 n04179913 n04251144 n04254777 n04259630 n04265275 n04275548
    n04285008 n04311004 n04328186 n04356056 n04366367 n04371430 n04376876 n04398044 n04399382
    n04417672 n04456115 n04465501 n04486054 n04487081 n04501370 n04507155 n04532106 n04532670
    n04540053 n04560804 n04562935 n04596742 n04597913 n06596364 n07579787 n07583066 n07614500
    n07615774 n07695742 n07711569 n07715103 n07720875 n07734744 n07747607 n07749582 n07753592
    n07768694 n07871810 n07873807 n07875152 n07920052 n09193705 n09246464 n09256479 n09332890
    n09428293 n12267677
"""
CLASSES = tuple(WNIDS.split())


def tiny_imagenet(root: str | None = None, cache_dir: str = ".cache") -> Source:
    """Tiny-ImageNet: 100,000 + 10,000 colour photographs, 64 x 64, 200 classes, with the same hash
    in any of its forms.

    root: a folder with what the official archive unpacks to, or with `train/<wnid>/*.JPEG` and
    `val/<wnid>/*.JPEG`; `data/` by default. Nothing is downloaded. cache_dir: where the pixels are
    kept as one array, 1.4 GB, which is used instead of any files from then on; processes that have
    it open share its memory.
    """
    pixels = _cached_pixels(Path(cache_dir), root_folder(root))
    train, val = (ArraySplit(part, _labels(len(part))) for part in _parts(pixels))
    return Source("tiny_imagenet", CLASSES, 3, train, val, digests=DIGESTS)


def _labels(images: int) -> list[int]:
    """Return the labels of a split, which is sorted by class and has as many images of each."""
    return [label for label in range(len(CLASSES)) for _ in range(images // len(CLASSES))]


def _parts(pixels: Tensor) -> Sequence[Tensor]:
    """Return the training and the validation images."""
    return pixels.split([len(CLASSES) * per_class for per_class in PER_CLASS.values()])


def _digests(pixels: Tensor) -> tuple[str, ...]:
    return tuple(
        hashlib.blake2b(part.numpy().data, digest_size=16).hexdigest() for part in _parts(pixels)
    )


def _other_images(place: Path, reason: str) -> InputError:
    return InputError(
        f"data.root={place} holds other images than Tiny-ImageNet's ({reason}); unpack the "
        f"official archive again ({ADDRESS}), or read images of your own by data=folder"
    )


def _cached_pixels(cache_dir: Path, place: Path) -> Tensor:
    """Return all images, uint8 [110000, 3, 64, 64], from the cache or the files."""
    path = cache_dir / "tiny_imagenet" / "pixels.npy"
    cached = _load_cached(cache_dir, path)
    if cached is not None:
        return cached
    pixels = _read(place)
    if _digests(pixels) != DIGESTS:
        raise _other_images(place, "their pixels have another hash")
    write_cache(path, pixels.numpy())
    return pixels


def _load_cached(cache_dir: Path, path: Path) -> Tensor | None:
    """Return the images of the cache, or None where the file is missing, damaged or another's."""
    shape = (len(CLASSES) * sum(PER_CLASS.values()), *SHAPE)
    try:
        # Mapped, so that processes share its memory; what is written to it stays in memory ("c").
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        if array.shape != shape or array.dtype != np.uint8:
            return None
        pixels = torch.from_numpy(array)

        def inspect() -> Inspection:
            return Inspection(" ".join(_digests(pixels)), {})

        # hashing 1.4 GB takes a while, and is left out while the file has not changed
        inspection = cached_inspection(cache_dir, [path], "pixels", inspect)
    except (OSError, EOFError, ValueError):
        return None
    return pixels if inspection.digest == " ".join(DIGESTS) else None


def _read(place: Path) -> Tensor:
    """Return all images, from the form that they have."""
    bases = [base for base in (place, place / FOLDER) if (base / "train").is_dir()]
    if not bases:
        raise InputError(
            f"data=tiny_imagenet is missing in data.root={place}; unpack {ADDRESS} there, or "
            "choose data=digits, which needs no files"
        )
    with reading(bases[0], f"get it again from {ADDRESS}"):
        return _decode(_image_files(bases[0]), bases[0])


def _image_files(base: Path) -> list[Path]:
    """Return the files of all images of the official folder, or of one of image folders, in the
    order of the splits, the classes and the official names."""
    is_official = (base / "val" / "images").is_dir()
    if (base / "test").is_dir() and not is_official:
        raise InputError(
            f"{base / 'test'} is not usable: Tiny-ImageNet's test images have no labels, and its "
            "val images are the test; remove the folder"
        )

    files: list[Path] = []
    for split, per_class in PER_CLASS.items():
        classes = list_classes(base / split) if (base / split).is_dir() else {}
        if split == "val" and set(classes) == {"images"}:  # the official form
            classes = _annotated(classes["images"], (base / ANNOTATIONS).read_text("utf-8"))
        sizes = {wnid: len(paths) for wnid, paths in classes.items()}
        if sizes != dict.fromkeys(CLASSES, per_class):
            reason = f"{split} has not {per_class} images of each of its {len(CLASSES)} classes"
            raise _other_images(base, reason)
        files += [path for wnid in CLASSES for path in classes[wnid]]
    return files


def _annotated(files: Sequence[Path], annotations: str) -> dict[str, list[Path]]:
    """Return the validation images by class, which the official file of annotations has."""
    wnids = dict(line.split("\t")[:2] for line in annotations.splitlines())
    classes: dict[str, list[Path]] = {}
    for file in files:
        classes.setdefault(wnids.get(file.name, ""), []).append(file)
    return classes


def _decode(files: Sequence[Path], base: Path) -> Tensor:
    """Return the pixels of image files below `base`, uint8 [N, 3, 64, 64]."""
    pixels = torch.empty((len(files), *SHAPE), dtype=torch.uint8)

    def decode(index: int) -> None:
        image = read_rgb(files[index], str(files[index]))
        if tuple(image.shape) != SHAPE:
            raise _other_images(base, f"{files[index].relative_to(base)} has not 64 x 64 px")
        pixels[index] = image

    with (
        progress_bar("reading all images", len(files), "files") as advance,
        ThreadPool(machine.usable_cores()) as pool,
    ):
        for _ in pool.imap(decode, range(len(files)), chunksize=64):
            advance(1)
    return pixels
