"""Image files: which are read, whether they are whole, the hash of many, and a split of them."""

import hashlib
import json
import math
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
from PIL import Image
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.v2.functional import pil_to_tensor

from rectifiers.data import jpeg
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import atomic_file

LARGEST_PIXELS = 89_000_000  # of an image: 270 MB as RGB; Pillow itself warns from 89,478,485 on
LARGEST_BYTES = 2**29  # of an image's file: RGB of 16 bits, not compressed
# By colour type: grey, RGB, palette, grey with alpha, RGB with alpha.
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# What an image file may be by its content, whatever its name says. Other decoders of Pillow start
# programs.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")


class Inspection(NamedTuple):
    """The hash of a split, and a sentence about each image of it that cannot be read, by index."""

    digest: str
    unreadable: dict[int, str]


def check_pixels(image: Image.Image) -> None:
    """Raise a ValueError where an opened image is too large, or Pillow would read it wrongly."""
    if image.width * image.height > LARGEST_PIXELS:
        raise ValueError(
            f"it has {image.width} x {image.height} px, more than {LARGEST_PIXELS:,} in all"
        )
    # Pillow clips modes I and F to 255, so a grey photo would turn white, and reads a TIFF's planes
    # of 16 bits as if they had 8; of other formats it keeps the higher 8 of 16 bits
    tags = image.tag_v2 if isinstance(image, TiffImageFile) else {}
    if image.mode.startswith(("I", "F")) or max(tags.get(BITSPERSAMPLE, (1,))) > 8:
        raise ValueError(f"it has more than 8 bits per channel, mode {image.mode}")


def unreadable_reason(body: bytes) -> str | None:
    """Return why an image file cannot be used, or None.

    Of a JPEG that ends as it should only the coefficients are read, which takes a third of decoding
    it; other files are decoded.
    """
    try:
        with Image.open(BytesIO(body), formats=FORMATS) as image:
            check_pixels(image)
            is_jpeg = image.format in ("JPEG", "MPO")
            if not is_jpeg or b"\xff\xd9" not in body[-64:]:  # some programs append a few bytes
                image.load()
            if is_jpeg and (warning := jpeg.damage(body)):
                return warning
            if image.format == "PNG":
                return _short_png(body, image)
    except Exception as error:  # a hostile file can raise anything
        return _reason(error)
    return None


def _short_png(body: bytes, image: Image.Image) -> str | None:
    """Return that the pixels of a PNG end before its last row, or None; Pillow leaves what is
    missing black."""
    if image.info.get("interlace"):  # rows of several sizes, which are not counted here
        return None

    bit_depth, color_type = body[24], body[25]  # of the header
    pixel_bits = bit_depth * PNG_CHANNELS[color_type]
    row_bytes = 1 + math.ceil(image.width * pixel_bits / 8)  # each begins with its filter's number
    expected = image.height * row_bytes

    # A chunk is its size (4 bytes), its kind (4), its content and a checksum (4). The first one
    # follows the 8 bytes that every PNG begins with.
    stream, at, length = zlib.decompressobj(), 8, 0
    while at < len(body) and length < expected:
        size, kind = int.from_bytes(body[at : at + 4]), body[at + 4 : at + 8]
        if kind == b"IDAT":
            length += len(stream.decompress(body[at + 8 : at + 8 + size]))
        at += 12 + size

    if length < expected:
        return f"it has {length:,} bytes of pixels, not {expected:,}"
    return None


def _reason(error: Exception) -> str:
    return str(error).partition(" <_io")[0]  # Pillow appends the file object


def read_rgb(file: Path | BytesIO, name: str, remedy: str = "repair or remove it") -> Tensor:
    """Decode an image file to uint8 [3, H, W]; an InputError where that cannot be. The message
    begins with `name` and ends with `remedy`."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            check_pixels(image)
            return pil_to_tensor(image.convert("RGB"))
    except Exception as error:  # a hostile file can raise anything
        raise unreadable(name, _reason(error), remedy) from error


def digest_files(files: Iterable[tuple[str, int, bytes]]) -> str:
    """Return the hash of a split's files in order, each (path such as "train/cat/1.jpg", label, its
    blake2b-128)."""
    content = hashlib.blake2b(digest_size=16)
    for path, label, file_digest in files:
        name = path.encode(errors="surrogateescape")  # a name need not be UTF-8
        # with its length, so that no other name and content give the same bytes
        content.update(b"%d %d " % (label, len(name)) + name + file_digest)
    return content.hexdigest()


def cached_inspection(
    cache_dir: Path, files: Sequence[Path], about: object, inspect: Callable[[], Inspection]
) -> Inspection:
    """Return what `inspect` returns, or returned earlier about files that have not changed since.

    about: what its result depends on beside the files, in plain JSON types. The cache holds one
    file per inspection, `<cache_dir>/inspections/<key>.json`: the hash of the split, and the
    sentences about unreadable images by index."""
    path = cache_dir / "inspections" / f"{_inspection_key(files, about)}.json"
    try:
        digest, bad = json.loads(path.read_bytes())
        return Inspection(digest, {int(index): text for index, text in bad.items()})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):  # missing or damaged
        inspection = inspect()
    write_cache(path, json.dumps(inspection).encode())
    return inspection


def _inspection_key(files: Sequence[Path], about: object) -> str:
    """Return 16 hex digits that change with any file, and with the programs that judge files."""
    has_decoder = jpeg.unavailable_reason() is None
    judges = [about, PIL.__version__, has_decoder, Path(__file__).read_text()]
    key = hashlib.blake2b(json.dumps(judges).encode(), digest_size=8)
    for file in files:
        stat = file.stat()
        # the times and the inode tell a changed file of the same size without reading it
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        key.update(json.dumps([str(file.absolute()), *state]).encode())
    return key.hexdigest()


def write_cache(path: Path, content: bytes | np.ndarray) -> None:
    """Write a file of the cache, whole or not at all; an array as NumPy's own file."""
    try:
        with atomic_file(path) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                np.save(file, content, allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"cache_dir cannot be written ({error}); give another cache_dir"
        ) from error


@dataclass(frozen=True)
class FolderSplit:
    """Image files of any size below the folder `root`, each read as RGB when it is needed."""

    root: Path
    paths: Sequence[Path]
    labels: Sequence[int]

    def image(self, index: int) -> Tensor:
        return read_rgb(BytesIO(self.encoded(index)), str(self.paths[index]))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of the file, of which a JPEG decoder may read a part."""
        path = self.paths[index]
        try:
            if (size := path.stat().st_size) > LARGEST_BYTES:
                raise OSError(f"it has {size:,} bytes, more than {LARGEST_BYTES:,}")
            return path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error

    def shape(self, index: int) -> tuple[int, int]:
        try:
            with Image.open(self.paths[index], formats=FORMATS) as image:  # reads the header alone
                return image.height, image.width
        except Exception as error:
            raise unreadable(self.paths[index], _reason(error)) from error

    def digest(self) -> str:
        return self._inspect().digest

    def inspect(self, cache_dir: Path) -> Inspection:
        """Read every file, unless none has changed since an inspection that `cache_dir` keeps."""
        about = [self._names(), list(self.labels)]
        return cached_inspection(cache_dir, self.paths, about, self._inspect)

    def _inspect(self) -> Inspection:
        hashes: list[bytes] = []
        bad: dict[int, str] = {}
        with (
            progress_bar("reading all images", len(self.paths), "files") as advance,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # Pillow's, of metadata
            for index in range(len(self.paths)):
                body, problem = self._read_and_judge(index)
                hashes.append(hashlib.blake2b(body, digest_size=16).digest())
                if problem is not None:
                    bad[index] = problem
                advance(1)

        digest = digest_files(zip(self._names(), self.labels, hashes, strict=True))
        return Inspection(digest, bad)

    def _read_and_judge(self, index: int) -> tuple[bytes, str | None]:
        """Return the bytes of a file, empty where it cannot be read, and a sentence about it where
        it cannot be used, or None."""
        try:
            body = self.encoded(index)
        except InputError as error:
            return b"", str(error)
        reason = unreadable_reason(body)
        return body, None if reason is None else str(unreadable(self.paths[index], reason))

    def outline(self) -> str:
        """Return a hash of the names, the labels and the sizes of the files."""
        sizes = (b"%d" % path.stat().st_size for path in self.paths)
        return digest_files(zip(self._names(), self.labels, sizes, strict=True))

    def _names(self) -> list[str]:
        """Return the paths below the root, such as "train/cat/1.jpg"."""
        return [path.relative_to(self.root).as_posix() for path in self.paths]


def list_classes(folder: Path, ignored: Counter[str] | None = None) -> dict[str, list[Path]]:
    """Return the image files below every sub-folder, by its name; both are sorted, and a class may
    have no images. `ignored` counts the other files by ending.

    Links are followed to files and to folders, as torchvision does, and what is hidden, such as the
    `._name` that macOS writes, is left out. A link to nothing or to a folder around it, and what is
    no file, are refused: a pipe would be waited for without end.
    """
    classes = {}
    others: Counter[str] = Counter() if ignored is None else ignored
    for top in sorted(folder.iterdir()):
        if top.name.startswith("."):
            continue
        if not top.is_dir():
            others["beside the class folders"] += 1
            continue
        classes[top.name] = sorted(_image_files(top, others))
    return classes


def _image_files(top: Path, others: Counter[str]) -> Iterator[Path]:
    """Yield the image files below the folder of a class, and count all others by ending."""
    for place, folders, files in os.walk(top, onerror=_raise, followlinks=True):
        if any(os.path.samefile(place, around) for around in Path(place).parents):
            raise InputError(f"{place} is a link to a folder that it lies in; remove it")
        folders[:] = [name for name in folders if not name.startswith(".")]  # walk enters no others

        for path in (Path(place, name) for name in files if not name.startswith(".")):
            ending = path.suffix.lower()
            if ending not in IMG_EXTENSIONS:
                others[ending or "without an ending"] += 1
            elif not path.is_file():
                raise unreadable(path, "it is no file")
            else:
                yield path


def _raise(error: OSError) -> None:
    """Let `os.walk` stop where a folder cannot be read, which it skips by default."""
    raise error
