"""A checkpoint file is what was written, or is not used."""

import io
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import same_bits
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import check_zip
from rectifiers.training.checkpoints import LAST, PREVIOUS, AtomicCheckpointIO, load_weights, newest
from refusals import refused


def checkpoint(value: float) -> dict[str, Any]:
    weights = torch.full((4, 3), value)
    own = {"run": "abc", "codes": ["x"], "history": [{"epoch": 1, "train_loss": value}]}
    return {"state_dict": {"weight": weights, "bias": torch.arange(3.0)}, "rectifiers": own}


@pytest.mark.process
def test_changed_byte_is_found_or_harmless(tmp_path: Path) -> None:
    """Every byte of the zip's directory, and every seventh before it."""
    path, right = tmp_path / LAST, checkpoint(0.5)
    AtomicCheckpointIO().save_checkpoint(right, path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as parts:
        directory = parts.start_dir
    draw, tried, found = random.Random(0), 0, 0
    for place in (*range(0, directory, 7), *range(directory, len(whole))):
        changes = {1 << draw.randrange(8)} | ({0xFF} if place >= directory else set())
        for changed in changes:
            content = bytearray(whole)
            content[place] ^= changed
            path.write_bytes(content)
            tried += 1
            try:
                read = AtomicCheckpointIO().load_checkpoint(path)
            except InputError:
                found += 1
                continue
            assert same_bits(read["state_dict"], right["state_dict"]), (place, changed)
            assert read["rectifiers"] == right["rectifiers"], (place, changed)
    assert tried / 3 < found < tried  # the others are of times, paddings and the like


@pytest.mark.parametrize("place", ["weights", "directory", "half of it"])
def test_previous_replaces_a_damaged_checkpoint(tmp_path: Path, capfd, place: str) -> None:
    for value in (0.25, 0.5):
        AtomicCheckpointIO().save_checkpoint(checkpoint(value), tmp_path / LAST)
    content = bytearray((tmp_path / LAST).read_bytes())
    weight = content.index(torch.full((4, 3), 0.5).numpy().tobytes())
    if place == "half of it":
        del content[len(content) // 2 :]
    else:
        content[weight if place == "weights" else content.rindex(b"archive/data/0")] ^= 1
    (tmp_path / LAST).write_bytes(content)
    path, previous = newest(tmp_path)  # type: ignore[misc]
    assert path == str(tmp_path / PREVIOUS)
    assert previous["rectifiers"] == checkpoint(0.25)["rectifiers"]
    assert "last.ckpt cannot be read (" in capfd.readouterr().err
    assert (tmp_path / "last.ckpt.damaged").read_bytes() == content


# ---- what two readers of zip could take for different contents ----


def zipped(parts: Sequence[tuple[str, bytes]], front: bytes = b"") -> bytes:
    """A zip file with these parts, stored and with valid checksums and offsets."""
    file = io.BytesIO(front)
    with zipfile.ZipFile(file, "a") as writer:
        for name, content in parts:
            with warnings.catch_warnings():  # of a name that stands twice
                warnings.simplefilter("ignore")
                writer.writestr(zipfile.ZipInfo(name), content)
        for part in writer.infolist():
            part.external_attr = 0
    return file.getvalue()


def moved_directory(whole: bytes) -> bytes:
    """The directory once more behind itself, where Python looks; the end record names the first."""
    plain = zipped(parts_of(whole))
    (start,) = struct.unpack("<L", plain[-6:-2])
    return plain[:-22] + plain[start:-22] + plain[-22:]


def moved_directory_64(whole: bytes) -> bytes:
    """The same with end records of zip64."""
    ends = whole.index(b"PK\x06\x06")
    (start,) = struct.unpack("<Q", whole[ends + 48 : ends + 56])
    added = whole[start:ends]
    located = struct.pack("<Q", ends + len(added))
    return whole[:ends] + added + whole[ends:].replace(struct.pack("<Q", ends), located)


def other_locator(whole: bytes) -> bytes:
    """A locator that names another end record of zip64 than the one before it."""
    at = whole.index(b"PK\x06\x07") + 8
    return whole[:at] + bytes(8) + whole[at + 8 :]


def larger_than_stored(whole: bytes) -> bytes:
    """A part whose size, of which torch takes the memory, is another than that of its bytes."""
    content, at = bytearray(whole), whole.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<L", 2**31)
    return bytes(content)


def fewer_parts(whole: bytes) -> bytes:
    """End records that count one part less than the directory has."""
    count = len(parts_of(whole))
    return whole.replace(struct.pack("<QQ", count, count), struct.pack("<QQ", count - 1, count - 1))


def parts_of(whole: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(whole)) as parts:
        return [(part.filename, parts.read(part)) for part in parts.infolist()]


AMBIGUOUS: dict[str, Callable[[bytes], bytes]] = {
    "bytes in front": lambda whole: b"#!/bin/sh\n" + whole,
    "a part in front": lambda whole: zipped(parts_of(whole), front=b"#!/bin/sh\n"),
    "a comment": lambda whole: whole[:-2] + b"\x04\x00PK\x05\x06",
    "bytes behind": lambda whole: whole + b"PK\x05\x06",
    "moved directory": moved_directory,
    "moved directory of zip64": moved_directory_64,
    "other locator": other_locator,
    "larger than stored": larger_than_stored,
    "fewer parts": fewer_parts,
    "twice": lambda whole: zipped([*parts_of(whole), parts_of(whole)[0]]),
    "twice but for case": lambda whole: zipped(
        [*parts_of(whole), (parts_of(whole)[0][0].upper(), parts_of(whole)[0][1])]
    ),
}


@pytest.mark.parametrize("change", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_zip_of_two_readings_is_refused(tmp_path: Path, change) -> None:
    path = tmp_path / LAST
    torch.save(checkpoint(0.5), path)
    check_zip(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(zipfile.BadZipFile):
        check_zip(path)
    with refused("cannot be read"):
        AtomicCheckpointIO().load_checkpoint(path)


def test_zip_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(checkpoint(0.5)["state_dict"], path)
    assert load_weights(path)
    path.write_bytes(path.read_bytes() + b"PK\x05\x06")  # to Python this is no zip file
    assert not zipfile.is_zipfile(path)
    with refused("cannot be read"):
        load_weights(path)


def test_plain_zip_end_is_accepted(tmp_path: Path) -> None:
    torch.save(checkpoint(0.5), tmp_path / LAST)
    content = zipped(parts_of((tmp_path / LAST).read_bytes()))
    assert b"PK\x06\x06" not in content  # an end record of zip64
    (tmp_path / LAST).write_bytes(content)
    assert AtomicCheckpointIO().load_checkpoint(tmp_path / LAST)
