"""A look at every file of a split before training: the hash of its content, and whether it is a
whole image.

What was found in a file is kept until the file changes, so that a later look costs one `stat` per
file."""

import hashlib
import json
import os
import struct
import time
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import PIL
from PIL import Image
from zlib_ng.zlib_ng import crc32

from rectifiers.data import jpeg
from rectifiers.data.images import FORMATS, check_pixels
from rectifiers.data.limits import LARGEST_PIXELS
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

# a file that changed more recently may change again without another time of change
SETTLED_NS = 2_000_000_000
JPEG_START = b"\xff\xd8"
PNG_START, PNG_HEADER = (
    b"\x89PNG\r\n\x1a\n",
    struct.Struct(">4sIIB"),
)  # name of the first part, width, height, depth


class Inspection(NamedTuple):
    """The hash of a split, a sentence about each image of it that cannot be read, and how many are
    decoded slowly."""

    digest: str
    unreadable: list[str]
    slow: int = 0  # JPEG files that the C decoder leaves to Pillow


def unreadable_reason(body: bytes) -> str | None:
    """Return why an image file cannot be used, as far as its header, its end and a PNG's checksums
    say it; None where nothing speaks against it.

    A file that is not whole by these signs, or of another format than JPEG and PNG, is decoded.
    """
    is_whole = _png_is_whole(body) if body.startswith(PNG_START) else _jpeg_is_whole(body)
    if is_whole and 0 < _pixels(body) <= LARGEST_PIXELS:
        return None
    try:
        with Image.open(BytesIO(body), formats=FORMATS) as image:
            check_pixels(image)
            if not is_whole:
                image.load()
    except Exception as error:  # a hostile file can raise anything
        return str(error).partition(" <_io")[0]  # Pillow appends the file object
    return None


def _jpeg_is_whole(body: bytes) -> bool:
    return (
        body.startswith(JPEG_START) and b"\xff\xd9" in body[-64:]
    )  # some programs append a few bytes


def _png_is_whole(body: bytes) -> bool:
    """Return whether the checksums of all parts fit, to the one that ends the image."""
    view, start, name = memoryview(body), len(PNG_START), b""
    while name != b"IEND":
        end = start + 8 + int.from_bytes(view[start : start + 4])
        if end + 4 > len(body) or crc32(view[start + 4 : end]) != int.from_bytes(
            view[end : end + 4]
        ):
            return False
        name, start = bytes(view[start + 4 : start + 8]), end + 4
    return True


def _pixels(body: bytes) -> int:
    """Return the number of pixels of a whole file by its header, 0 where it is not a common JPEG or
    PNG of 8 bits."""
    if body.startswith(PNG_START):
        if len(body) < 33:  # of signature and header
            return 0
        name, width, height, depth = PNG_HEADER.unpack_from(body, len(PNG_START) + 4)
        return width * height if name == b"IHDR" and depth <= 8 else 0
    height, width = jpeg.read_size(body) or (0, 0)
    return height * width


def examine_image(path: Path) -> tuple[str, str | None, bool]:
    """Return the blake2b-128 of a file, why it cannot be used as an image, and whether it is a slow
    JPEG."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}); repair or remove it") from error
    is_slow = (
        body.startswith(JPEG_START)
        and not jpeg.unavailable_reason()
        and jpeg.read_size(body) is None
    )
    return hashlib.blake2b(body, digest_size=16).hexdigest(), unreadable_reason(body), is_slow


def memory_path(cache_dir: Path, *about: str) -> Path:
    """Return the file in which findings are kept that depend on `about`, the decoders, and the code
    that finds them."""
    decoders = [PIL.__version__, jpeg.unavailable_reason() is None]
    content = hashlib.blake2b(json.dumps([*about, *decoders]).encode(), digest_size=8)
    content.update(Path(__file__).read_bytes())
    return cache_dir / "inspections" / f"{content.hexdigest()}.json"


def look_at_files(
    paths: Sequence[Path], names: Sequence[str], look: Callable[[Path], Any], memory: Path | None
) -> list:
    """Return what `look` finds in each file, in plain JSON types; files that did not change are not
    opened again.

    names: of the files in the memory. memory: a file, or None to remember nothing. What was found
    is kept, too, where the work ends early.

    Raises:
        InputError: for a file that is not there.
    """
    known = {} if memory is None else _recall(memory)
    found, is_new = [], False
    try:
        with (
            progress_bar("looking at all images", len(paths), "files") as advance,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # Pillow's, of metadata
            for path, name in zip(paths, names, strict=True):
                try:
                    stat = os.stat(path)
                except OSError as error:
                    raise InputError(
                        f"{path} cannot be read ({error}); repair or remove it"
                    ) from error
                state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
                before, finding = known.get(name, (None, None))
                if before != state:
                    finding = look(path)
                    is_new = True
                    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED_NS:
                        known[name] = (state, finding)
                    else:
                        known.pop(name, None)
                found.append(finding)
                advance(1)
    finally:
        if memory is not None and is_new:
            _keep(memory, {name: known[name] for name in names if name in known})
    return found


def _recall(memory: Path) -> dict[str, Any]:
    """Return what `_keep` wrote, or nothing where the file is missing or damaged."""
    try:
        checksum, _, body = memory.read_bytes().partition(b"\n")
        if checksum.decode() == hashlib.blake2b(body, digest_size=16).hexdigest():
            return json.loads(body)
    except (OSError, ValueError):
        pass
    return {}


def _keep(memory: Path, known: dict[str, Any]) -> None:
    body = json.dumps(known, separators=(",", ":")).encode()
    try:
        with atomic_file(memory) as file:
            file.write(hashlib.blake2b(body, digest_size=16).hexdigest().encode() + b"\n" + body)
    except OSError as error:
        raise InputError(
            f"cache_dir cannot be written ({error}); give another cache_dir"
        ) from error
