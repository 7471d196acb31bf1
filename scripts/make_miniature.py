"""Make small archives in the official layout of ILSVRC 2012, oddities included, the same bytes on
any machine.

`python scripts/make_miniature.py [folder]`. Six classes of generated photos, 12 + 4 each; a class
is a hue and a direction of its stripes. Everything is computed in integers and stored uncompressed,
because sines, gzip and PNG differ between builds of their libraries, and the archives' md5 is
pinned. JPEG is libjpeg-turbo's, which is exact."""

import io
import struct
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

CLASSES, TRAIN, VAL = 6, 12, 4
# Labels follow the order of sorted WNIDs; the devkit's ids have another order, as in the real
# devkit.
WNIDS = [f"n{number:08d}" for number in (1440764, 1776313, 2105855, 3018349, 4258138, 13037406)]
ID_OF = dict(zip(WNIDS, (4, 3, 6, 1, 2, 5), strict=True))
INNER = {7: "n00001740", 8: "n00015388", 9: "n03575240"}  # WordNet's inner nodes
ODD = ("cmyk", "png", "grey", "exif", "progressive", "444", "422")


def photo(label: int, number: int, part: int) -> np.ndarray:
    """Return stripes in the direction and hue of the class, with noise: uint8 [H, W, 3], sides of
    70 to 129 px."""
    draw = np.random.default_rng([label, number, part])
    height, width = (int(side) for side in draw.integers(70, 130, 2))
    y, x = np.mgrid[:height, :width]
    dx, dy = ((8, 0), (7, 4), (4, 7), (0, 8), (-4, 7), (-7, 4))[label]
    wave = np.abs((x * dx + y * dy + int(draw.integers(600))) % 600 - 300) * 90 // 300 - 45
    hue = (
        (40, -20, -20),
        (20, 20, -40),
        (-20, 40, -20),
        (-40, 20, 20),
        (-20, -20, 40),
        (20, -40, 20),
    )[label]
    noise = draw.integers(-30, 31, (height, width, 3))
    return (128 + wave[..., None] + np.array(hue) + noise).clip(0, 255).astype(np.uint8)


def stored(body: bytes) -> bytes:
    """Return a deflate stream of `body` without compression."""
    parts = [body[i : i + 65535] for i in range(0, len(body), 65535)] or [b""]
    last = len(parts) - 1
    return b"".join(
        struct.pack("<BHH", i == last, len(p), len(p) ^ 0xFFFF) + p for i, p in enumerate(parts)
    )


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
    whole = (
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c))
        for k, c in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(whole)


def encoded(pixels: np.ndarray, odd: str | None) -> bytes:
    """Return an image file with the oddity `odd`."""
    if odd == "png":
        return png(pixels)
    image = Image.fromarray(pixels).convert({"cmyk": "CMYK", "grey": "L"}.get(odd or "", "RGB"))
    options = {
        # It announces five entries, of which the first points beyond the end.
        "exif": {"exif": b"Exif\0\0II*\0\x08\0\0\0\x05\0\x0f\x01\x02\0\xff\0\0\0\xff\xff\0\0"},
        "progressive": {"progressive": True},
        "444": {"subsampling": 0},
        "422": {"subsampling": 1},
    }
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, **options.get(odd or "", {}))
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
    names = (
        "ILSVRC2012_ID",
        "WNID",
        "words",
        "gloss",
        "num_children",
        "children",
        "wordnet_height",
        "num_train_images",
    )
    ids = {number: wnid for wnid, number in ID_OF.items()} | INNER
    synsets = np.zeros((len(ids), 1), dtype=[(name, object) for name in names])
    for row, number in enumerate(sorted(ids)):
        inner = number in INNER
        children = (
            np.array([number + 1 - CLASSES, number - CLASSES], dtype=np.float64)
            if inner
            else np.zeros((1, 0))
        )
        counts = (2.0, children, 1.0, 0.0) if inner else (0.0, children, 0.0, float(TRAIN))
        kind = "a group" if inner else f"stripes {number}"
        synsets[row, 0] = (float(number), ids[number], kind, f"{kind}, generated", *counts)
    file = io.BytesIO()
    savemat(file, {"synsets": synsets}, do_compression=False)
    return (
        b"MATLAB 5.0 MAT-file, generated".ljust(116) + file.getvalue()[116:]
    )  # scipy's own header contains the time


def main(folder: Path) -> None:
    """Write the three archives."""
    odd = {(label, 5): kind for label, kind in enumerate(ODD[:CLASSES])} | {
        (0, 7): ODD[6],
        (1, 7): "grey",
    }
    outer = {}
    for label in (
        2,
        0,
        5,
        1,
        4,
        3,
    ):  # classes and images in random order: no code may rely on that of an archive
        numbers = np.random.default_rng(label).permutation(TRAIN)
        outer[f"{WNIDS[label]}.tar"] = tar(
            {
                f"{WNIDS[label]}_{n * 37 + 5}.JPEG": encoded(
                    photo(label, n, 0), odd.get((label, n))
                )
                for n in numbers
            }
        )
    labels = np.random.default_rng(99).permutation(np.repeat(np.arange(CLASSES), VAL))
    val = {
        f"ILSVRC2012_val_{i + 1:08d}.JPEG": encoded(
            photo(int(label), i, 1), {3: "cmyk", 8: "grey"}.get(i)
        )
        for i, label in enumerate(labels)
    }
    base = "ILSVRC2012_devkit_t12"
    devkit = {
        f"{base}/readme.txt": b"Generated; see scripts/make_miniature.py.\n",
        f"{base}/data/meta.mat": meta(),
        f"{base}/data/ILSVRC2012_validation_ground_truth.txt": "".join(
            f"{ID_OF[WNIDS[label]]}\n" for label in labels
        ).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("ILSVRC2012_img_train.tar", tar(outer)),
        ("ILSVRC2012_img_val.tar", tar(val)),
        ("ILSVRC2012_devkit_t12.tar.gz", gzipped(tar(devkit))),
    ):
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data/raw/miniature"))
