"""The C library gives Pillow's pixels or nothing."""

import ctypes
import io
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import ROOT, require
from photos import jpeg, photo
from rectifiers.data import jpeg as decoder
from rectifiers.data.images import FolderSplit
from rectifiers.data.transforms import Reader, resize_shorter
from rectifiers.runtime import compiling
from rectifiers.runtime.compiling import JPEG, PRELU, Library
from rectifiers.runtime.errors import InputError

pytestmark = pytest.mark.skipif(
    decoder.unavailable_reason() is not None,
    reason=f"there is no C library to test: {decoder.unavailable_reason()}",
)
Pair = tuple[int, int]
FLAVOURS = ["4:4:4", "4:2:2", "4:2:0", "grey"]


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def reference(
    content: bytes, size: Pair, corner: Pair, side: int | Pair, mirrored: bool
) -> np.ndarray:
    """By Pillow alone: decode all, resize all, cut, mirror."""
    image = (
        Image.open(io.BytesIO(content))
        .convert("RGB")
        .resize((size[1], size[0]), Image.Resampling.BILINEAR)
    )
    rows, columns = (side, side) if isinstance(side, int) else side
    crop = np.asarray(image)[corner[0] : corner[0] + rows, corner[1] : corner[1] + columns]
    return (crop[:, ::-1] if mirrored else crop).transpose(2, 0, 1)


def encode(image: Image.Image, flavour: str, **options: object) -> bytes:
    if flavour == "grey":
        return jpeg(image.convert("L"), **options)
    return jpeg(image, subsampling=flavour, **options)


def crop(
    content: bytes, size: Pair, corner: Pair, side: int | Pair, mirrored: bool
) -> np.ndarray | None:
    rows, columns = (side, side) if isinstance(side, int) else side
    out = torch.empty(3, rows, columns, dtype=torch.uint8)
    return out.numpy() if decoder.crop(content, size, corner, mirrored, out) else None


def pillow_shrinks_columns_first(shape: tuple[int, int], size: tuple[int, int]) -> bool:
    return shape[0] > size[0] and shape[0] - size[0] >= 2 * (shape[1] - size[1])


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_crops_are_pillows_bit_for_bit(data: st.DataObject) -> None:
    """Any size, flavour and crop, plain and tiled: the same bytes, and no crop that could be had is
    left to Pillow."""
    shape = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 300)), label="shape")
    flavour = data.draw(st.sampled_from(FLAVOURS), label="flavour")
    plain = encode(
        photo(*shape, which=shape[0]), flavour, quality=data.draw(st.sampled_from([60, 92, 100]))
    )
    px = data.draw(st.integers(1, 200), label="shorter side")
    longer = int(px * max(shape) / min(shape))
    size = (px, longer) if shape[0] <= shape[1] else (longer, px)
    side = data.draw(st.tuples(*(st.integers(1, length) for length in size)), label="side")
    corner = tuple(
        data.draw(st.integers(0, length - cut)) for length, cut in zip(size, side, strict=True)
    )
    mirrored = data.draw(st.booleans())
    expected = reference(plain, size, corner, side, mirrored)
    tiled = decoder.tile(plain)
    assert tiled is not None
    for content in (plain, tiled):
        assert decoder.read_size(content) == shape
        out = crop(content, size, corner, side, mirrored)
        if out is None:
            assert pillow_shrinks_columns_first(shape, size)
        else:
            assert np.array_equal(out, expected)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_several_sizes_are_pillows(flavour: str) -> None:
    """Smaller and larger ones from one decoding, each as if it were alone."""
    plain = encode(photo(133, 90), flavour)
    sizes = [(60, 41), (133, 90), (300, 203), (140, 30), (1, 1)]
    for content in (plain, decoder.tile(plain)):
        images = decoder.resize(content, sizes)
        assert images is not None
        for size, image in zip(sizes, images, strict=True):
            assert np.array_equal(image.numpy(), reference(plain, size, (0, 0), size, False))
    assert decoder.resize(plain, [(60, 41), (20, 88)]) is None  # the latter's columns come first


@pytest.mark.parametrize("shape", [(60, 20), (60, 31), (120, 60), (121, 60), (300, 101)])
def test_tall_images_are_pillows(shape: Pair) -> None:
    """Pillow shrinks the columns of a tall image first; noise shows it in nearly every pixel."""
    noise = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    content = jpeg(Image.fromarray(noise))
    left_to_pillow = 0
    for px in range(8, shape[1] + 8):
        size = (int(px * shape[0] / shape[1]), px)
        out = crop(content, size, (0, 0), px, False)
        if out is None:
            left_to_pillow += 1
            assert pillow_shrinks_columns_first(shape, size)
        else:
            assert not pillow_shrinks_columns_first(shape, size)
            assert np.array_equal(out, reference(content, size, (0, 0), px, False))
    assert left_to_pillow > 0


def test_library_of_other_pixels_is_not_used(monkeypatch) -> None:
    def other(*arguments: object) -> bool:
        done = original(*arguments)
        (view,) = arguments[-1]  # type: ignore[misc]
        ctypes.c_uint8.from_address(view.planes).value ^= 1
        return done

    original = decoder._read
    monkeypatch.setattr(decoder, "_read", other)
    decoder._library.cache_clear()
    try:
        assert "Pillow" in str(decoder.unavailable_reason())
    finally:
        monkeypatch.undo()
        decoder._library.cache_clear()
    assert decoder.unavailable_reason() is None


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("progressive", [False, True])
def test_tiling_changes_no_pixel_and_hardly_the_size(flavour: str, progressive: bool) -> None:
    for shape in ((375, 500), (333, 250), (17, 33), (1, 1), (64, 999)):
        before = encode(photo(*shape), flavour, progressive=progressive)
        after = decoder.tile(before)
        assert after is not None
        assert np.array_equal(pixels(before), pixels(after))
        assert "progressive" not in Image.open(io.BytesIO(after)).info
        if shape == (375, 500):
            assert b"\xff\xd0" in after
            assert len(after) < (1.25 if progressive else 1.01) * len(before)


def test_tiled_file_is_read_within_the_crop() -> None:
    """All tiles but the top left ones are overwritten: their crop does not notice, and Pillow's own
    does not change."""
    tiled = bytearray(decoder.tile(jpeg(photo(384, 512))))
    whole = reference(bytes(tiled), (384, 512), (0, 0), 64, False)
    start = tiled.index(b"\xff\xda")
    markers = [
        i for i in range(start, len(tiled) - 1) if tiled[i] == 0xFF and 0xD0 <= tiled[i + 1] <= 0xD7
    ]
    for a, b in pairwise(markers[40:]):
        tiled[a + 2 : b] = bytes(b - a - 2)
    assert np.array_equal(crop(bytes(tiled), (384, 512), (0, 0), 64, False), whole)
    assert crop(bytes(tiled), (384, 512), (320, 448), 64, False) is None


def test_unsupported_files_fall_back_to_pillow() -> None:
    image = photo(90, 120)
    file = io.BytesIO()
    image.save(file, "PNG")
    cmyk = jpeg(image.convert("CMYK"))
    truncated = jpeg(image)[:-500]
    for content in (file.getvalue(), cmyk, b"", b"\xff\xd8", jpeg(image)[:100]):
        assert decoder.read_size(content) is None
        assert decoder.tile(content) is None
    for content in (truncated, jpeg(image, progressive=True), cmyk):
        assert crop(content, (90, 120), (0, 0), 64, False) is None
    assert decoder.tile(truncated) is None
    unfinished = jpeg(photo(90, 120), progressive=True)
    last_scan = unfinished.rindex(b"\xff\xda")
    # a decoder smooths what is missing
    assert decoder.tile(unfinished[:last_scan] + b"\xff\xd9") is None


def test_crops_outside_the_image_are_refused() -> None:
    content = jpeg(photo(90, 120))
    out = torch.empty(3, 64, 64, dtype=torch.uint8)
    for size, corner in (
        ((90, 120), (27, 0)),
        ((90, 120), (0, 57)),
        ((90, 120), (-1, 0)),
        ((63, 120), (0, 0)),
    ):
        assert not decoder.crop(content, size, corner, False, out)
    for wrong in (
        torch.empty(1, 64, 64, dtype=torch.uint8),
        torch.empty(3, 64, 64),
        out.transpose(1, 2),
    ):
        with pytest.raises(ValueError, match="must be contiguous uint8"):
            decoder.crop(content, (90, 120), (0, 0), False, wrong)


def with_segment(content: bytes, marker: int, body: bytes) -> bytes:
    """The file with another marker segment in front."""
    return (
        content[:2]
        + bytes([0xFF, marker])
        + (len(body) + 2).to_bytes(2, "big")
        + body
        + content[2:]
    )


PHOTOSHOP = b"Photoshop 3.0\0"
ROTATED = Image.Exif()
ROTATED[0x0112] = 6


def resource(kind: int, data: bytes, name: bytes = b"") -> bytes:
    """An image resource of Photoshop; its parts begin at even places."""
    named = bytes([len(name)]) + name
    parts = (named, len(data).to_bytes(4, "big") + data)
    return (
        b"8BIM" + kind.to_bytes(2, "big") + b"".join(part + bytes(len(part) % 2) for part in parts)
    )


@pytest.mark.parametrize(
    ("marker", "body", "handled"),
    [
        (0xE2, b"ICC_PROFILE\0\1\1" + b"p" * 90, True),
        (0xE2, b"ICC_PROFILE\0\1", False),  # Pillow reads the count behind it, and fails
        (0xE2, b"MPF\0" + b"x" * 60, False),  # Pillow opens it as one of several images, or not
        (0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0", True),
        (0xE0, b"JFIF\0\1\1", False),
        (0xED, PHOTOSHOP + resource(0x0404, b"caption") + resource(0x03ED, bytes(14)), True),
        (0xED, PHOTOSHOP + resource(0x0404, b"", name=b"a name") + b"8BI", True),
        (0xED, PHOTOSHOP + resource(0x03ED, bytes(13)), False),  # resolutions have 14 bytes
        (0xED, PHOTOSHOP + resource(0x0404, b"caption")[:-3], False),
        *(
            (0xED, PHOTOSHOP + resource(0x0404, b"", name=b"n")[:cut], False)
            for cut in (4, 6, 8, 11)  # in its kind, name, length
        ),
        (0xEE, b"Adobe\0d\0\0\0\0\1", True),
        (0xE1, ROTATED.tobytes(), True),  # which the reference does not apply either
        (0xFE, b"a comment", True),
        (0xE7, b"anything", True),
    ],
)
def test_only_markers_of_pillow_are_accepted(marker: int, body: bytes, handled: bool) -> None:
    """A file that Pillow may refuse, or open as another kind, must not be decoded in its place."""
    plain = jpeg(photo(90, 120))
    content = with_segment(plain, marker, body)
    assert (decoder.read_size(content) == (90, 120)) is handled
    out = crop(content, (90, 120), (3, 5), 64, True)
    assert (out is not None) is handled
    if handled:
        expected = reference(content, (90, 120), (3, 5), 64, True)
        assert np.array_equal(out, expected)
        assert np.array_equal(crop(decoder.tile(content), (90, 120), (3, 5), 64, True), expected)


def of_scans(count: int) -> bytes:
    """A progressive grey JPEG of one block, written by hand: a scan for its mean, and the others
    all for the rest."""

    def segment(marker: int, *body: int) -> bytes:
        return with_segment(b"\xff\xd8", marker, bytes(body))[2:]

    one_code = (1, *[0] * 15, 0)  # Huffman: the bit 0 says 0, or the end of the block
    head = segment(0xDB, 0, *[1] * 64) + segment(0xC2, 8, 0, 8, 0, 8, 1, 1, 0x11, 0)
    tables = segment(0xC4, 0x00, *one_code) + segment(0xC4, 0x10, *one_code)
    mean, rest = (
        segment(0xDA, 1, 1, 0, first, last, 0) + b"\x7f" for first, last in ((0, 0), (1, 63))
    )
    return b"\xff\xd8" + head + tables + mean + rest * (count - 1) + b"\xff\xd9"


def test_a_file_of_many_scans_is_not_rewritten() -> None:
    """A hostile one has thousands, and each is a pass over the image; cameras and the web make
    about ten."""
    tiled = decoder.tile(of_scans(200))
    assert tiled is not None
    assert np.array_equal(pixels(tiled), pixels(of_scans(200)))
    assert decoder.tile(of_scans(201)) is None


def mutate(content: bytes, draw: np.random.Generator) -> bytes:
    """Flip bits, cut, edit markers and sizes: what disks, networks and attackers do."""
    out = bytearray(content)
    kind = draw.integers(6)
    if kind == 0:
        for _ in range(draw.integers(1, 9)):
            out[draw.integers(len(out))] ^= 1 << draw.integers(8)
    elif kind == 1:
        del out[draw.integers(len(out)) :]
    elif kind == 2:
        markers = [
            i + 1 for i in range(len(out) - 1) if out[i] == 0xFF and out[i + 1] not in (0, 0xFF)
        ]
        out[markers[draw.integers(len(markers))]] = draw.integers(256)
    elif kind == 3:
        at = out.index(b"\xff\xc0") + 5
        out[at + draw.integers(10)] = draw.integers(256)
    elif kind == 4:
        a, b = sorted(int(i) for i in draw.integers(0, len(out), 2))
        out[a:b] = bytes(draw.integers(0, 256, min(b - a, 40), dtype=np.uint8))
    else:
        at = int(draw.integers(min(700, len(out))))  # the header
        out[at] = draw.integers(256)
    return bytes(out)


def check_mutants(count: int, seed: int) -> int:
    """Every mutant gives Pillow's pixels or is left to it, cropped and tiled; return how many gave
    pixels."""
    seeds = [encode(photo(64, 96), flavour) for flavour in FLAVOURS]
    seeds += [decoder.tile(content) for content in seeds]
    given_out = 0
    for i in range(count):
        draw = np.random.default_rng([seed, i])
        mutant = mutate(seeds[i % len(seeds)], draw)
        shape = decoder.read_size(mutant)
        tiled = decoder.tile(mutant)
        if tiled is not None:
            assert np.array_equal(pixels(tiled), pixels(mutant)), f"tile of mutant {seed}, {i}"
        if shape is None or max(shape) > 4000:
            continue
        side = min(*shape, 48)
        corner = tuple(int(draw.integers(0, length - side + 1)) for length in shape)
        out = crop(mutant, shape, corner, side, False)
        if out is not None:
            given_out += 1
            assert np.array_equal(out, reference(mutant, shape, corner, side, False)), (
                f"crop of mutant {seed}, {i}"
            )
    return given_out


@pytest.mark.parametrize(
    ("count", "seed"), [(600, 0), pytest.param(20_000, 1, marks=pytest.mark.slow)]
)
def test_damaged_files_give_pillows_pixels_or_none(count: int, seed: int) -> None:
    assert check_mutants(count, seed) > count / 20


@pytest.mark.process
@pytest.mark.slow
def test_damaged_files_access_no_foreign_memory(tmp_path: Path) -> None:
    """30,000 mutants under the address and undefined-behaviour sanitizers, leaks included."""
    require("cc")
    program = tmp_path / "fuzz"
    sanitizers = "-fsanitize=address,undefined -fno-sanitize-recover=all -O1 -g -DPLAIN"
    code = [*map(str, JPEG.sources()), str(ROOT / "tests" / "data" / "fuzz.c")]
    options = ["-std=gnu11", *sanitizers.split(), f"-I{JPEG.folder}", *code]
    subprocess.run(["cc", *options, "-o", str(program), "-ljpeg", "-lm"], check=True)
    files = []
    for flavour in FLAVOURS:
        for progressive in (False, True):
            plain = encode(photo(64, 96), flavour, progressive=progressive)
            files += [plain, decoder.tile(plain)]
    for i, content in enumerate(files):
        (tmp_path / f"{i}.jpg").write_bytes(content)
    names = [str(tmp_path / f"{i}.jpg") for i in range(len(files))]
    done = subprocess.run(
        [str(program), "30000", *names], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    cropped, tiled = map(int, done.stdout.split())
    assert cropped > 1000
    assert tiled > 1000


def files_of_all_kinds() -> dict[str, bytes]:
    """Photos as the web has them, by the names of their files: kinds, odd sizes and damages."""
    draw, files = np.random.default_rng(0), dict[str, bytes]()
    exif = Image.Exif()
    exif[0x0112] = 6  # a rotation, which nobody applies
    for height, width in ((90, 120), (133, 61), (97, 33), (1, 9), (64, 64)):
        image = photo(height, width)
        kinds = {
            "colour": jpeg(image),
            "grey": jpeg(image.convert("L")),
            "cmyk": jpeg(image.convert("CMYK")),
            "progressive": jpeg(image, progressive=True),
            "rotated": jpeg(image, exif=exif),
        }
        for kind, content in kinds.items():
            files[f"{kind} {height} x {width}.jpg"] = content
        image.save(file := io.BytesIO(), "PNG")
        files[f"{height} x {width}.png"] = file.getvalue()

    whole = encode(photo(64, 96), "4:2:0")
    files |= {f"mutant {i}.jpg": mutate(whole, draw) for i in range(100)}
    files |= {"empty.jpg": b"", "text.jpg": b"no photo"}
    return files


def outcome(read: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor] | str:
    """What a function returns, or the text of its error."""
    try:
        return read()
    except InputError as error:
        return str(error)


def test_resized_files_are_pillows_or_its_errors(tmp_path: Path) -> None:
    files = files_of_all_kinds()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    split = FolderSplit(tmp_path, [tmp_path / name for name in files], [0] * len(files))
    reader, scales, errors = Reader(split), [30, 64, 101], 0

    def by_pillow(index: int) -> list[torch.Tensor]:
        image = split.image(index)
        return [resize_shorter(image, px) for px in scales]

    for index in range(len(files)):
        found = outcome(partial(reader.resized, index, scales))
        expected = outcome(partial(by_pillow, index))
        if isinstance(expected, str):
            errors += 1
            assert found == expected
        else:
            assert all(map(torch.equal, found, expected))
    assert 10 < errors < 60


def test_giant_photos_are_left_to_pillow() -> None:
    """It refuses them by a sentence; 8,900 x 10,000 px are the most."""
    content = bytearray(jpeg(photo(90, 120).convert("L")))
    size = content.index(b"\xff\xc0") + 5
    content[size : size + 4] = (8900).to_bytes(2) + (10000).to_bytes(2)
    assert decoder.read_size(bytes(content)) == (8900, 10000)
    content[size : size + 4] = (8900).to_bytes(2) + (10001).to_bytes(2)
    assert decoder.read_size(bytes(content)) is None


def test_old_library_is_not_used(monkeypatch) -> None:
    monkeypatch.setattr(Library, "source_hash", lambda _: "0" * 16)
    decoder._library.cache_clear()
    try:
        assert "older than its sources" in str(decoder.unavailable_reason())
        assert "make native" in str(decoder.unavailable_reason())
        assert decoder.tile(jpeg(photo(9, 9))) is None
        assert decoder.read_size(jpeg(photo(9, 9))) is None
    finally:
        decoder._library.cache_clear()


@pytest.mark.parametrize("fault", ["none", "missing", "older"])
def test_only_outdated_libraries_are_compiled_again(fault: str, monkeypatch) -> None:
    compiled: list[Path] = []
    monkeypatch.setattr(Library, "compile", lambda library: compiled.append(library.folder))
    if fault == "missing":
        monkeypatch.setattr(Library, "path", PRELU.folder / "missing.so")
    if fault == "older":
        monkeypatch.setattr(Library, "source_hash", lambda _: "0" * 16)
    assert compiling.compile_all(outdated=True) == []
    assert compiled == ([] if fault == "none" else [JPEG.folder, PRELU.folder])


@pytest.mark.process
def test_build_needs_only_a_compiler(tmp_path: Path) -> None:
    require("cc")
    place = tmp_path / "data" / "jpeg"
    for library in (JPEG, PRELU):
        own = tmp_path / library.folder.relative_to(compiling.PACKAGE)
        own.mkdir(parents=True)
        for path in [*library.sources(), *library.folder.glob("*.h")]:
            (own / path.name).write_bytes(path.read_bytes())
    program = tmp_path / "runtime" / "compiling.py"
    program.parent.mkdir()
    program.write_bytes(Path(compiling.__file__).read_bytes())

    def run(compiler: str) -> str:
        done = subprocess.run(
            [sys.executable, str(program)],
            env={"CC": compiler, "PATH": os.environ["PATH"]},
            capture_output=True,
        )
        assert done.returncode == 0
        return done.stderr.decode()

    assert run("cc") == ""
    assert (place / "library.so").is_file()
    assert (tmp_path / "prelu" / "library.so").is_file()
    (place / "crop.c").write_text("int broken(")
    assert "jpeg was not built (cc says:" in run("cc")
    assert not (place / "library.so").exists()  # what is left would be stale
    assert (tmp_path / "prelu" / "library.so").is_file()
    assert run("no-such-compiler").count("was not built (") == 2
    assert {path.suffix for path in place.iterdir()} <= {".c", ".h", ".py"}
