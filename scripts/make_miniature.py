"""Make small archives in the official layout of ILSVRC 2012, oddities included, the same bytes on
any machine.

Six classes of generated photos, 12 + 4 each; a class is a hue and a direction of its stripes.
Everything is computed in integers and stored uncompressed, because sines, gzip and PNG differ
between builds of their libraries, and the archives' md5 is pinned. JPEG is libjpeg-turbo's, which
is exact."""

import argparse
import io
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

CLASSES, TRAIN, VAL = 6, 12, 4
# Labels follow the order of sorted WNIDs; the devkit's ids have another order, as in the real
# devkit.
WNIDS = [f"n{number:08d}" for number in (1440764, 1776313, 2105855, 3018349, 4258138, 13037406)]
ID_OF = dict(zip(WNIDS, (4, 3, 6, 1, 2, 5), strict=True))
INNER = {7: "n00001740", 8: "n00015388", 9: "n03575240"}  # WordNet's inner nodes
HUES = ((40, -20, -20), (20, 20, -40), (-20, 40, -20), (-40, 20, 20), (-20, -20, 40), (20, -40, 20))
STRIPES = ((8, 0), (7, 4), (4, 7), (0, 8), (-4, 7), (-7, 4))  # directions
ODD = ("cmyk", "png", "grey", "exif", "progressive", "444", "422")
JPEG_OPTIONS: dict[str, dict[str, Any]] = {
    # It announces five entries, of which the first points beyond the end.
    "exif": {"exif": b"Exif\0\0II*\0\x08\0\0\0\x05\0\x0f\x01\x02\0\xff\0\0\0\xff\xff\0\0"},
    "progressive": {"progressive": True},
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
}
FIELDS = (
    *("ILSVRC2012_ID", "WNID", "words", "gloss"),
    *("num_children", "children", "wordnet_height", "num_train_images"),
)
DEVKIT = "ILSVRC2012_devkit_t12"


def photo(label: int, number: int, part: int) -> np.ndarray:
    """Return stripes in the direction and hue of the class, with noise: uint8 [H, W, 3], sides of
    70 to 129 px."""
    draw = np.random.default_rng([label, number, part])
    height, width = (int(side) for side in draw.integers(70, 130, 2))
    y, x = np.mgrid[:height, :width]
    dx, dy = STRIPES[label]
    wave = np.abs((x * dx + y * dy + int(draw.integers(600))) % 600 - 300) * 90 // 300 - 45
    noise = draw.integers(-30, 31, (height, width, 3))
    return (128 + wave[..., None] + np.array(HUES[label]) + noise).clip(0, 255).astype(np.uint8)


def stored(body: bytes) -> bytes:
    """Return a deflate stream of `body` without compression."""
    stream = b""
    for i in range(0, max(1, len(body)), 65535):
        part, is_last = body[i : i + 65535], i + 65535 >= len(body)
        stream += struct.pack("<BHH", is_last, len(part), len(part) ^ 0xFFFF) + part
    return stream


def gzipped(body: bytes) -> bytes:
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return head + stored(body) + struct.pack("<II", zlib.crc32(body), len(body))


def png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": b"\x78\x01" + stored(rows) + struct.pack(">I", zlib.adler32(rows)),
        b"IEND": b"",
    }
    file = b"\x89PNG\r\n\x1a\n"
    for kind, content in chunks.items():
        checksum = zlib.crc32(kind + content)
        file += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    return file


def encoded(pixels: np.ndarray, odd: str | None) -> bytes:
    """Return an image file with the oddity `odd`."""
    if odd == "png":
        return png(pixels)
    image = Image.fromarray(pixels).convert({"cmyk": "CMYK", "grey": "L"}.get(odd or "", "RGB"))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, **JPEG_OPTIONS.get(odd or "", {}))
    return file.getvalue()


def tar(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(name)  # no owner, no time
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return file.getvalue()


def meta() -> bytes:
    """`meta.mat` with the fields of the real one: classes by id, then inner nodes."""
    ids = {number: wnid for wnid, number in ID_OF.items()} | INNER
    synsets = np.zeros((len(ids), 1), dtype=[(name, object) for name in FIELDS])
    for row, number in enumerate(sorted(ids)):
        if number in INNER:
            kind, children = "a group", np.array([number + 1.0 - CLASSES, number - CLASSES])
            counts = (2.0, children, 1.0, 0.0)
        else:
            kind, counts = f"stripes {number}", (0.0, np.zeros((1, 0)), 0.0, float(TRAIN))
        synsets[row, 0] = (float(number), ids[number], kind, f"{kind}, generated", *counts)
    file = io.BytesIO()
    savemat(file, {"synsets": synsets}, do_compression=False)
    # scipy's own header contains the time
    return b"MATLAB 5.0 MAT-file, generated".ljust(116) + file.getvalue()[116:]


def main(folder: Path) -> None:
    """Write the three archives."""
    odd = {(label, 5): kind for label, kind in enumerate(ODD[:CLASSES])}
    odd |= {(0, 7): ODD[6], (1, 7): "grey"}
    outer = {}
    # classes and images in random order: no code may rely on that of an archive
    for label in (2, 0, 5, 1, 4, 3):
        photos = {}
        for n in np.random.default_rng(label).permutation(TRAIN):
            body = encoded(photo(label, n, 0), odd.get((label, n)))
            photos[f"{WNIDS[label]}_{n * 37 + 5}.JPEG"] = body
        outer[f"{WNIDS[label]}.tar"] = tar(photos)

    labels = np.random.default_rng(99).permutation(np.repeat(np.arange(CLASSES), VAL))
    val = {}
    for i, label in enumerate(labels):
        body = encoded(photo(int(label), i, 1), {3: "cmyk", 8: "grey"}.get(i))
        val[f"ILSVRC2012_val_{i + 1:08d}.JPEG"] = body

    truth = "".join(f"{ID_OF[WNIDS[label]]}\n" for label in labels).encode()
    devkit = {
        f"{DEVKIT}/readme.txt": b"Generated; see scripts/make_miniature.py.\n",
        f"{DEVKIT}/data/meta.mat": meta(),
        f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt": truth,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar(outer))
    (folder / "ILSVRC2012_img_val.tar").write_bytes(tar(val))
    (folder / f"{DEVKIT}.tar.gz").write_bytes(gzipped(tar(devkit)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default="data/raw/miniature")
    folder = parser.parse_args().folder
    if folder.exists() and not folder.is_dir():
        parser.error(f"{folder} is a file; give a folder")
    main(folder)
