"""The C library through ctypes, which lets other threads run while it works."""

import ctypes
import io
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rectifiers.runtime.compiling import JPEG, UnusableLibraryError

REMEDY = "install a C compiler and libjpeg-turbo's headers (Debian: gcc libjpeg62-turbo-dev) and call make native"


@cache
def _library() -> ctypes.CDLL | str:
    """Return the library, or why there is none."""
    try:
        library = JPEG.load()
        size, whole, place = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
        library.rectifiers_measure.argtypes = [ctypes.c_char_p, size, place, place]
        library.rectifiers_crop.argtypes = [ctypes.c_char_p, size, *[whole] * 6, place]
        library.rectifiers_tile.argtypes = [ctypes.c_char_p, size, place, place]
        library.rectifiers_free.argtypes = [place]
        if not _agrees_with_pillow(library):
            raise UnusableLibraryError("its libjpeg and Pillow's decode to different pixels")
    except (OSError, AttributeError, UnusableLibraryError) as why:
        return str(why)
    return library


def _agrees_with_pillow(library: ctypes.CDLL) -> bool:
    """Whether an image of noise comes out the same: the two may be linked to different versions of libjpeg."""
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    for subsampling in (0, 1, 2):
        file = io.BytesIO()
        Image.fromarray(noise).save(file, "JPEG", quality=90, subsampling=subsampling)
        with Image.open(file) as image:
            expected = np.asarray(image.resize((80, 60), Image.Resampling.BILINEAR))[11:51, 23:63]
        out = torch.empty(3, 40, 40, dtype=torch.uint8)
        if not _crop(library, file.getvalue(), (60, 80), (11, 23), False, out):
            return False
        if not np.array_equal(out.permute(1, 2, 0).numpy(), expected):
            return False
    return True


def fault() -> str | None:
    """Return None where the library is there, else one sentence with the reason and the remedy."""
    library = _library()
    if isinstance(library, ctypes.CDLL):
        return None
    return f"JPEG files are read by Pillow, several times slower, for want of the C library ({library}); {REMEDY}"


def measure(jpeg: bytes) -> tuple[int, int] | None:
    """Return the height and width of a JPEG file that `crop` may handle; None for any other content."""
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return None
    height, width = ctypes.c_int(), ctypes.c_int()
    if library.rectifiers_measure(jpeg, len(jpeg), ctypes.byref(height), ctypes.byref(width)) != 0:
        return None
    return height.value, width.value


def crop(jpeg: bytes, size: tuple[int, int], corner: tuple[int, int], mirrored: bool, out: Tensor) -> bool:
    """Write a crop of a JPEG file, resized as by Pillow, into `out`; False where Pillow itself has to be asked.

    size: height and width that the whole image is resized to; corner: row and column in that of the crop's first pixel;
    out: uint8 [3, side, side], contiguous. It may hold anything after False. Files that restart (`tile`) are read only
    where the crop lies.

    A file is handled only where the result is certain to be Pillow's: every marker to the end of the image is checked,
    and a warning of libjpeg's is enough to give up.
    """
    library = _library()
    return isinstance(library, ctypes.CDLL) and _crop(library, jpeg, size, corner, mirrored, out)


def _crop(
    library: ctypes.CDLL, jpeg: bytes, size: tuple[int, int], corner: tuple[int, int], mirrored: bool, out: Tensor
) -> bool:
    side = out.shape[-1]
    if out.shape != (3, side, side) or out.dtype != torch.uint8 or not out.is_contiguous():
        raise ValueError(f"out is {out.dtype} {tuple(out.shape)}; it must be contiguous uint8 [3, side, side]")
    return library.rectifiers_crop(jpeg, len(jpeg), *size, *corner, side, mirrored, out.data_ptr()) == 0


def tile(jpeg: bytes) -> bytes | None:
    """Return the same JPEG with a restart marker about every 64 px, so that `crop` can skip what it does not need.

    Lossless: the coefficients are written as they were, so every decoder gives the same pixels; progressive files
    become sequential ones. Metadata is dropped. About as large as before, as the Huffman tables are optimised.

    None for what is no whole greyscale or YCbCr JPEG of the usual samplings (4:4:4, 4:2:2, 4:2:0), and where the C
    library is missing (see `fault`).
    """
    library = _library()
    if not isinstance(library, ctypes.CDLL):
        return None
    place, size = ctypes.c_void_p(), ctypes.c_size_t()
    if library.rectifiers_tile(jpeg, len(jpeg), ctypes.byref(place), ctypes.byref(size)) != 0:
        return None
    try:
        return ctypes.string_at(place, size.value)
    finally:
        library.rectifiers_free(place)
