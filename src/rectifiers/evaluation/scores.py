"""Kept scores: one file per run and protocol, by image, so that ensembles and paired tests need no
second pass."""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Scores:
    """Mean softmax scores of a whole split, float32 [images, classes], with its labels, int64
    [images].

    Row i belongs to the i-th image that is tested of the data whose content hash is `data`.
    settings: the protocol's, as canonical JSON."""

    scores: "np.ndarray"
    labels: "np.ndarray"
    data: str
    settings: str

    def digest(self) -> str:
        """Return a hash of all fields, 16 hex digits; a record holds it, so that a file of another
        test is noticed."""
        content = hashlib.blake2b(f"{self.data} {self.settings} ".encode(), digest_size=8)
        content.update(self.scores.tobytes())
        content.update(self.labels.tobytes())
        return content.hexdigest()


def scores_path(folder: Path, protocol: str) -> Path:
    """Return where a run keeps the scores of a protocol."""
    return folder / "scores" / f"{protocol}.npz"


def write(path: Path, scores: Scores) -> None:
    """Write the file, whole or not at all, in NumPy's npz format: four bytes per score."""
    import numpy as np

    with atomic_file(path) as file:
        np.savez(file, **vars(scores))


def load(path: Path) -> Scores:
    """Read a file that `write` made; no pickled code is executed.

    Raises:
        InputError: where the file cannot be read or holds something else.
    """
    import numpy as np

    try:
        if not path.is_file():
            raise OSError("it is no regular file")
        with zipfile.ZipFile(path) as parts:
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
                raise ValueError("a part is compressed, and may unpack to any size")
        with np.load(path, allow_pickle=False) as file:
            loaded = Scores(
                file["scores"], file["labels"], str(file["data"]), str(file["settings"])
            )
        if (
            loaded.scores.dtype != np.float32
            or loaded.scores.ndim != 2
            or loaded.labels.shape != loaded.scores.shape[:1]
        ):
            raise ValueError(
                f"scores of shape {loaded.scores.shape}, labels of shape {loaded.labels.shape}"
            )
    except (
        Exception
    ) as error:  # a damaged file fails in as many ways as zip and NumPy's format know
        raise InputError(
            f"{path} cannot be read as kept scores ({error}); remove it and test the run again"
        ) from error
    return loaded
