"""ImageNet, or any data set in the same layout, from the folder that `scripts/prepare_imagenet.py`
makes."""

from pathlib import Path

from rectifiers.data.imagenet.pins import is_pinned
from rectifiers.data.imagenet.shards import ShardSplit
from rectifiers.data.imagenet.store import MANIFEST, SPLITS, file_sha256, read_manifest
from rectifiers.data.sources import Source
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CHECKOUT


def imagenet(root: str = "data/prepared/imagenet") -> Source:
    """Open a prepared folder. Its splits have the digests of the same images in `data=folder`.

    The source is `pinned` where a lock of the project names this manifest (see `pins`), and so
    every byte.

    Raises:
        InputError: where the folder is incomplete, or a lock cannot be read.
    """
    base = Path(root)
    manifest = read_manifest(base)
    for split in SPLITS:  # only the index with the labels; `make verify-data` reads the shards
        path, known = base / split / "index.npy", manifest["files"][f"{split}/index.npy"]
        try:
            sha256 = file_sha256(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error}); pull the data again") from error
        if sha256 != known["sha256"]:
            raise InputError(
                f"{path} is not what was written there; pull the data again, or prepare the "
                "archives again"
            )
    classes = tuple(known["wnid"] for known in manifest["classes"])
    train, val = (ShardSplit(base, split, manifest) for split in SPLITS)
    pinned = CHECKOUT is not None and is_pinned((base / MANIFEST).read_bytes(), manifest, CHECKOUT)
    return Source("imagenet", classes, 3, train, val, pinned)
