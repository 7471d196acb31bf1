"""Tiny-ImageNet from its official folder or image folders, with one hash."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from photos import jpeg
from rectifiers.data import tiny_imagenet as module
from rectifiers.data.images import read_rgb
from rectifiers.data.sources import three_splits
from rectifiers.data.tiny_imagenet import FOLDER, tiny_imagenet
from refusals import refused

WNIDS = ("n01443537", "n01629819", "n12267677")
PER_CLASS = {"train": 12, "val": 2}  # more than 10, because 10.JPEG comes before 2.JPEG
Images = dict[str, dict[str, list[bytes]]]  # by split and class, in the order of their numbers


def write_photographs(images: Images, root: Path) -> Path:
    """Write image folders: train/<wnid>/*.JPEG and val/<wnid>/*.JPEG."""
    for split, classes in images.items():
        for wnid, files in classes.items():
            (root / split / wnid).mkdir(parents=True)
            for i, body in enumerate(files):
                name = f"{wnid}_{i}" if split == "train" else f"val_{WNIDS.index(wnid) + 3 * i}"
                (root / split / wnid / f"{name}.JPEG").write_bytes(body)
    return root


def write_official(images: Images, root: Path) -> Path:
    """Write what the official archive unpacks to, with its test images."""
    plain, base = write_photographs(images, root / "plain"), root / FOLDER
    lines = []
    for path in sorted(plain.glob("*/*/*.JPEG")):
        wnid = path.parent.name
        place = base / ("val" if "val" in path.name else f"train/{wnid}") / "images"
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / path.name)
        lines += [f"{path.name}\t{wnid}\t0\t32\t44\t62\n"] if "val" in path.name else []
    (base / "val" / "val_annotations.txt").write_text("".join(reversed(lines)))
    (base / "train" / WNIDS[0] / f"{WNIDS[0]}_boxes.txt").write_text("a box")
    (base / "test" / "images").mkdir(parents=True)
    (base / "test" / "images" / "test_0.JPEG").write_bytes(images["val"][WNIDS[0]][0])
    return root


FORMS: dict[str, Callable[[Images, Path], Path]] = {
    "image folders": write_photographs,
    "official folder": write_official,
}


@pytest.fixture
def images(monkeypatch) -> Images:
    """A small set like Tiny-ImageNet, in its order, which `tiny_imagenet` takes for it."""
    rng = np.random.default_rng(0)
    made = {
        split: {
            wnid: [
                jpeg(Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)))
                for _ in range(count)
            ]
            for wnid in WNIDS
        }
        for split, count in PER_CLASS.items()
    }
    monkeypatch.setattr(module, "CLASSES", WNIDS)
    monkeypatch.setattr(module, "PER_CLASS", PER_CLASS)
    return made


@pytest.fixture
def known(images: Images, monkeypatch, tmp_path: Path) -> Images:
    """The small set with the hash of its pixels."""
    pixels = module._read(write_photographs(images, tmp_path / "known"))
    monkeypatch.setattr(module, "DIGESTS", module._digests(pixels))
    return images


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_images(known: Images, form: str, tmp_path: Path) -> None:
    root = FORMS[form](known, tmp_path / "there")
    before = sorted(root.rglob("*"))
    source = tiny_imagenet(str(root), cache_dir=str(tmp_path / "cache"))
    assert sorted(root.rglob("*")) == before
    assert (source.classes, source.channels, source.digests) == (WNIDS, 3, module.DIGESTS)
    for split, name in ((source.train, "train"), (source.val, "val")):
        count = PER_CLASS[name]
        assert list(split.labels) == [label for label in range(3) for _ in range(count)]
        order = sorted(range(count), key=str)  # by file name
        for index, (label, i) in enumerate((label, i) for label in range(3) for i in order):
            path = tmp_path / "one.JPEG"
            path.write_bytes(known[name][WNIDS[label]][i])
            assert np.array_equal(split.image(index).numpy(), read_rgb(path, "one").numpy())


def test_validation_images_are_cut_from_train(known: Images, tmp_path: Path) -> None:
    root = write_photographs(known, tmp_path / "there")
    source = three_splits(tiny_imagenet(str(root), str(tmp_path / "cache")), 4)
    assert [len(split.labels) for split in (source.train, source.val)] == [24, 12]
    assert source.test is not None
    assert len(source.test.labels) == 6


def test_cache_replaces_the_files_until_damaged(known: Images, tmp_path: Path) -> None:
    root, cache = write_official(known, tmp_path / "there"), tmp_path / "cache"
    tiny_imagenet(str(root), str(cache))
    (root / FOLDER).rename(tmp_path / "away")
    assert tiny_imagenet(str(root), str(cache)).digests == module.DIGESTS
    (tmp_path / "away").rename(root / FOLDER)
    (kept,) = cache.rglob("*.npy")
    whole = kept.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:1000], b""):
        kept.write_bytes(damaged)
        assert tiny_imagenet(str(root), str(cache)).digests == module.DIGESTS
        assert kept.read_bytes() == whole


def exchange_images(root: Path) -> None:
    paths = [next((root / "train" / wnid).iterdir()) for wnid in WNIDS[:2]]
    bodies = [path.read_bytes() for path in paths]
    for path, body in zip(paths, reversed(bodies), strict=True):
        path.write_bytes(body)


def change_size(root: Path) -> None:
    path = next((root / "val" / WNIDS[2]).iterdir())
    path.write_bytes(jpeg(Image.new("RGB", (64, 63))))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (exchange_images, r"\(their pixels have another hash\); unpack the official"),
        (change_size, r"\(val/n12267677/val_\d\.JPEG has not 64 x 64 px\); unpack the official"),
        (
            lambda root: next((root / "train" / WNIDS[1]).iterdir()).unlink(),
            r"\(train has not 12 images of each of its 3 classes\); unpack the official",
        ),
        (
            lambda root: (root / "val" / WNIDS[1]).rename(root / "val" / "n99999999"),
            r"\(val has not 2 images of each of its 3 classes\); unpack the official",
        ),
        (lambda root: (root / "test").mkdir(), "test images have no labels.*; remove the folder"),
    ],
)
def test_other_images_are_refused(known: Images, tmp_path: Path, change, reason: str) -> None:
    root = write_photographs(known, tmp_path / "there")
    change(root)
    with refused(reason):
        tiny_imagenet(str(root), str(tmp_path / "cache"))


UNREADABLE = rf"{FOLDER} cannot be read \(.*\); get it again from"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace(b"val_0.JPEG", b"val_99.JPEG"), "val has not 2 images of each"),
        (lambda text: b"\xff\xfe no tabs\n", UNREADABLE),
        (lambda text: None, UNREADABLE),  # the file is not there
    ],
)
@pytest.mark.parametrize("has_test", [True, False])
def test_false_annotations_are_one_line(known, tmp_path, damage, reason, has_test) -> None:
    base = write_official(known, tmp_path / "there") / FOLDER
    annotations = base / "val" / "val_annotations.txt"
    content = damage(annotations.read_bytes())
    annotations.unlink() if content is None else annotations.write_bytes(content)
    if not has_test:
        shutil.rmtree(base / "test")
    with refused(reason):
        tiny_imagenet(str(tmp_path / "there"), str(tmp_path / "cache"))


def test_half_unpacked_folder_is_named(known: Images, tmp_path: Path) -> None:
    whole, root = write_official(known, tmp_path / "whole"), tmp_path / "there"
    shutil.copytree(whole / FOLDER / "train", root / FOLDER / "train")
    with refused(rf"{FOLDER} holds other images .*val has not 2 images"):
        tiny_imagenet(str(root), str(tmp_path / "cache"))


def test_missing_data_are_named_with_their_address(tmp_path: Path) -> None:
    with refused(r"^data=tiny_imagenet is missing .*unpack .*\.zip there"):
        tiny_imagenet(str(tmp_path), str(tmp_path / "cache"))
