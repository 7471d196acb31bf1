"""The ILSVRC 2012 devkit: the classes, and the class of every validation image."""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io

from rectifiers.data.imagenet.archives import read_gzipped_members
from rectifiers.runtime.errors import InputError

FILES = {
    "meta": re.compile(r"ILSVRC2012_devkit_t12/data/meta\.mat"),
    "truth": re.compile(r"ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth\.txt"),
}
WNID = re.compile(r"n[0-9]{8}")


@dataclass(frozen=True)
class Devkit:
    """Classes in label order (sorted WordNet ids), and validation labels in the order of file
    names."""

    wnids: tuple[str, ...]
    words: tuple[str, ...]
    val_labels: tuple[int, ...]


def read_devkit(path: Path, classes: int, val_images: int) -> Devkit:
    """Read the devkit's archive.

    The ground truth is given in ILSVRC2012_IDs, whose order is not that of the labels: a label is
    the position of the class among the sorted WNIDs. `meta.mat` maps one to the other; it lists
    inner nodes, too.

    Raises:
        InputError: where the devkit does not contain `classes` classes and `val_images` labels.
    """
    content = read_gzipped_members(path, FILES)
    try:
        synsets = np.atleast_1d(
            scipy.io.loadmat(io.BytesIO(content["meta"]), squeeze_me=True)["synsets"]
        )
        leaves = [
            s for s in synsets if int(s["num_children"]) == 0 and int(s["ILSVRC2012_ID"]) <= classes
        ]
        wnid_of = {int(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in leaves}
        words_of = {str(s["WNID"]): str(s["words"]) for s in leaves}
        truth = [int(line) for line in content["truth"].decode("ascii").split()]
    except Exception as error:  # a hostile MATLAB file can raise anything
        raise InputError(
            f"{path} cannot be read as the devkit ({error!r}); fetch it again"
        ) from error
    wnids = tuple(sorted(words_of))
    if (
        len(leaves) != classes
        or sorted(wnid_of) != list(range(1, classes + 1))
        or len(wnids) != classes
    ):
        raise InputError(
            f"{path}: meta.mat has {len(leaves)} classes under {len(wnid_of)} ids and "
            f"{len(wnids)} WNIDs, and must "
            f"have {classes} of each; fetch it again"
        )
    unusable = next((wnid for wnid in wnids if not WNID.fullmatch(wnid)), None)
    if unusable is not None:
        raise InputError(
            f"{path}: meta.mat names a class {unusable!a}, which is no WNID; fetch it again"
        )
    if len(truth) != val_images or not all(1 <= number <= classes for number in truth):
        raise InputError(
            f"{path}: the ground truth has {len(truth):,} lines and must have {val_images:,} "
            "numbers from 1 to "
            f"{classes}; fetch it again"
        )
    label_of = {number: wnids.index(wnid) for number, wnid in wnid_of.items()}
    return Devkit(
        wnids, tuple(words_of[wnid] for wnid in wnids), tuple(label_of[number] for number in truth)
    )
