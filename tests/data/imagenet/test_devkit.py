"""The devkit's ids are not labels: they count in another order than sorted WNIDs."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from rectifiers.data.imagenet.devkit import read_devkit
from rectifiers.runtime.errors import InputError

BASE = "ILSVRC2012_devkit_t12/data"
LEAVES = ((1, "n00000003", 0), (2, "n00000001", 0), (3, "n00000002", 0))
INNER = ((4, "n00000000", 2),)


def kit(
    path: Path, rows: tuple = LEAVES + INNER, truth: str = "1\n2\n3\n1\n", meta: bytes | None = None
) -> Path:
    synsets = np.zeros(
        (len(rows), 1),
        dtype=[(n, object) for n in ("ILSVRC2012_ID", "WNID", "words", "num_children")],
    )
    for i, (number, wnid, children) in enumerate(rows):
        synsets[i, 0] = (float(number), wnid, f"word {wnid}", float(children))
    file, mat = io.BytesIO(), io.BytesIO()
    savemat(mat, {"synsets": synsets})
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, body in (
            ("meta.mat", mat.getvalue() if meta is None else meta),
            ("ILSVRC2012_validation_ground_truth.txt", truth.encode()),
        ):
            info = tarfile.TarInfo(f"{BASE}/{name}")
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    path.write_bytes(gzip.compress(file.getvalue()))
    return path


def test_a_label_is_the_position_among_wnids(tmp_path: Path) -> None:
    devkit = read_devkit(kit(tmp_path / "kit.tar.gz"), 3, 4)
    assert devkit.wnids == ("n00000001", "n00000002", "n00000003")
    assert devkit.words == ("word n00000001", "word n00000002", "word n00000003")
    assert devkit.val_labels == (2, 0, 1, 2)  # the trap would give (0, 1, 2, 0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"meta": b"no mat"}, "cannot be read as the devkit"),
        ({"truth": "1\n2\nthree\n1\n"}, "cannot be read as the devkit"),
        ({"truth": "1\n2\n3\n"}, "must have 4"),
        ({"truth": "1\n2\n3\n4\n"}, "numbers from 1 to 3"),
        ({"rows": LEAVES[:2] + INNER}, "must have 3"),
        ({"rows": (*LEAVES[:2], (3, "../evil", 0))}, "which is no WNID"),
    ],
)
def test_an_inconsistent_devkit_is_refused(changed: dict, reason: str, tmp_path: Path) -> None:
    path = kit(tmp_path / "kit.tar.gz", **changed)
    with pytest.raises(InputError, match=rf"kit\.tar\.gz.*{reason}.*fetch it again"):
        read_devkit(path, 3, 4)
