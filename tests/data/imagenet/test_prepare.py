"""Preparation is a pure function of the archives: of no interruption, no thread, and nothing that
lay there before."""

import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from conftest import ROOT, load_script
from rectifiers.data import jpeg
from rectifiers.data.imagenet import imagenet, shards
from rectifiers.data.imagenet import prepare as preparation
from rectifiers.data.imagenet.archives import Archive, Expected, file_md5
from rectifiers.data.imagenet.prepare import prepare, to_stored
from rectifiers.data.imagenet.shards import different_files
from rectifiers.data.images import read_rgb
from rectifiers.data.sources import folder
from refusals import refused

OPTIONS = {"store": "plain", "shard_bytes": 131072, "threads": 1}


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def unpacked(miniature: Expected, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What people do with the archives by hand: train/<wnid>/*.JPEG and val/<wnid>/*.JPEG."""
    base = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(miniature.archives["train"].path) as outer:
        for info in outer:
            with tarfile.open(fileobj=io.BytesIO(outer.extractfile(info).read())) as inner:  # type: ignore[union-attr]
                if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
                    inner.extraction_filter = tarfile.data_filter
                inner.extractall(base / "train" / info.name.removesuffix(".tar"))
    truth_of = load_script("make_miniature")
    with tarfile.open(miniature.archives["devkit"].path) as kit:
        truth = (
            kit.extractfile("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
            .read()
            .split()
        )  # type: ignore[union-attr]
    wnid_of = {number: wnid for wnid, number in truth_of.ID_OF.items()}
    with tarfile.open(miniature.archives["val"].path) as flat:
        for name, number in zip(sorted(flat.getnames()), truth, strict=True):
            place = base / "val" / wnid_of[int(number)]
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(flat.extractfile(name).read())  # type: ignore[union-attr]
    return base


def test_prepared_images_are_those_of_the_folder(prepared: Path, unpacked: Path) -> None:
    here, there = imagenet(str(prepared)), folder(str(unpacked))
    assert here.classes == there.classes
    assert here.digest == there.digest


def test_the_bytes_are_the_pinned_ones(prepared: Path) -> None:
    lock = yaml.safe_load((ROOT / "pipelines" / "miniature" / "dvc.lock").read_text())["stages"][
        "prepare"
    ]["outs"]
    pinned = {Path(out["path"]).name: out["md5"] for out in lock}
    assert file_md5(prepared / "manifest.json") == pinned["manifest.json"]
    assert different_files(prepared) == []


@pytest.mark.skipif(jpeg.unavailable_reason() is not None, reason="tiling is the C library's")
def test_tiled_store_has_equal_pixels(miniature: Expected, prepared: Path, tmp_path: Path) -> None:
    prepare(miniature, tmp_path / "it", **OPTIONS | {"store": "tiled"})
    manifest = json.loads((tmp_path / "it" / "manifest.json").read_text())
    assert manifest["stored"] == {"kept": 0, "tiled": 93, "pixels": 3}
    plain, tiled = (imagenet(str(root)) for root in (prepared, tmp_path / "it"))
    at = next(i for i in range(72) if b"Exif" in plain.train.encoded(i))
    assert b"Exif" not in tiled.train.encoded(at)
    assert tiled.train.digest() == plain.train.digest()
    assert all((tiled.train.image(i) == plain.train.image(i)).all() for i in range(72))


def test_shards_are_filled_up_to_their_size(miniature: Expected, tmp_path: Path) -> None:
    prepare(miniature, tmp_path / "it", **OPTIONS | {"shard_bytes": 20000})
    index = np.load(tmp_path / "it" / "train" / "index.npy")
    sizes = {
        n: (tmp_path / "it" / "train" / shards.shard_name(n)).stat().st_size
        for n in np.unique(index["shard"])
    }
    for number, size in sizes.items():
        here, after = index[index["shard"] == number], index[index["shard"] == number + 1]
        assert size == here["length"].sum()
        assert size <= 20000 or len(here) == 1  # a large image has a shard of its own
        assert len(after) == 0 or size + after["length"][0] > 20000


class Kill(BaseException):
    """Stands for a process's end: nothing catches it."""


def killed_at(monkeypatch, n: int) -> None:
    """End at the n-th (from 0) of all the moments at which bytes reach a file, a file is moved, or
    a folder goes."""
    moments = 0

    def ending(function: Callable) -> Callable:
        def run(*arguments, **options):
            nonlocal moments
            if moments >= n:
                raise Kill
            moments += 1
            return function(*arguments, **options)

        return run

    for place, name in (
        (os, "fsync"),
        (os, "replace"),
        (Path, "rename"),
        (shutil, "rmtree"),
        (shards.ShardWriter, "add"),
        (preparation, "file_sha256"),
    ):
        monkeypatch.setattr(place, name, ending(getattr(place, name)))


def test_preparation_continues_after_any_kill(miniature, prepared, tmp_path, monkeypatch) -> None:
    """One preparation, killed again and again after a few moments."""
    root, expected, kills = tmp_path / "it", tree(prepared), 0
    draw = random.Random(0)
    while not root.exists():
        with monkeypatch.context() as patch:
            killed_at(patch, draw.choice((1, 3, 8, 20)))
            try:
                prepare(miniature, root, **OPTIONS)
            except Kill:
                kills += 1
                assert kills < 200
    assert kills >= 10
    assert tree(root) == expected  # as soon as it is there, also where the last call was killed
    prepare(miniature, root, **OPTIONS)
    assert tree(root) == expected
    assert os.listdir(tmp_path) == ["it"]


def test_another_plan_starts_anew(miniature, prepared, tmp_path, monkeypatch) -> None:
    root = tmp_path / "it"
    with monkeypatch.context() as patch:
        killed_at(patch, 60)
        with pytest.raises(Kill):
            prepare(miniature, root, **OPTIONS | {"shard_bytes": 50000})
    assert (tmp_path / "it.part").is_dir()
    prepare(miniature, root, **OPTIONS)
    assert tree(root) == tree(prepared)
    # and takes the place of what was there
    prepare(miniature, root, **OPTIONS | {"shard_bytes": 50000})
    assert json.loads((root / "manifest.json").read_text())["shard_bytes"] == 50000
    assert os.listdir(tmp_path) == ["it"]


def test_preparations_exclude_each_other(miniature: Expected, tmp_path: Path) -> None:
    import fcntl

    part = tmp_path / "it.part"
    part.mkdir()
    held = os.open(part, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with refused(r"it\.part is in use by another preparation"):
        prepare(miniature, tmp_path / "it", **OPTIONS)
    os.close(held)


def rebuilt(
    miniature: Expected, tmp_path: Path, role: str, change: Callable[[dict[str, bytes]], object]
) -> Expected:
    """The miniature with one archive's members changed, and its md5 with them."""
    make = load_script("make_miniature")
    with tarfile.open(miniature.archives[role].path) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    change(members)
    path = tmp_path / miniature.archives[role].path.name
    path.write_bytes(make.tar(members))
    return replace(
        miniature, archives={**miniature.archives, role: Archive(path, file_md5(path), None)}
    )


def with_an_image(name: str, body: bytes) -> Callable[[dict[str, bytes]], object]:
    """Return the change that puts an image under `name` in the place of the first one of a
    class."""

    def change(members: dict[str, bytes]) -> None:
        make = load_script("make_miniature")
        with tarfile.open(fileobj=io.BytesIO(members[FIRST])) as tar:
            inner = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
        inner.pop(min(inner))
        members[FIRST] = make.tar(inner | {name: body})

    return change


def wide_png(width: int) -> bytes:
    """A PNG of a few bytes; PNG is the only format of the archives that can be so wide."""
    file = io.BytesIO()
    Image.new("RGB", (width, 20)).save(file, "PNG")
    return file.getvalue()


FIRST = "n01440764.tar"
CHANGES = [
    ("train", lambda m: m.pop(FIRST), "does not hold the classes of the devkit"),
    (
        "train",
        lambda m: m.update({FIRST: m[FIRST][:9000]}),
        r"is no file that belongs|unexpected end of data",
    ),
    ("train", with_an_image("n01440764_\u0661.JPEG", b""), "is no file that belongs there"),
    (
        "train",
        with_an_image("n01440764_1.JPEG", wide_png(70000)),
        "cannot be read as an image .*70000 x 20",
    ),
    ("val", lambda m: m.popitem(), "holds 23 images and must hold 24"),
    ("val", lambda m: m.update({m.popitem()[0]: b"none"}), "cannot be read as an image"),
]


@pytest.mark.parametrize(("role", "change", "sentence"), CHANGES)
def test_bad_archive_leaves_nothing(role, change, sentence, miniature, tmp_path) -> None:
    expected = rebuilt(miniature, tmp_path, role, change)
    with refused(sentence):
        prepare(expected, tmp_path / "it", **OPTIONS)
    assert not (tmp_path / "it").exists()
    assert not (tmp_path / "it.part").exists()


# ---- one image: what is stored has the pixels of the original ----

MINIATURE = load_script("make_miniature")
PIXELS = MINIATURE.photo(0, 0, 0)


def rgb(body: bytes) -> bytes:
    return Image.open(io.BytesIO(body)).convert("RGB").tobytes()


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *((kind, "kept") for kind in (None, "progressive", "444", "422", "grey", "exif")),
        ("cmyk", "pixels"),
        ("png", "pixels"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*EXIF")
def test_every_kind_of_file_keeps_its_pixels(kind: str | None, way: str) -> None:
    original = MINIATURE.encoded(PIXELS, kind)
    stored = to_stored(original, "it", None)
    assert (stored.way, stored.shape) == (way, PIXELS.shape[:2])
    assert (stored.body == original) is (way == "kept")
    decoded = read_rgb(io.BytesIO(stored.body), "it")
    assert decoded.permute(1, 2, 0).numpy().tobytes() == rgb(original)


def test_exif_rotates_nothing() -> None:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6  # turned by 90 degrees
    Image.fromarray(PIXELS).save(file, "JPEG", exif=exif)
    assert to_stored(file.getvalue(), "it", None).shape == PIXELS.shape[:2]


def test_a_transcoder_that_changes_pixels_is_refused() -> None:
    original = MINIATURE.encoded(PIXELS, None)
    same = original[:2] + b"\xff\xfe\0\4hi" + original[2:]  # with a comment
    stored = to_stored(original, "it", lambda _: same)
    assert (stored.body, stored.way) == (same, "tiled")
    unsupported = to_stored(original, "it", lambda _: None)
    assert (unsupported.body, unsupported.way) == (original, "kept")
    other = MINIATURE.encoded(255 - PIXELS, None)
    with refused("storing it would change its pixels, .*to plain"):
        to_stored(original, "it", lambda _: other)
    called: list[bytes] = []
    to_stored(MINIATURE.encoded(PIXELS, "cmyk"), "it", called.append)
    assert not called


def test_tiled_store_needs_the_c_library(miniature, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(jpeg, "unavailable_reason", lambda: "it is not built; call make native")
    with refused(r"data\.store: tiled needs the C extension,.*to plain"):
        prepare(miniature, tmp_path / "it", **OPTIONS | {"store": "tiled"})
    assert not list(tmp_path.iterdir())


def bmp() -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "BMP")
    return file.getvalue()


def deep() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((9, 9), 9000, np.uint16)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cannot identify"),
        (bmp(), "cannot identify"),  # no other decoder is tried
        (deep(), "more than 8 bits"),
        (MINIATURE.encoded(PIXELS, None)[:-900], "truncated"),
        (MINIATURE.encoded(PIXELS, "png")[:-900], "truncated|incomplete"),
    ],
)
def test_a_broken_image_is_named(body: bytes, why: str) -> None:
    with refused(rf"^x\.tar: it\.JPEG cannot be read .*({why})"):
        to_stored(body, "x.tar: it.JPEG", None)


SETTINGS = [
    "",
    "[1]",
    "data: 3",
    "data:\n  root: [",
    "data: {root: x, store: tiled, shard_bytes: 0}",
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    with refused(r"settings\.yaml"):
        load_script("prepare_imagenet").read_settings(tmp_path / "settings.yaml")


@pytest.mark.parametrize("name", ["imagenet", "miniature"])
def test_stages_write_the_folder_of_the_settings(name: str) -> None:
    folder = ROOT / "pipelines" / name
    root = load_script("prepare_imagenet").read_settings(folder / "settings.yaml").root
    stages = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
    assert {str(Path(out).parent) for out in stages["prepare"]["outs"]} == {root}
    if name == "imagenet":  # which a run reads
        conf = yaml.safe_load((ROOT / "conf" / "data" / "imagenet.yaml").read_text())
        assert conf["data"]["root"] == root
