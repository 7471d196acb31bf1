"""Kept scores: one file a run and protocol, keyed by image, so that ensembles and paired tests need no second pass."""

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
    """Mean softmax scores of a whole split, float32 [images, classes], with its labels, int64 [images].

    Row i is of the i-th image of the val split of the data whose content hash is `data`, which is what tells one image
    from another. settings: the protocol's, as canonical JSON.
    """

    scores: "np.ndarray"
    labels: "np.ndarray"
    data: str
    settings: str

    def digest(self) -> str:
        """Return 16 hex digits of all of it; a record holds them, so that a file of another test is noticed."""
        content = hashlib.blake2b(f"{self.data} {self.settings} ".encode(), digest_size=8)
        content.update(self.scores.tobytes())
        content.update(self.labels.tobytes())
        return content.hexdigest()


def scores_path(folder: Path, protocol: str) -> Path:
    """Return where a run keeps the scores of a protocol."""
    return folder / "scores" / f"{protocol}.npz"


def write(path: Path, kept: Scores) -> None:
    """Write the file, whole or not at all: NumPy's own format, four bytes a score."""
    import numpy as np

    with atomic_file(path) as file:
        np.savez(file, **vars(kept))


def load(path: Path) -> Scores:
    """Read a file that `write` made; nothing in it is executed.

    Raises:
        InputError: where it cannot be read or holds something else.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            kept = Scores(file["scores"], file["labels"], str(file["data"]), str(file["settings"]))
        if kept.scores.dtype != np.float32 or kept.scores.ndim != 2 or kept.labels.shape != kept.scores.shape[:1]:
            raise ValueError(f"scores of shape {kept.scores.shape}, labels of shape {kept.labels.shape}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as fault:
        raise InputError(f"{path} cannot be read as kept scores ({fault}); remove it and test the run again") from fault
    return kept
