"""Image files: what may be opened, and the hash of many. Without torch."""

import hashlib
from collections.abc import Iterable

from PIL import Image

from rectifiers.data.limits import LARGEST_PIXELS


def check_pixels(image: Image.Image) -> None:
    """Refuse an opened image that would not fit, or would be clipped to 8 bits, before it is decoded.

    Raises:
        ValueError: saying why.
    """
    if image.width * image.height > LARGEST_PIXELS:
        raise ValueError(f"it has {image.width} x {image.height} px, more than {LARGEST_PIXELS:,} in all")
    if image.mode.startswith(("I", "F")):  # Pillow clips these to 255: a grey photo would turn white
        raise ValueError(f"it has more than 8 bits a channel, mode {image.mode}")
    if any("16" in str(tile[3]) for tile in getattr(image, "tile", [])):  # a PNG of 16 bits opens as RGB
        raise ValueError("it has 16 bits a channel")


def digest_files(files: Iterable[tuple[str, int, bytes]]) -> str:
    """Return the hash of a split's files in order, each (path such as "train/cat/1.jpg", label, its blake2b-128)."""
    content = hashlib.blake2b(digest_size=16)
    for path, label, body in files:
        name = path.encode(errors="surrogateescape")
        content.update(b"%d %d " % (label, len(name)) + name + body)
    return content.hexdigest()
