"""ImageNet: from the official archives to shards that training reads, and which of them are
pinned."""

import hashlib
from pathlib import Path

import yaml

from rectifiers.data.imagenet.shards import (
    MANIFEST,
    PULL,
    SPLITS,
    ShardSplit,
    file_sha256,
    read_manifest,
)
from rectifiers.data.sources import Source
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import CHECKOUT, git


def imagenet(root: str = "data/prepared/imagenet") -> Source:
    """Open the folder that `scripts/prepare_imagenet.py` made of ImageNet, or of data in the same
    layout. Its splits have the digests of the same images in `data=folder`.

    The source is `pinned` where a committed lock of the project names this manifest, and so every
    byte.

    Raises:
        InputError: where files are missing, or differ from the manifest in size or index.
    """
    base = Path(root)
    manifest = read_manifest(base)
    for split in SPLITS:  # only the index with the labels; `make verify-data` reads the shards
        path = base / split / "index.npy"
        if file_sha256(path) != manifest["files"][f"{split}/index.npy"]["sha256"]:
            raise InputError(f"{path} is not what was written there; {PULL}")
    classes = tuple(facts["wnid"] for facts in manifest["classes"])
    train, val = (ShardSplit(base, split, manifest) for split in SPLITS)
    pinned = CHECKOUT is not None and is_pinned((base / MANIFEST).read_bytes(), CHECKOUT)
    return Source("imagenet", classes, 3, train, val, pinned)


# ---- pins, read from `dvc.lock` and from git, without DVC ----


def locks(project: Path) -> list[Path]:
    """Return the project's `dvc.lock` files."""
    paths = (project / "dvc.lock", *sorted(project.glob("pipelines/*/dvc.lock")))
    return [path for path in paths if path.is_file()]


def locked_outs(lock: Path, text: str | None = None) -> dict[Path, str]:
    """Return the md5 of a lock's outputs, which ends in `.dir` for a folder, by their paths below
    the project.

    text: the lock's content, where that is not the file's present one.
    """
    try:
        stages = yaml.safe_load(lock.read_text() if text is None else text)["stages"].values()
        outs = [out for stage in stages for out in stage.get("outs", [])]
        return {Path(out["path"]): str(out["md5"]) for out in outs}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(lock, repr(error), "restore it from git") from error


def is_pinned(manifest: bytes, project: Path) -> bool:
    """Return whether a committed lock of the project names a manifest with this content.

    Of a lock the commit counts, not the present file, because `dvc repro` writes whatever came out
    into it; outside a git repository, the present file does.
    """
    md5 = hashlib.md5(manifest).hexdigest()
    in_git = git("rev-parse", "--git-dir", at=project) is not None
    for lock in locks(project):
        text = None
        if in_git:
            text = git("show", f"HEAD:./{lock.name}", at=lock.parent)
            if not text:  # the lock is not committed
                continue
        outs = locked_outs(lock, text)
        if any(path.name == MANIFEST and out == md5 for path, out in outs.items()):
            return True
    return False
