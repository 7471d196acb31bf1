"""Imagenette from a folder or its official archive, with the hash of data=folder."""

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from torchvision import datasets

from rectifiers.data import imagenette as module
from rectifiers.data.imagenette import WNIDS, imagenette
from rectifiers.data.sources import folder
from refusals import refused

CHURCH = "n03028079"


def write_photographs(root: Path) -> Path:
    """Write two photographs of each class for training and one for validation."""
    for label, wnid in enumerate(WNIDS):
        for part, count in (("train", 2), ("val", 1)):
            place = root / part / wnid
            place.mkdir(parents=True)
            for i in range(count):
                name = f"ILSVRC2012_val_{i:08d}" if i else f"{wnid}_{len(part)}"
                Image.new("RGB", (20, 16), (label, i, 9)).save(place / f"{name}.JPEG")
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch) -> Path:
    """A small set like Imagenette, which `imagenette` takes for it."""
    monkeypatch.setattr(module, "IMAGES", (20, 10))
    return write_photographs(tmp_path / "photographs")


@pytest.fixture
def archive(root: Path, tmp_path: Path, monkeypatch) -> Path:
    """The official archive of 160 px, in a folder of its own; `root` leaves."""
    place = tmp_path / "archives"
    place.mkdir()
    with tarfile.open(place / "imagenette2-160.tgz", "w:gz") as file:
        file.add(root, "imagenette2-160")
    shutil.rmtree(root)
    path = place / "imagenette2-160.tgz"
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    url = datasets.Imagenette._ARCHIVES["160px"][0]
    monkeypatch.setitem(datasets.Imagenette._ARCHIVES, "160px", (url, md5))
    return path


def test_a_folder_has_the_hash_of_data_folder(root: Path) -> None:
    source = imagenette(str(root))
    assert source.digest == folder(str(root)).digest
    assert source.classes == WNIDS
    assert (len(source.train.labels), len(source.val.labels)) == (20, 10)


def test_archive_is_unpacked_where_allowed(archive: Path) -> None:
    with refused(r"was not downloaded .*, give data\.download=true"):
        imagenette(str(archive.parent), "160px")
    assert list(archive.parent.iterdir()) == [archive]
    source = imagenette(str(archive.parent), "160px", download=True)
    again = imagenette(str(archive.parent), "160px")
    assert len(source.train.labels) == 20
    assert again.digest == source.digest


def test_incomplete_unpacked_archive_is_removed_first(archive: Path) -> None:
    imagenette(str(archive.parent), "160px", download=True)
    base = archive.parent / "imagenette2-160"
    next((base / "train" / CHURCH).iterdir()).unlink()
    with refused(r"20 \+ 10 of ten classes.*; remove it and unpack again"):
        imagenette(str(archive.parent), "160px", download=True)
    shutil.rmtree(base)
    assert len(imagenette(str(archive.parent), "160px", download=True).train.labels) == 20


CHANGES: dict[str, Callable[[Path], object]] = {
    "a class is missing": lambda root: [
        shutil.rmtree(root / part / CHURCH) for part in ("train", "val")
    ],
    "a class is missing in val": lambda root: shutil.rmtree(root / "val" / CHURCH),
    "another class": lambda root: [
        (root / part / CHURCH).rename(root / part / "n99999999") for part in ("train", "val")
    ],
    "an image is missing": lambda root: next((root / "train" / CHURCH).iterdir()).unlink(),
    "a third split": lambda root: shutil.copytree(root / "val", root / "test"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_photographs_are_refused(root, change, recwarn) -> None:
    change(root)
    with refused(r"holds other images than Imagenette 2, .* again, or"):
        imagenette(str(root))
    assert not recwarn.list
