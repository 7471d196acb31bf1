"""A prepared data set: a few large shards of image files, one index per split, and a manifest that
pins every byte.

    <root>/manifest.json                 its sources and contents, with the hash of every other file
    <root>/<split>/index.npy             one row per image: where its bytes are, its label and size
    <root>/<split>/shard-00000.bin, ...  image files one after another, nothing between them

Images have the order of an unpacked folder, by WNID and then by name: an image has the same index,
and so the same augmentation, whether it is read from here or by `data=folder`.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rectifiers.runtime.errors import InputError

FORMAT = 2
SPLITS = ("train", "val")
INDEX = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u4"),
        ("crc32", "<u4"),  # of the stored bytes
        ("shard", "<u2"),
        ("label", "<u2"),
        ("height", "<u2"),
        ("width", "<u2"),
    ]
)
MANIFEST = "manifest.json"
FILE = re.compile(r"(train|val)/(index\.npy|shard-[0-9]{5}\.bin)")
STORED_AS = (
    "JPEG",
    "PPM",
)  # the only formats that are tried: some of Pillow's decoders start programs


def check_index_holds(name: str, **values: int) -> None:
    """Check that a row of the index can hold `values`, by their fields, of what `name` names in
    messages.

    Raises:
        InputError: for the first one that is too large.
    """
    for field, value in values.items():
        largest = np.iinfo(INDEX[field]).max
        if value > largest:
            raise InputError(
                f"{name} has the {field} {value:,}, and the index of a prepared folder holds "
                f"{largest:,} at most"
            )


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.bin"


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(root: Path) -> dict[str, Any]:
    """Read a prepared folder's manifest and check the sizes of the files that it names, not their
    bytes.

    Raises:
        InputError: where the manifest is missing, damaged or of another format, or a file is
        missing or of another size.
    """
    path = root / MANIFEST
    if not path.is_file():
        raise InputError(
            f"data.root={root} has no {MANIFEST}; prepare the archives first (dvc repro "
            "pipelines/imagenet/dvc.yaml), "
            "or choose data=folder for unpacked images"
        )
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']!r} and this code reads {FORMAT}")
        files = {str(name): int(facts["bytes"]) for name, facts in manifest["files"].items()}
        if not all(FILE.fullmatch(name) for name in files):
            raise ValueError("it names a file that is none of a prepared folder")
        for split in SPLITS:
            names = {
                name.removeprefix(f"{split}/") for name in files if name.startswith(f"{split}/")
            }
            if names != {
                "index.npy",
                *(shard_name(number) for number in range(max(1, len(names) - 1))),
            }:
                raise ValueError(f"it does not name an index and all shards of {split}")
            str(manifest["splits"][split]["digest"]), int(manifest["splits"][split]["images"])
        [str(facts["sha256"]) for facts in manifest["files"].values()]
        [str(known["wnid"]) for known in manifest["classes"]]
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{path} cannot be read as a manifest ({error!r}); prepare the archives again"
        ) from error
    for name, size in files.items():
        file = root / name
        actual = file.stat().st_size if file.is_file() else None
        if actual != size:
            state = "is missing" if actual is None else f"has {actual:,} bytes and not {size:,}"
            raise InputError(f"{file} {state}; prepare the archives again, or pull the data again")
    return manifest


def different_files(root: Path) -> list[str]:
    """Return the files of a prepared folder whose bytes differ from the manifest's hashes, as paths
    below root.

    Raises:
        InputError: as `read_manifest` does.
    """
    files = read_manifest(root)["files"]
    return [name for name, facts in files.items() if file_sha256(root / name) != facts["sha256"]]


class ShardWriter:
    """Appends files to a split's shards, from (shard, byte) `start` on, and syncs them to disk at
    the end."""

    def __init__(self, folder: Path, start: tuple[int, int], limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._shard, self._end = start
        for path in folder.iterdir():  # left by a killed process after the last complete step
            if path.name > shard_name(self._shard):
                path.unlink()
        self._file = self._open()
        self._file.truncate(self._end)

    def _open(self) -> BinaryIO:
        path = self._folder / shard_name(self._shard)
        return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")

    def add(self, body: bytes) -> tuple[int, int]:
        """Append one file and return its (shard, offset); start a new shard where this one would
        exceed the limit."""
        if self._end and self._end + len(body) > self._limit:
            check_index_holds(
                f"the next file after {self._folder / shard_name(self._shard)}",
                shard=self._shard + 1,
            )
            self._close()
            self._shard, self._end = self._shard + 1, 0
            self._file = self._open()
        position = self._shard, self._end
        self._file.seek(self._end)
        self._file.write(body)
        self._end += len(body)
        return position

    def _close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
