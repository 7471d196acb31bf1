"""What pinned means, as far as training asks: read from `dvc.lock` and from git. DVC itself is never asked."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rectifiers.data.imagenet.archives import read_expected
from rectifiers.data.imagenet.store import MANIFEST
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.git import git

ARCHIVES = "archives.yaml"


def locks(project: Path) -> list[Path]:
    """Return the project's `dvc.lock` files."""
    return [path for path in (project / "dvc.lock", *sorted(project.glob("pipelines/*/dvc.lock"))) if path.is_file()]


@dataclass(frozen=True)
class Out:
    """What a lock says of an out: its md5, which ends in `.dir` for a folder, and the stage that makes it."""

    md5: str
    stage: str


def locked_outs(lock: Path, text: str | None = None) -> dict[Path, Out]:
    """Return the outs of a lock by their paths below the project.

    text: what the lock says, where that is not what lies there.

    Raises:
        InputError: for a lock that cannot be read.
    """
    try:
        stages = yaml.safe_load(lock.read_text() if text is None else text)["stages"].items()
        return {
            Path(out["path"]): Out(str(out["md5"]), name) for name, stage in stages for out in stage.get("outs", [])
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as fault:
        raise InputError(f"{lock} cannot be read as a lock of DVC ({fault!r}); restore it from git") from fault


def is_pinned(body: bytes, manifest: dict[str, Any], project: Path) -> bool:
    """Whether a manifest, `body` as a file, is one that a lock of the project names and that somebody answers for.

    For a lock that is committed, its commit does, and what lies there does not count: `dvc repro` writes into it
    whatever came out. One that was never committed, as ImageNet's at first, counts where the manifest was made of the
    archives whose md5 are committed beside it.

    Raises:
        InputError: for a lock that cannot be read.
    """
    md5 = hashlib.md5(body).hexdigest()
    for lock in locks(project):
        text = committed(lock)
        named = {out.md5 for path, out in locked_outs(lock, text).items() if path.name == MANIFEST}
        if md5 in named and (text is not None or manifest.get("archives") == _official(lock.with_name(ARCHIVES))):
            return True
    return False


def _official(path: Path) -> dict[str, dict[str, str]] | None:
    """The archives that are committed, as a manifest names those that it was made of."""
    text = committed(path)
    if text is None:
        return None
    return {archive.path.name: {"md5": archive.md5} for archive in read_expected(path, text).archives.values()}


def committed(path: Path) -> str | None:
    """Return what git's HEAD has at a path, or None. Without git, what lies there came with the code."""
    if git("rev-parse", "--git-dir", at=path.parent) is None:
        return path.read_text() if path.is_file() else None
    return git("show", f"HEAD:./{path.name}", at=path.parent)
