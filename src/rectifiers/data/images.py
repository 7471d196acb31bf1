"""Limits on image files, and the hash of many files. Imports no torch."""

import hashlib
from collections.abc import Iterable

from PIL import Image

from rectifiers.data.limits import LARGEST_PIXELS

# What an image file may be by its content, whatever its name says. Other decoders of Pillow start
# programs.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")


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


def digest_files(files: Iterable[tuple[str, int, bytes]]) -> str:
    """Return the hash of a split's files in order, each (path such as "train/cat/1.jpg", label, its
    blake2b-128)."""
    content = hashlib.blake2b(digest_size=16)
    for path, label, body in files:
        name = path.encode(errors="surrogateescape")
        content.update(b"%d %d " % (label, len(name)) + name + body)
    return content.hexdigest()
