"""Image files: which are read, whether they are whole, and the hash of many. Imports no torch."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import PIL
from PIL import Image

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

LARGEST_PIXELS = 89_000_000  # of an image: 270 MB as RGB
# What an image file may be by its content, whatever its name says. Other decoders of Pillow start
# programs.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
# a file that changed more recently may change again without another time of change
SETTLED_NS = 2_000_000_000


class Inspection(NamedTuple):
    """The hash of a split, and a sentence about each image of it that cannot be read."""

    digest: str
    unreadable: list[str]


def check_pixels(image: Image.Image) -> None:
    """Check, before it is decoded, that an opened image is not too large and has 8 bits per
    channel.

    Raises:
        ValueError: with the reason.
    """
    if image.width * image.height > LARGEST_PIXELS:
        raise ValueError(
            f"it has {image.width} x {image.height} px, more than {LARGEST_PIXELS:,} in all"
        )
    if image.mode.startswith(
        ("I", "F")
    ):  # Pillow clips these to 255: a grey photo would turn white
        raise ValueError(f"it has more than 8 bits per channel, mode {image.mode}")
    if any(
        "16" in str(tile[3]) for tile in getattr(image, "tile", [])
    ):  # a PNG of 16 bits opens as RGB
        raise ValueError("it has 16 bits per channel")


def unreadable_reason(body: bytes) -> str | None:
    """Return why an image file cannot be used, or None.

    Only the header and the end of a JPEG are looked at, which is a hundred times faster than to
    decode it; other files are decoded.
    """
    try:
        with Image.open(BytesIO(body), formats=FORMATS) as image:
            check_pixels(image)
            is_jpeg = image.format in ("JPEG", "MPO")
            if not is_jpeg or b"\xff\xd9" not in body[-64:]:  # some programs append a few bytes
                image.load()
    except Exception as error:  # a hostile file can raise anything
        return str(error).partition(" <_io")[0]  # Pillow appends the file object
    return None


def digest_files(files: Iterable[tuple[str, int, bytes]]) -> str:
    """Return the hash of a split's files in order, each (path such as "train/cat/1.jpg", label, its
    blake2b-128)."""
    content = hashlib.blake2b(digest_size=16)
    for path, label, body in files:
        name = path.encode(errors="surrogateescape")
        content.update(b"%d %d " % (label, len(name)) + name + body)
    return content.hexdigest()


def stat_key(files: Sequence[Path], *about: Any) -> str:
    """Return 16 hex digits of `about`, plain JSON types, and of the state of files: any write to
    one changes them.

    Raises:
        InputError: for a file that is not there.
    """
    content = hashlib.blake2b(json.dumps(about).encode(), digest_size=8)
    for path in files:
        try:
            stat = os.stat(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error}); repair or remove it") from error
        times = (stat.st_mtime_ns, stat.st_ctime_ns)
        is_settled = time.time_ns() - max(times) > SETTLED_NS
        state = [str(path.absolute()), stat.st_size, *times, stat.st_ino]
        content.update(json.dumps(state if is_settled else time.time_ns()).encode())
    return content.hexdigest()


def remember(
    cache_dir: Path | None, files: Sequence[Path], about: Any, inspect: Callable[[], Inspection]
) -> Inspection:
    """Return what `inspect` returns, or returned earlier about files that have not changed since.

    about: what its result depends on beside the files, in plain JSON types. cache_dir: None for
    no memory.
    """
    if cache_dir is None:
        return inspect()
    key = stat_key(files, about, PIL.__version__, Path(__file__).read_text())
    path = cache_dir / "inspections" / f"{key}.json"
    try:
        digest, unreadable = json.loads(path.read_bytes())
        return Inspection(str(digest), [str(sentence) for sentence in unreadable])
    except (OSError, ValueError, TypeError, RecursionError):  # missing or damaged
        inspection = inspect()
    try:
        with atomic_file(path) as file:
            file.write(json.dumps(inspection).encode())
    except OSError as error:
        raise InputError(
            f"cache_dir cannot be written ({error}); give another cache_dir"
        ) from error
    return inspection
