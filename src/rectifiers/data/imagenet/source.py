"""ImageNet, or any data set in its archives' layout, from the folder that `scripts/prepare_imagenet.py` makes."""

import hashlib
from pathlib import Path

from rectifiers.data.imagenet.pins import is_pinned
from rectifiers.data.imagenet.shards import ShardSplit
from rectifiers.data.imagenet.store import MANIFEST, SPLITS, read_manifest
from rectifiers.data.sources import Source
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CHECKOUT


def imagenet(root: str = "data/prepared/imagenet") -> Source:
    """Open a prepared folder, wherever it lies. Its splits' digests are those of the same images in `data=folder`.

    `pinned` says whether a checkout answers for this very manifest (`pins`), and so for every byte.

    Raises:
        InputError: where the folder is not whole, or a lock cannot be read.
    """
    base = Path(root)
    manifest = read_manifest(base)
    for split in SPLITS:  # the labels; the shards are for `make verify-data`, an index is read whole anyway
        path, known = base / split / "index.npy", manifest["files"][f"{split}/index.npy"]
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as fault:
            raise InputError(f"{path} cannot be read ({fault}); pull the data anew") from fault
        if found != known["sha256"]:
            raise InputError(f"{path} is not what was written there; pull the data anew, or prepare the archives again")
    classes = tuple(known["wnid"] for known in manifest["classes"])
    train, val = (ShardSplit(base, split, manifest) for split in SPLITS)
    pinned = CHECKOUT is not None and is_pinned((base / MANIFEST).read_bytes(), manifest, CHECKOUT)
    return Source("imagenet", classes, 3, train, val, pinned)
