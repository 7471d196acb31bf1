"""ImageNet, or any data set in its archives' layout, from the folder that `scripts/prepare_imagenet.py` makes."""

import hashlib
from pathlib import Path

import yaml

from rectifiers.config import CONF, InputError
from rectifiers.data.shards import ShardSplit
from rectifiers.data.sources import Source
from rectifiers.data.store import MANIFEST, SPLITS, read_manifest

PROJECT = CONF.parent


def imagenet(root: str = "data/prepared/imagenet") -> Source:
    """Open a prepared folder, wherever it lies. Its splits' digests are those of the same images in `data=folder`.

    `pinned` says whether one of the project's `dvc.lock` files names this very manifest, and so every byte.

    Raises:
        InputError: where the folder is not whole.
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
    pinned = hashlib.md5((base / MANIFEST).read_bytes()).hexdigest() in pinned_manifests(PROJECT)
    return Source("imagenet", classes, 3, train, val, pinned)


def pinned_manifests(project: Path) -> set[str]:
    """Return the md5 of every manifest that a `dvc.lock` of the project pins. DVC itself is not asked.

    Raises:
        InputError: for a lock that cannot be read.
    """
    found: set[str] = set()
    for path in (project / "dvc.lock", *sorted(project.glob("pipelines/*/dvc.lock"))):
        if not path.is_file():
            continue
        try:
            stages = yaml.safe_load(path.read_text())["stages"].values()
            outs = [out for stage in stages for out in stage.get("outs", [])]
            found |= {str(out["md5"]) for out in outs if Path(out["path"]).name == MANIFEST}
        except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as fault:
            raise InputError(f"{path} cannot be read as a lock of DVC ({fault!r}); restore it from git") from fault
    return found
