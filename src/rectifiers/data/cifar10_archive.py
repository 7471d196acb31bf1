"""The official python archive of CIFAR-10, packed or unpacked: pickles that Python 2 wrote, read as
untrusted data."""

import pickle
import tarfile
import zlib
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes

PACKED, UNPACKED = "cifar-10-python.tar.gz", "cifar-10-batches-py"
BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
NAMES = [name for names in BATCHES.values() for name in names]
LARGEST_BATCH = 2**25  # bytes; the official files have 31 million
PIXELS = 3 * 32 * 32
REMEDY = "get the official archive again"
Row = tuple[int, bytes, np.ndarray]  # class, official file name, pixels


class _Bytes:
    """Stands for a NumPy array of bytes: none of NumPy's own code, which trusts a pickle, reads
    it."""

    array: np.ndarray

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, _Kind) or kind.name not in ("u1", b"u1") or is_fortran:
            raise ValueError("an array is not of bytes in C's order")
        self.array = np.frombuffer(content, np.uint8).reshape(shape)


class _Kind:
    """Stands for the type of an array's numbers."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: tuple) -> None:
        """Ignore what one byte has no need of: the order of bytes, fields, alignment."""


ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Bytes(),
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _Kind,
}


class _Unpickler(pickle.Unpickler):
    """Makes dicts, lists, texts, bytes, numbers and arrays of bytes, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ALLOWED[module, name]


def is_unpacked(folder: Path) -> bool:
    """Return whether all batches lie in a folder."""
    return all((folder / name).is_file() for name in NAMES)


def read_unpacked(folder: Path) -> np.ndarray:
    """Return the rows of all images, uint8 [N, 3073], in the order of `cifar10`, of a folder with
    the official files.

    Raises:
        InputError: for a file that cannot be read, or is not of the official format.
    """

    def body(name: str) -> bytes:
        try:
            return read_bytes(folder / name, LARGEST_BATCH)
        except OSError as error:
            raise InputError(f"{folder / name} cannot be read ({error}); {REMEDY}") from error

    return _in_order({name: _batch(body(name), str(folder / name)) for name in NAMES})


def read_packed(archive: Path) -> np.ndarray:
    """Return what `read_unpacked` does of the packed archive, from which nothing is written to
    disk.

    Raises:
        InputError: where it is damaged, or lacks a batch.
    """
    found: dict[str, list[Row]] = {}
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                name = member.name.rpartition("/")[2]
                if name in NAMES and member.isreg() and member.size <= LARGEST_BATCH:
                    file = members.extractfile(member)
                    assert file is not None
                    found[name] = _batch(file.read(), f"{name} in {archive}")
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{archive} cannot be read ({error}); {REMEDY}") from error
    for name in NAMES:
        if name not in found:
            raise InputError(f"{archive} has no {name} of the official size; {REMEDY}")
    return _in_order(found)


def _batch(pickled: bytes, name: str) -> list[Row]:
    """Return the images of a batch."""
    try:
        batch = _Unpickler(BytesIO(pickled), encoding="bytes").load()
        pixels = batch[b"data"].array.reshape(-1, PIXELS)
        labels, names = bytes(batch[b"labels"]), [bytes(each) for each in batch[b"filenames"]]
        return list(zip(labels, names, pixels, strict=True))
    except KeyError as error:
        raise InputError(f"{name} is no batch of CIFAR-10 (it has no {error}); {REMEDY}") from error
    except Exception as error:  # a hostile file can raise anything
        raise InputError(
            f"{name} is no batch of CIFAR-10 ({' '.join(str(error).split())}); {REMEDY}"
        ) from error


def _in_order(batches: dict[str, list[Row]]) -> np.ndarray:
    splits = []
    for names in BATCHES.values():
        images = sorted((image for name in names for image in batches[name]), key=itemgetter(0, 1))
        labels, pixels = (
            np.array([row[0] for row in images], np.uint8),
            np.stack([row[2] for row in images]),
        )
        splits.append(np.column_stack([labels, pixels]))
    return np.concatenate(splits)
