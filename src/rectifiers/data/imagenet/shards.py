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
from array import array
from collections.abc import Sequence
from io import BytesIO, FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from torch import Tensor
from zlib_ng.zlib_ng import crc32

from rectifiers.data.images import LARGEST_BYTES, Inspection, cached_inspection, read_rgb
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import errors_naming
from rectifiers.runtime.schema import JsonObject

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
LARGEST_MANIFEST, LARGEST_INDEX = 2**24, 2**32  # bytes; ImageNet's are of 0.3 and 31 MB
FILE = re.compile(r"(train|val)/(index\.npy|shard-[0-9]{5}\.bin)")
PULL = "pull the data again"


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.bin"


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(root: Path) -> JsonObject:
    """Read a prepared folder's manifest and check the sizes of the files that it names, not their
    bytes."""
    path = root / MANIFEST
    if not path.is_file():
        raise InputError(
            f"data.root={root} has no {MANIFEST}; prepare the archives first (dvc repro "
            "pipelines/imagenet/dvc.yaml), or choose data=folder for unpacked images"
        )
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise ValueError(f"it is larger than {LARGEST_MANIFEST:,} bytes")
        manifest = json.loads(path.read_bytes())
        sizes = _checked_sizes(manifest)
    except Exception as error:  # a hostile file can raise anything
        raise unreadable(path, repr(error), "prepare the archives again") from error
    for name, size in sizes.items():
        file = root / name
        actual = file.stat().st_size if file.is_file() else None
        if actual != size:
            state = "is missing" if actual is None else f"has {actual:,} bytes and not {size:,}"
            raise InputError(f"{file} {state}; prepare the archives again, or pull the data again")
    return manifest


def _checked_sizes(manifest: JsonObject) -> dict[str, int]:
    """Return the sizes of a manifest's files; anything that is not as it must be is an
    exception."""
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format is {manifest['format']!r} and this code reads {FORMAT}")
    sizes = {str(name): int(facts["bytes"]) for name, facts in manifest["files"].items()}
    if not all(FILE.fullmatch(name) for name in sizes):
        raise ValueError("it names a file that is none of a prepared folder")
    for split in SPLITS:
        if f"{split}/index.npy" not in sizes:
            raise ValueError(f"it names no index of {split}")
        if sizes[f"{split}/index.npy"] > LARGEST_INDEX:
            raise ValueError(f"its index of {split} is larger than {LARGEST_INDEX:,} bytes")
        if not isinstance(manifest["splits"][split]["images"], int):
            raise ValueError(f"it gives no number of images of {split}")

    texts = [manifest["splits"][split]["digest"] for split in SPLITS]
    texts += [facts["sha256"] for facts in manifest["files"].values()]
    texts += [facts["wnid"] for facts in manifest["classes"]]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a hash or a class of it is no text")
    return sizes


def different_files(root: Path) -> list[str]:
    """Return the files of a prepared folder whose bytes differ from the manifest's hashes, as paths
    below root."""
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

    @property
    def _place(self) -> Path:
        return self._folder / shard_name(self._shard)

    def _open(self) -> BinaryIO:
        return open(self._place, "ab")

    def add(self, body: bytes) -> tuple[int, int]:
        """Append one file and return its (shard, offset); start a new shard where this one would
        exceed the limit."""
        if self._end and self._end + len(body) > self._limit:
            self.close()
            self._shard, self._end = self._shard + 1, 0
            self._file = self._open()
        position = self._shard, self._end
        with errors_naming(self._place):
            self._file.write(body)
        self._end += len(body)
        return position

    def close(self) -> None:
        if self._file.closed:  # by an error, which would be lost behind another
            return
        with errors_naming(self._place), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())


class ShardSplit:
    """One split of a prepared folder, opened in milliseconds whatever its size; a `Split` of
    `data.splits`.

    Bytes are read by pread: a truncated shard is an error message instead of a dead process (as
    under mmap), forked workers share the open files, and a pickled split opens its own.
    """

    def __init__(self, root: Path, name: str, manifest: JsonObject) -> None:
        self.name, self.folder = name, root / name
        self._digest: str = manifest["splits"][name]["digest"]
        files = manifest["files"]
        shards = sorted(file for file in files if file.startswith(f"{name}/shard-"))
        self._shards = [root / shard for shard in shards]
        self._index_sha256: str = files[f"{name}/index.npy"]["sha256"]
        try:
            self._index = np.load(self.folder / "index.npy", mmap_mode="r", allow_pickle=False)
        except Exception as error:  # numpy evaluates the header as Python text
            raise unreadable(self.folder / "index.npy", error, PULL) from error

        ends = np.array([files[shard]["bytes"] for shard in shards], dtype=np.uint64)
        images = manifest["splits"][name]["images"]
        if not self._index_fits(ends, classes=len(manifest["classes"]), images=images):
            raise InputError(
                f"{self.folder / 'index.npy'} does not fit the shards beside it; prepare the "
                "archives again"
            )
        # two bytes a label, and Python's numbers on access
        labels = np.ascontiguousarray(self._index["label"]).astype("=u2")
        self.labels: Sequence[int] = array("H", labels.tobytes())
        self._files: dict[int, FileIO] = {}

    def _index_fits(self, ends: np.ndarray, classes: int, images: int) -> bool:
        """Return whether every row names bytes within a shard. ends: uint64 [shards], their
        sizes."""
        index = self._index
        if index.dtype != INDEX or index.shape != (images,) or not images or not len(ends):
            return False
        if index["shard"].max() >= len(ends) or index["label"].max() >= classes:
            return False
        # `end - length` cannot overflow where `length <= end`; `offset + length` could.
        end, length = ends[index["shard"]], index["length"]
        if length.max() > LARGEST_BYTES:
            return False
        return bool((length <= end).all() and (index["offset"] <= end - length).all())

    # A copy in another process maps the index and opens the shards for itself.
    def __getstate__(self) -> JsonObject:
        return {**self.__dict__, "_files": {}, "_index": self._index.filename}

    def __setstate__(self, state: JsonObject) -> None:
        self.__dict__.update(state)
        self._index = np.load(state["_index"], mmap_mode="r", allow_pickle=False)

    def encoded(self, index: int) -> bytes:
        """Return the stored bytes of one image: a JPEG, or a PPM where libjpeg could not read the
        original. They must be those that were written."""
        row = self._index[index]
        shard, length = int(row["shard"]), int(row["length"])
        path = self.folder / shard_name(shard)
        try:
            if (file := self._files.get(shard)) is None:  # two threads may both open it
                file = self._files[shard] = FileIO(path)
            body = os.pread(file.fileno(), length, int(row["offset"]))
        except OSError as error:
            raise unreadable(path, error, PULL) from error
        if len(body) != length:
            raise InputError(f"{path} is cut short; {PULL}")
        if crc32(body) != row["crc32"]:  # decoders often overlook such damage
            raise InputError(
                f"{self._name(index)} is not what was written there; see make verify-data"
            )
        return body

    def _name(self, index: int) -> str:
        shard, offset = int(self._index[index]["shard"]), int(self._index[index]["offset"])
        return f"image {index} of {self.folder} ({shard_name(shard)} from byte {offset})"

    def image(self, index: int) -> Tensor:
        file, remedy = BytesIO(self.encoded(index)), "find what is damaged by make verify-data"
        return read_rgb(file, self._name(index), remedy)

    def shape(self, index: int) -> tuple[int, int]:
        row = self._index[index]
        return int(row["height"]), int(row["width"])

    def digest(self) -> str:
        """Return the hash of the original files and labels, equal to that of the same images in a
        folder."""
        return self._digest

    def inspect(self, cache_dir: Path) -> Inspection:
        """Compare the images of a validation split with their checksums, unless their
        shards have not changed since an inspection that `cache_dir` keeps.

        Those of a training split, 140 GB of ImageNet, are compared when they are read: all of them
        within an epoch."""
        if self.name == "train":
            return Inspection(self._digest, {})
        about = [str(self.folder.resolve()), self._index_sha256]
        return cached_inspection(cache_dir, self._shards, about, self._inspect)

    def _inspect(self) -> Inspection:
        bad = {}
        for index in range(len(self.labels)):
            try:
                self.encoded(index)
            except InputError as error:
                bad[index] = str(error)
        return Inspection(self._digest, bad)
