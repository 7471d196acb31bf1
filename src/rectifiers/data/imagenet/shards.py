"""The images of a prepared folder (`store` describes its layout), by index."""

import io
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from zlib_ng.zlib_ng import crc32

from rectifiers.data.imagenet.store import INDEX, STORED_AS, shard_name
from rectifiers.data.images import Inspection, remember
from rectifiers.data.splits import read_rgb
from rectifiers.runtime.errors import InputError


class ShardSplit:
    """One split of a prepared folder, opened in milliseconds whatever its size; a `Split` of
    `data.splits`.

    Bytes are read by pread: a truncated shard is an error message instead of a dead process (as
    under mmap), forked workers share the open files, and a pickled split opens its own.

    Raises:
        InputError: where the index does not fit the shards.
    """

    def __init__(self, root: Path, name: str, manifest: dict[str, Any]) -> None:
        self.name, self.folder = name, root / name
        self._digest: str = manifest["splits"][name]["digest"]
        files = manifest["files"]
        shards = sorted(file for file in files if file.startswith(f"{name}/shard-"))
        sizes = [files[shard]["bytes"] for shard in shards]
        self._shards = [root / shard for shard in shards]
        self._index_sha256: str = files[f"{name}/index.npy"]["sha256"]
        try:
            self._index = np.load(self.folder / "index.npy", mmap_mode="r", allow_pickle=False)
        except Exception as error:  # numpy evaluates the header as Python text
            raise InputError(
                f"{self.folder / 'index.npy'} cannot be read ({error}); pull the data again"
            ) from error
        self._check(
            sizes, classes=len(manifest["classes"]), images=manifest["splits"][name]["images"]
        )
        self.labels: Sequence[int] = array(
            "H", np.ascontiguousarray(self._index["label"]).astype("=u2").tobytes()
        )
        self._files: dict[int, int] = {}

    def _check(self, sizes: list[int], classes: int, images: int) -> None:
        index = self._index
        fits = index.dtype == INDEX and index.shape == (images,) and images > 0
        if fits:
            ends = np.array(sizes, dtype=np.uint64)
            shard = index["shard"]
            fits = bool(len(sizes) and shard.max() < len(sizes) and index["label"].max() < classes)
            # `end - length` cannot overflow where `length <= end`; `offset + length` could.
            fits = fits and bool((index["length"] <= ends[shard]).all())
            fits = fits and bool((index["offset"] <= ends[shard] - index["length"]).all())
        if not fits:
            raise InputError(
                f"{self.folder / 'index.npy'} does not fit the shards beside it; prepare the "
                "archives again"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}, "_index": self._index.filename}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._index = np.load(state["_index"], mmap_mode="r", allow_pickle=False)

    def __del__(self) -> None:
        for file in self.__dict__.get("_files", {}).values():
            os.close(file)

    def encoded(self, index: int) -> bytes:
        """Return the stored bytes of one image: a JPEG, or a PPM where libjpeg could not read the
        original.

        Raises:
            InputError: where the shard ends early, or the bytes are not those that were written.
        """
        row = self._index[index]
        shard, length = int(row["shard"]), int(row["length"])
        file = self._files.get(shard)
        if file is None:
            path = self.folder / shard_name(shard)
            try:
                # Two threads may both open it; the second one closes its own again.
                opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise InputError(f"{path} cannot be read ({error}); pull the data again") from error
            file = self._files.setdefault(shard, opened)
            if file != opened:
                os.close(opened)
        try:
            body = os.pread(file, length, int(row["offset"]))
        except OSError as error:
            raise InputError(
                f"{self.folder / shard_name(shard)} cannot be read ({error}); see make verify-data"
            ) from error
        if len(body) != length:
            raise InputError(f"{self.folder / shard_name(shard)} is cut short; pull the data again")
        if crc32(body) != row["crc32"]:  # decoders often overlook such damage
            raise InputError(
                f"{self._name(index)} is not what was written there; see make verify-data"
            )
        return body

    def _name(self, index: int) -> str:
        row = self._index[index]
        return (
            f"image {index} of {self.folder} ({shard_name(int(row['shard']))} from byte "
            f"{int(row['offset'])})"
        )

    def image(self, index: int) -> Tensor:
        name = self._name(index)
        return read_rgb(
            io.BytesIO(self.encoded(index)),
            name,
            STORED_AS,
            remedy="find what is damaged by make verify-data",
        )

    def shape(self, index: int) -> tuple[int, int]:
        row = self._index[index]
        return int(row["height"]), int(row["width"])

    def digest(self) -> str:
        """Return the hash of the original files and labels, equal to that of the same images in a
        folder."""
        return self._digest

    def inspect(self, cache_dir: Path | None) -> Inspection:
        """Compare the images of a validation split with their checksums, unless their
        shards have not changed since an inspection that `cache_dir` keeps.

        Those of a training split, 140 GB of ImageNet, are compared when they are read: all of them
        within an epoch."""
        if self.name == "train":
            return Inspection(self._digest, [])
        about = [str(self.folder.resolve()), self._index_sha256]
        return remember(cache_dir, self._shards, about, self._inspect)

    def _inspect(self) -> Inspection:
        unreadable = []
        for index in range(len(self.labels)):
            try:
                self.encoded(index)
            except InputError as error:
                unreadable.append(str(error))
        return Inspection(self._digest, unreadable)
