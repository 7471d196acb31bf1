"""From an original image file to the bytes that are stored: the same pixels, in a form that libjpeg reads."""

import hashlib
import io
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from PIL import ExifTags, Image, JpegImagePlugin

from rectifiers.data import jpeg
from rectifiers.data.images import check_pixels
from rectifiers.runtime.errors import InputError

# What there is to say of an original, and, apart from that, what was done to it. `not_tiled` is asked of "tiled" alone.
ODDITIES = {
    "cmyk": "four inks; libjpeg gives no RGB for them",
    "not_jpeg": "a PNG by its content",
    "greyscale": "one channel; read as RGB with three equal ones",
    "broken_exif": "its EXIF cannot be read; nothing here reads any, so no image is rotated",
    "progressive": "a JPEG of several scans, which training reads whole unless it was tiled",
    "chroma_444": "a JPEG whose colour has the resolution of its brightness",
    "not_tiled": "a JPEG that the transcoder does not handle",
}
WAYS = {
    "kept": "the original's bytes, metadata included",
    "tiled": "the original's coefficients with restart markers, sequential, without metadata",
    "pixels": "the RGB pixels of Pillow's convert, an uncompressed PPM, without metadata",
}
Transcoder = Callable[[bytes], bytes | None]
# Pillow tells of broken EXIF by warnings, and Python keeps one list of them for all threads.
_headers = threading.Lock()


@dataclass(frozen=True)
class Stored:
    """The bytes to store, the image's size in pixels, which of WAYS, its ODDITIES, and the original's blake2b-128."""

    body: bytes
    height: int
    width: int
    way: str
    oddities: tuple[str, ...]
    digest: bytes

    @property
    def shape(self) -> tuple[int, int]:
        return self.height, self.width


def transcoder(store: str) -> Transcoder | None:
    """Return what makes restart-tiled JPEGs for store="tiled", and None for "plain".

    Raises:
        InputError: where the extension that does it is not there; the bytes must not depend on that silently.
    """
    if store == "plain":
        return None
    fault = jpeg.fault()
    if fault is not None:
        raise InputError(f"data.store={store} needs the C extension, and {fault}; or give data.store=plain")
    return jpeg.tile


def to_stored(original: bytes, name: str, tile: Transcoder | None) -> Stored:
    """Bring one image into its stored form. Every image is decoded, and again where its bytes change.

    Raises:
        InputError: for a file that is no whole JPEG or PNG of at most 8 bits a channel, or whose pixels would change.
    """
    try:
        with _headers, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            image = Image.open(io.BytesIO(original), formats=("JPEG", "PNG"))
            exif_is_broken = "exif" in image.info and (_exif_is_unreadable(image) or bool(caught))
        check_pixels(image)
        pixels = image.convert("RGB")
    except Exception as fault:  # a hostile file can make a decoder raise anything
        raise InputError(f"{name} cannot be read as an image ({fault}); fetch the archive again") from fault
    jpeg = image.format in ("JPEG", "MPO")
    found = {
        "cmyk": image.mode == "CMYK",
        "not_jpeg": not jpeg,
        "greyscale": image.mode == "L",
        "broken_exif": exif_is_broken,
        "progressive": jpeg and "progressive" in image.info,
        "chroma_444": jpeg and JpegImagePlugin.get_sampling(image) == 0,
    }
    body, way = original, "kept"
    if found["cmyk"] or not jpeg:
        file = io.BytesIO()
        pixels.save(file, "PPM")  # and no PNG: zlib's builds compress differently, and the bytes are pinned
        body, way = file.getvalue(), "pixels"
    elif tile is not None:
        tiled = tile(original)
        found["not_tiled"] = tiled is None
        if tiled is not None:
            body, way = tiled, "tiled"
    if way != "kept":
        with Image.open(io.BytesIO(body), formats=("JPEG", "PPM")) as after:
            if after.convert("RGB").tobytes() != pixels.tobytes():
                raise InputError(f"storing {name} would change its pixels, a fault of ours; give data.store=plain")
    digest = hashlib.blake2b(original, digest_size=16).digest()
    return Stored(body, image.height, image.width, way, tuple(key for key in ODDITIES if found.get(key)), digest)


def _exif_is_unreadable(image: Image.Image) -> bool:
    try:
        exif = image.getexif()
        dict(exif)
        exif.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # fails in as many ways as there are bytes
        return True
    return False
