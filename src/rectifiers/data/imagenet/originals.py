"""Conversion of an original image file to its stored bytes: the same pixels, in a form that libjpeg
reads."""

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

# Properties of an original, and what was done with it; the manifest contains these texts.
# `not_tiled` applies only to the store "tiled".
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
# Pillow reports broken EXIF by warnings, and Python has one list of warnings for all threads.
_headers = threading.Lock()


@dataclass(frozen=True)
class Stored:
    """The bytes to store, the image's height and width, which of WAYS, its ODDITIES, and the
    original's blake2b-128."""

    body: bytes
    shape: tuple[int, int]
    way: str
    oddities: tuple[str, ...]
    digest: bytes


def transcoder(store: str) -> Transcoder | None:
    """Return the function that makes restart-tiled JPEGs for store="tiled", and None for "plain".

    Raises:
        InputError: where the C library is missing; the stored bytes must not depend on that
        silently.
    """
    if store == "plain":
        return None
    reason = jpeg.unavailable_reason()
    if reason is not None:
        raise InputError(
            f"data.store={store} needs the C extension, and {reason}; or give data.store=plain"
        )
    return jpeg.tile


def to_stored(original: bytes, name: str, tile: Transcoder | None) -> Stored:
    """Convert one image to its stored form. Every image is decoded, and once more where its bytes
    change.

    Raises:
        InputError: for a file that is not a complete JPEG or PNG of at most 8 bits per channel, or
        whose pixels would change.
    """
    try:
        with _headers, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            image = Image.open(io.BytesIO(original), formats=("JPEG", "PNG"))
            exif_is_broken = "exif" in image.info and (_exif_is_unreadable(image) or bool(caught))
        check_pixels(image)
        pixels = image.convert("RGB")
    except Exception as error:  # a hostile file can raise anything
        raise InputError(
            f"{name} cannot be read as an image ({error}); fetch the archive again"
        ) from error
    jpeg = image.format in ("JPEG", "MPO")
    oddities = {
        "cmyk": image.mode == "CMYK",
        "not_jpeg": not jpeg,
        "greyscale": image.mode == "L",
        "broken_exif": exif_is_broken,
        "progressive": jpeg and "progressive" in image.info,
        "chroma_444": jpeg and JpegImagePlugin.get_sampling(image) == 0,
    }
    body, way = original, "kept"
    if oddities["cmyk"] or not jpeg:
        file = io.BytesIO()
        pixels.save(
            file, "PPM"
        )  # not PNG: builds of zlib compress differently, and the bytes are pinned
        body, way = file.getvalue(), "pixels"
    elif tile is not None:
        tiled = tile(original)
        oddities["not_tiled"] = tiled is None
        if tiled is not None:
            body, way = tiled, "tiled"
    if way != "kept":
        with Image.open(io.BytesIO(body), formats=("JPEG", "PPM")) as after:
            if after.convert("RGB").tobytes() != pixels.tobytes():
                raise InputError(
                    f"storing {name} would change its pixels, which is a bug; give data.store=plain"
                )
    digest = hashlib.blake2b(original, digest_size=16).digest()
    named = tuple(key for key in ODDITIES if oddities.get(key))
    return Stored(body, (image.height, image.width), way, named, digest)


def _exif_is_unreadable(image: Image.Image) -> bool:
    try:
        exif = image.getexif()
        dict(exif)
        exif.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # damage can raise anything
        return True
    return False
