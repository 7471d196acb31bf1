"""What is stored has the pixels of the original, whatever the original is."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from conftest import load_script
from rectifiers.data import jpeg
from rectifiers.data.imagenet.originals import ODDITIES, WAYS, to_stored, transcoder
from rectifiers.data.imagenet.store import STORED_AS
from rectifiers.data.splits import read_rgb
from rectifiers.runtime.errors import InputError

MINIATURE = load_script("make_miniature")
PIXELS = MINIATURE.photo(0, 0, 0)


def rgb(body: bytes) -> bytes:
    return Image.open(io.BytesIO(body)).convert("RGB").tobytes()


@pytest.mark.parametrize(
    ("kind", "oddities", "kept"),
    [
        (None, (), True),
        ("progressive", ("progressive",), True),
        ("444", ("chroma_444",), True),
        ("422", (), True),
        ("grey", ("greyscale",), True),
        ("exif", ("broken_exif",), True),
        ("cmyk", ("cmyk",), False),
        ("png", ("not_jpeg",), False),
    ],
)
def test_every_kind_of_file_keeps_its_pixels(
    kind: str | None, oddities: tuple[str, ...], kept: bool
) -> None:
    original = MINIATURE.encoded(PIXELS, kind)
    stored = to_stored(original, "it", None)
    assert stored.oddities == oddities
    assert set(oddities) <= ODDITIES.keys()
    assert stored.way == ("kept" if kept else "pixels")
    assert stored.way in WAYS
    assert (stored.body == original) is kept
    assert stored.shape == PIXELS.shape[:2]
    decoded = read_rgb(io.BytesIO(stored.body), "it", STORED_AS)
    assert decoded.permute(1, 2, 0).numpy().tobytes() == rgb(original)


def test_sound_exif_is_no_oddity_and_rotates_nothing() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a maker"  # turned by 90 degrees
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG", exif=exif)
    stored = to_stored(file.getvalue(), "it", None)
    assert stored.oddities == ()
    assert stored.shape == PIXELS.shape[:2]


def test_a_transcoder_that_changes_pixels_is_refused() -> None:
    original = MINIATURE.encoded(PIXELS, None)
    same = original[:2] + b"\xff\xfe\0\4hi" + original[2:]  # with a comment
    assert rgb(same) == rgb(original)
    stored = to_stored(original, "it", lambda _: same)
    assert (stored.body, stored.way, stored.oddities) == (same, "tiled", ())
    refused = to_stored(original, "it", lambda _: None)
    assert (refused.body, refused.way, refused.oddities) == (original, "kept", ("not_tiled",))
    other = MINIATURE.encoded(255 - PIXELS, None)
    with pytest.raises(
        InputError, match=r"storing it would change its pixels, .*data\.store=plain"
    ):
        to_stored(original, "it", lambda _: other)
    called: list[bytes] = []
    to_stored(MINIATURE.encoded(PIXELS, "cmyk"), "it", called.append)
    assert not called


def test_tiled_without_the_c_library_is_refused_and_never_silently_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert transcoder("plain") is None
    monkeypatch.setattr(jpeg, "unavailable_reason", lambda: "it is not built; call make native")
    with pytest.raises(
        InputError,
        match=r"data\.store=tiled needs the C extension, and it is not built; .*store=plain",
    ):
        transcoder("tiled")
    monkeypatch.setattr(jpeg, "unavailable_reason", lambda: None)
    assert transcoder("tiled") is jpeg.tile


def bmp() -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "BMP")
    return file.getvalue()


def deep() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((9, 9), 9000, np.uint16)).save(file, "PNG")
    return file.getvalue()


def huge() -> bytes:
    """A JPEG whose header claims 20,000 x 20,000."""
    body = MINIATURE.encoded(PIXELS, None)
    start = body.index(b"\xff\xc0") + 5
    return body[:start] + struct.pack(">HH", 20000, 20000) + body[start + 4 :]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cannot identify"),
        (b"<html>", "cannot identify"),
        (bmp(), "cannot identify"),  # no other decoder is tried
        (deep(), "more than 8 bits"),
        (huge(), "exceeds|more than 89,000,000"),
        (MINIATURE.encoded(PIXELS, None)[:-900], "truncated"),
        (MINIATURE.encoded(PIXELS, "png")[:-900], "truncated|incomplete"),
    ],
)
def test_a_broken_image_is_named(body: bytes, why: str) -> None:
    with pytest.raises(
        InputError, match=rf"^x\.tar: it\.JPEG cannot be read as an image \(.*({why})"
    ):
        to_stored(body, "x.tar: it.JPEG", None)
