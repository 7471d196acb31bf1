"""All images are read before training, and again only where a file of the split has changed."""

import io
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import compose_config, places
from photos import jpeg, photo, write_folder
from rectifiers.data import jpeg as decoder
from rectifiers.data.images import FolderSplit, read_rgb, unreadable_reason
from rectifiers.data.sources import Source, folder
from rectifiers.runtime.errors import InputError
from rectifiers.training import build
from rectifiers.training import train as running
from rectifiers.training.train import train
from refusals import refused


def encoded(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


GREY16 = Image.fromarray(np.full((20, 24), 9000, dtype=np.uint16))
WHOLE = {
    kind: encoded(photo(40, 48), kind)
    for kind in ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
} | {
    "progressive": jpeg(photo(40, 48), progressive=True),
    "grey": jpeg(photo(40, 48).convert("L")),
    "inks": jpeg(photo(40, 48).convert("CMYK")),
    "with bytes appended": jpeg(photo(40, 48)) + b"\r\n",
}


@pytest.mark.parametrize("body", WHOLE.values(), ids=WHOLE)
def test_whole_images_are_accepted(body: bytes) -> None:
    assert unreadable_reason(body) is None


def deep_png() -> bytes:
    """A PNG of one pixel with 16 bits per channel, which Pillow opens as RGB."""
    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(range(7)))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def tiff_of_planes() -> bytes:
    """A TIFF of 2 x 2 px with 16 bits per channel, each channel in a plane of its own."""
    head = b"II*\0" + struct.pack("<I", 8)
    short, long = 3, 4
    start = len(head) + 2 + 9 * 12 + 4  # of what no entry has room for
    entries = (
        *((256, short, 1, 2), (257, short, 1, 2), (258, short, 3, start), (259, short, 1, 1)),
        *((262, short, 1, 2), (273, long, 3, start + 6), (277, short, 1, 3)),
        *((279, long, 3, start + 18), (284, short, 1, 2)),
    )
    fields = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    offsets = (start + 30 + 8 * plane for plane in range(3))
    tail = struct.pack("<3H6I", 16, 16, 16, *offsets, 8, 8, 8) + bytes(24)
    return head + struct.pack("<H", len(entries)) + fields + bytes(4) + tail


def test_of_16_bits_the_higher_8_are_read() -> None:
    assert read_rgb(io.BytesIO(deep_png()), "it").flatten().tolist() == [1, 3, 5]


@pytest.mark.parametrize("kind", sorted(WHOLE.keys() - {"with bytes appended"}))
@pytest.mark.parametrize("share", [0, 0.9])
def test_a_file_that_is_cut_short_is_noticed(kind: str, share: float) -> None:
    body = WHOLE[kind][: int(len(WHOLE[kind]) * share)]
    assert unreadable_reason(body)
    with pytest.raises(InputError):
        read_rgb(io.BytesIO(body), "it")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>not found</html>", "cannot identify image file"),
        (WHOLE["PNG"][:8] + WHOLE["PNG"][-12:], "cannot identify image file"),
        (encoded(GREY16, "PNG"), "more than 8 bits"),
        (encoded(GREY16, "TIFF"), "more than 8 bits"),
        (tiff_of_planes(), "more than 8 bits"),
        (encoded(Image.new("1", (30000, 30000)), "PNG"), "px|exceeds limit"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot identify image file"),
        (WHOLE["PNG"].replace(b"IHDR\x00", b"IHDR\x01"), "cannot identify image file"),
    ],
)
def test_unusable_images_are_refused_by_header(body: bytes, reason: str) -> None:
    assert re.search(reason, unreadable_reason(body) or "")


def scan_of(body: bytes) -> int:
    """The offset of the first entropy-coded byte of a JPEG file."""
    start = body.index(b"\xff\xda")
    return start + 2 + int.from_bytes(body[start + 2 : start + 4])


def cut(body: bytes) -> bytes:
    return body[: (scan_of(body) + len(body)) // 2] + b"\xff\xd9"


def left_out(body: bytes) -> bytes:
    """Without bytes in the middle, and with the same end."""
    middle = (scan_of(body) + len(body)) // 2
    return body[:middle] + body[middle + 200 :]


def zeros(body: bytes) -> bytes:
    middle = (scan_of(body) + len(body)) // 2
    return body[:middle] + bytes(600) + body[middle + 600 :]


def other_restart(body: bytes) -> bytes:
    return body.replace(b"\xff\xd1", b"\xff\xd4", 1)


def leftover(body: bytes) -> bytes:
    return body[:-2] + body[-300:]


FLAVOURS: dict[str, dict[str, object]] = {
    "plain": {},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
    "optimised": {"optimize": True, "subsampling": "4:4:4"},
}
HAS_DECODER = decoder.unavailable_reason() is None


@pytest.mark.skipif(not HAS_DECODER, reason="Pillow drops libjpeg's warnings")
@pytest.mark.parametrize("options", FLAVOURS.values(), ids=FLAVOURS)
@pytest.mark.parametrize("damage", [cut, left_out, zeros, other_restart, leftover])
def test_damage_with_a_good_end_is_found(options: dict[str, object], damage) -> None:
    body = jpeg(photo(90, 120), **options)
    assert unreadable_reason(body) is None
    damaged = damage(body)
    assert damaged[-2:] == b"\xff\xd9"
    if damaged != body:
        assert "Corrupt JPEG data" in (unreadable_reason(damaged) or "")


@pytest.mark.parametrize("padding", [bytes(500), b"\xff" * 7])
def test_padding_is_no_damage(padding: bytes) -> None:
    body = jpeg(photo(90, 120))
    assert unreadable_reason(body[:-2] + padding + body[-2:]) is None


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA"])
def test_png_without_its_last_rows_is_found(mode: str) -> None:
    whole = encoded(photo(40, 48).convert(mode), "PNG")
    assert unreadable_reason(whole) is None
    start = whole.index(b"IDAT")
    rows = zlib.decompress(whole[start + 4 : start + 4 + int.from_bytes(whole[start - 4 : start])])
    body = zlib.compress(rows[: len(rows) // 2])
    chunk = struct.pack(">I", len(body)) + b"IDAT" + body
    chunk += struct.pack(">I", zlib.crc32(b"IDAT" + body))
    end = whole[whole.index(b"IEND") - 4 :]
    assert "bytes of pixels" in (unreadable_reason(whole[: start - 4] + chunk + end) or "")


# ---- a folder ----


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of four JPEG files for training and for validation."""
    return write_folder(tmp_path / "photos")


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The files that were opened, of which the test takes what it has seen."""
    names: list[str] = []
    encoded = FolderSplit.encoded

    def noted(split: FolderSplit, index: int) -> bytes:
        path = split.paths[index]
        names.append(f"{path.parent.parent.name}/{path.parent.name}/{path.name}")
        return encoded(split, index)

    monkeypatch.setattr(FolderSplit, "encoded", noted)
    return names


def look(root: Path) -> Source:
    return folder(str(root)).inspected(root.parent / "cache")


def test_a_second_look_opens_no_file(photos: Path, opened: list[str]) -> None:
    first = look(photos).digest
    assert len(opened) == 16
    assert first == folder(str(photos)).digest
    opened.clear()
    assert look(photos).digest == first
    assert opened == []


def overwrite_in_place(path: Path) -> None:
    """Change a byte and leave size, inode and time of the content as they were."""
    stat = path.stat()
    with open(path, "r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"\x55")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda path: path.write_bytes(jpeg(photo(41, 48))),
    "changed with the same time": overwrite_in_place,
    "replaced": lambda path: (path.unlink(), path.write_bytes(jpeg(photo(40, 48, 7)))),
    "added": lambda path: shutil.copy(path, path.with_name("9.jpg")),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    ("part", "change"), zip(["train", "val"] * 3, CHANGES.values(), strict=False), ids=CHANGES
)
def test_changed_file_changes_the_hash(photos, opened, part, change) -> None:
    first = look(photos).digest
    opened.clear()
    change(photos / part / "a" / "1.jpg")
    second = look(photos).digest
    assert {name.partition("/")[0] for name in opened} == {part}
    assert second != first
    assert second == folder(str(photos)).digest


@pytest.mark.parametrize(
    "damage", [lambda body: body[:-20], lambda body: b"[" * 100_000, lambda body: b"[1, 2]"]
)
def test_damaged_memory_is_made_again(photos, opened, damage) -> None:
    first = look(photos).digest
    opened.clear()
    for memory in (photos.parent / "cache" / "inspections").iterdir():
        memory.write_bytes(damage(memory.read_bytes()))
    assert look(photos).digest == first
    assert len(opened) == 16
    opened.clear()
    look(photos)
    assert opened == []


@pytest.mark.filterwarnings("ignore:.*no images of some classes")
def test_new_class_changes_the_hash(photos: Path) -> None:
    for part in ("val", "train"):
        (photos / part / "a").rename(photos / part / "z")
    look(photos)
    shutil.copytree(photos / "train" / "b", photos / "train" / "a")
    assert look(photos).split_digests == folder(str(photos)).split_digests


def test_folders_share_no_memory(photos: Path) -> None:
    first = look(photos).digest
    other = Path(shutil.copytree(photos, photos.parent / "other"))
    (other / "train" / "a" / "1.jpg").write_bytes(jpeg(photo(40, 48, 7)))
    assert look(other).digest != first
    assert look(photos).digest == first


@pytest.mark.skipif(not HAS_DECODER, reason="Pillow drops libjpeg's warnings")
def test_damaged_image_is_named(photos: Path) -> None:
    victim = photos / "train" / "b" / "2.jpg"
    victim.write_bytes(left_out(victim.read_bytes()))
    with refused(r"train/b/2\.jpg cannot be read \(Corrupt JPEG data"):
        look(photos)


@pytest.mark.parametrize("part", ["train", "val"])
def test_giant_image_is_refused_unread(photos: Path, part: str) -> None:
    victim = photos / part / "a" / "3.jpg"
    os.truncate(victim, 2**40)  # sparse
    with refused(rf"{part}/a/3\.jpg cannot be read \(it has 1,099,511"):
        look(photos)


def test_files_that_are_not_read_are_counted(photos: Path) -> None:
    names = ("a/1.jfif", "a/2.JFIF", "b/in/3.avif", "b/4", "5.jpg", "a/.6.heic", "b/7.jpg")
    (photos / "train" / "b" / "in").mkdir()
    for name in names:
        (photos / "train" / name).write_bytes(WHOLE["JPEG"])
    with pytest.warns(UserWarning, match="files are not read") as caught:
        source = folder(str(photos))
    assert len(caught) == 1
    message = str(caught[0].message)
    for part in ("5 files", "2 .jfif", "1 .avif", "1 without an ending", "1 beside the class"):
        assert part in message
    assert len(source.train.labels) == 9


# ---- a run ----

SMALL = ("data=folder", "model=mini", "data.batch_size=4", "logger=none", "evaluation=center")


@pytest.mark.parametrize(
    ("part", "damage"), [("train", lambda body: b""), ("val", lambda body: body[:-30])]
)
def test_bad_images_stop_the_run(photos: Path, part: str, damage, monkeypatch) -> None:
    monkeypatch.setattr(running, "build", lambda *_: pytest.fail("the run was built"))
    for name in ("1.jpg", "2.jpg"):
        victim = photos / part / "b" / name
        victim.write_bytes(damage(victim.read_bytes()))
    config = compose_config(*SMALL, f"data.root={photos}", *places(photos.parent))
    sentence = rf"{part}/b/1\.jpg cannot be read .*; repair or remove it \(and 1 more\)$"
    for _ in range(2):  # the second time from memory
        with refused(sentence):
            train(config, {})


def test_one_process_looks_for_all(photos: Path, opened: list[str], monkeypatch) -> None:
    found = look(photos).digests
    opened.clear()
    monkeypatch.setattr(build, "broadcast_from_rank_zero", lambda look: found)
    config = compose_config(*SMALL, f"data.root={photos}", f"cache_dir={photos.parent}/none")
    source = folder(str(photos))
    assert build.inspect_source(source, config).digests == found
    outlines = {source.outline}
    (photos / "val" / "b" / "2.jpg").write_bytes(b"of another size")
    outlines.add(folder(str(photos)).outline)
    (photos / "val" / "b" / "2.jpg").rename(photos / "val" / "b" / "7.jpg")
    outlines.add(folder(str(photos)).outline)
    assert len(outlines) == 3
    assert opened == []
