"""A JPEG decoder in C that resizes, and reads only a crop where that is all that is needed: bits
equal to Pillow's, in a fraction of the time.

Pillow decodes and resizes a whole photograph, of which training uses a crop. Where the library is
missing, and for files that it does not support, Pillow is used: since both give the same bits, the
library changes no number of a run.

It is called through ctypes, which releases the GIL.
"""

import ctypes
import io
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rectifiers.runtime.compiling import JPEG

REMEDY = (
    "install a C compiler and libjpeg-turbo's headers (Debian: gcc libjpeg62-turbo-dev) "
    "and call make native"
)

DONE = 0  # what the library's functions return where they did what they are for
WARNING_BYTES = 200  # JMSG_LENGTH_MAX of libjpeg


class View(ctypes.Structure):
    """A view of an image for the library: see `struct view` in decoder.h."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in ("height", "width", "top", "left", "rows", "columns")],
        ("mirrored", ctypes.c_int),
        ("planes", ctypes.c_void_p),
    ]


@cache
def _library() -> ctypes.CDLL | str:
    """Return the library, or the reason why it cannot be used."""
    return JPEG.open(_declare)


def _declare(library: ctypes.CDLL) -> str | None:
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.rectifiers_measure.argtypes = [ctypes.c_char_p, size, pointer, pointer]
    library.rectifiers_read.argtypes = [ctypes.c_char_p, size, ctypes.c_int, pointer]
    library.rectifiers_tile.argtypes = [ctypes.c_char_p, size, pointer, pointer]
    library.rectifiers_check.argtypes = [ctypes.c_char_p, size, ctypes.c_char_p]
    library.rectifiers_free.argtypes = [pointer]
    if _agrees_with_pillow(library):
        return None
    return "its libjpeg and Pillow's decode to different pixels"


def _agrees_with_pillow(library: ctypes.CDLL) -> bool:
    """Return whether both decode noise to the same pixels; they may be linked to different versions
    of libjpeg."""
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    for subsampling in (0, 1, 2):  # 4:4:4, 4:2:2 and 4:2:0
        file = io.BytesIO()
        Image.fromarray(noise).save(file, "JPEG", quality=90, subsampling=subsampling)
        with Image.open(file) as image:
            expected = np.asarray(image.resize((80, 60), Image.Resampling.BILINEAR))[11:51, 23:63]
        out = torch.empty(3, 40, 40, dtype=torch.uint8)
        if not _read(library, file.getvalue(), [_view((60, 80), (11, 23), False, out)]):
            return False
        if not np.array_equal(out.permute(1, 2, 0).numpy(), expected):
            return False
    return True


def unavailable_reason() -> str | None:
    """Return None where the library can be used, else one sentence with the reason and the
    remedy."""
    library = _library()
    if isinstance(library, ctypes.CDLL):
        return None
    return (
        "JPEG files are read by Pillow, several times slower, for want of the C library "
        f"({library}); {REMEDY}"
    )


def read_size(jpeg: bytes) -> tuple[int, int] | None:
    """Return the height and width of a JPEG file that the library may decode; None for any other
    content."""
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return None
    height, width = ctypes.c_int(), ctypes.c_int()
    outcome = library.rectifiers_measure(jpeg, len(jpeg), ctypes.byref(height), ctypes.byref(width))
    return (height.value, width.value) if outcome == DONE else None


def crop(
    jpeg: bytes, size: tuple[int, int], corner: tuple[int, int], mirrored: bool, out: Tensor
) -> bool:
    """Write a crop of a resized JPEG file into `out`, with Pillow's bits; return False for files it
    does not support.

    size: height and width to which the whole image is resized; corner: row and column of the crop's
    first pixel in the resized image; out: uint8 [3, rows, columns], contiguous, undefined after
    False.
    Of files with restart markers (`tile`) only the part under the crop is read.

    A file is supported only where the result is certain to equal Pillow's: every marker to the end
    of the image is checked, and any warning of libjpeg's means False."""
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return False
    return _read(library, jpeg, [_view(size, corner, mirrored, out)])


def resize(jpeg: bytes, sizes: Sequence[tuple[int, int]]) -> list[Tensor] | None:
    """Return a JPEG file resized to each of `sizes` (height, width), uint8 [3, height, width], with
    Pillow's bits; None for files that `crop` does not support. It is decoded once."""
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return None
    images = [torch.empty(3, *size, dtype=torch.uint8) for size in sizes]
    views = [_view(size, (0, 0), False, image) for size, image in zip(sizes, images, strict=True)]
    return images if _read(library, jpeg, views) else None


def _view(size: tuple[int, int], corner: tuple[int, int], mirrored: bool, out: Tensor) -> View:
    """Return what the library is to write into `out`: see `crop`."""
    if out.dim() != 3 or len(out) != 3 or out.dtype != torch.uint8 or not out.is_contiguous():
        raise ValueError(
            f"out is {out.dtype} {tuple(out.shape)}; it must be contiguous uint8 [3, rows, columns]"
        )
    return View(*size, *corner, *out.shape[1:], mirrored, out.data_ptr())


def _read(library: ctypes.CDLL, jpeg: bytes, views: Sequence[View]) -> bool:
    outcome = library.rectifiers_read(jpeg, len(jpeg), len(views), (View * len(views))(*views))
    return outcome == DONE


def damage(jpeg: bytes) -> str | None:
    """Return libjpeg's warning that data of a JPEG file are damaged or missing, or None; Pillow
    drops it, and fills such an image with grey.

    None also where libjpeg reads no coefficients, or the C library is missing."""
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return None
    text = ctypes.create_string_buffer(WARNING_BYTES)
    library.rectifiers_check(jpeg, len(jpeg), text)
    return text.value.decode(errors="replace") or None


def tile(jpeg: bytes) -> bytes | None:
    """Return the same JPEG with a restart marker about every 64 px, so that `crop` can skip the
    rest of the image.

    Lossless: the coefficients stay the same, so every decoder gives the same pixels; progressive
    files become sequential. Metadata is dropped. The size hardly changes, because the Huffman
    tables are optimised.

    None for anything but a whole greyscale or YCbCr JPEG of the usual samplings (4:4:4, 4:2:2,
    4:2:0), and where the C library is missing (see `unavailable_reason`)."""
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return None
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    outcome = library.rectifiers_tile(jpeg, len(jpeg), ctypes.byref(data), ctypes.byref(size))
    if outcome != DONE:
        return None
    try:
        return ctypes.string_at(data, size.value)
    finally:
        library.rectifiers_free(data)
