"""Which data are pinned, read from `dvc.lock` and from git, without DVC."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rectifiers.data.imagenet.archives import read_expected
from rectifiers.data.imagenet.store import MANIFEST
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import git

ARCHIVES = "archives.yaml"


def locks(project: Path) -> list[Path]:
    """Return the project's `dvc.lock` files."""
    return [
        path
        for path in (project / "dvc.lock", *sorted(project.glob("pipelines/*/dvc.lock")))
        if path.is_file()
    ]


@dataclass(frozen=True)
class Out:
    """An output in a lock: its md5, which ends in `.dir` for a folder, and the stage that makes
    it."""

    md5: str
    stage: str


def locked_outs(lock: Path, text: str | None = None) -> dict[Path, Out]:
    """Return the outputs of a lock by their paths below the project.

    text: the lock's content, where that is not the file's present one.

    Raises:
        InputError: for a lock that cannot be read.
    """
    try:
        stages = yaml.safe_load(lock.read_text() if text is None else text)["stages"].items()
        return {
            Path(out["path"]): Out(str(out["md5"]), name)
            for name, stage in stages
            for out in stage.get("outs", [])
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{lock} cannot be read as a lock of DVC ({error!r}); restore it from git"
        ) from error


def is_pinned(body: bytes, manifest: dict[str, Any], project: Path) -> bool:
    """Return whether a lock of the project that can be trusted names a manifest, whose file has the
    content `body`.

    Of a committed lock the commit counts, not the present file, because `dvc repro` writes whatever
    came out into it. A lock that was never committed, as ImageNet's at first, counts where the
    manifest was made from the archives whose md5 are committed beside it.

    Raises:
        InputError: for a lock that cannot be read.
    """
    md5 = hashlib.md5(body).hexdigest()
    for lock in locks(project):
        text = committed_text(lock)
        manifests = {
            out.md5 for path, out in locked_outs(lock, text).items() if path.name == MANIFEST
        }
        if md5 in manifests and (
            text is not None
            or manifest.get("archives") == _official_archives(lock.with_name(ARCHIVES))
        ):
            return True
    return False


def _official_archives(path: Path) -> dict[str, dict[str, str]] | None:
    """Return the committed archives in the form in which a manifest names its sources."""
    text = committed_text(path)
    if text is None:
        return None
    return {
        archive.path.name: {"md5": archive.md5}
        for archive in read_expected(path, text).archives.values()
    }


def committed_text(path: Path) -> str | None:
    """Return a file's content in git's HEAD, or None; outside a git repository, its present
    content."""
    if git("rev-parse", "--git-dir", at=path.parent) is None:
        return path.read_text() if path.is_file() else None
    return git("show", f"HEAD:./{path.name}", at=path.parent)
