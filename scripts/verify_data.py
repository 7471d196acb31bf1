"""Read every pinned byte again and name the files that differ; `make verify-data`.

DVC trusts a file whose time and size stay, and a cache that is linked to it. This trusts neither: archives are compared
with `pipelines/*/archives.yaml`, other outputs with `dvc.lock`, and what is below them with the manifest.
Archives of ImageNet that are not here are no fault; anything else that is pinned and missing is one.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from rectifiers.config import InputError
from rectifiers.data.archives import file_md5, read_expected
from rectifiers.data.pins import is_pinned, locked_outs, locks
from rectifiers.data.store import MANIFEST, different_files, read_manifest

CONSOLE = Console(stderr=True)
OPTIONAL = Path("pipelines/imagenet/archives.yaml")


def pinned_files(project: Path) -> dict[Path, str]:
    """Return the md5 of every single file that is pinned, by its path below the project."""
    pins: dict[Path, str] = {}
    for lock in locks(project):
        pins |= {path: md5 for path, md5 in locked_outs(lock).items() if not md5.endswith(".dir")}
    for listed in sorted(project.glob("pipelines/*/archives.yaml")):
        for archive in read_expected(listed).archives.values():
            if (project / archive.path).is_file() or listed != project / OPTIONAL:
                pins[archive.path] = archive.md5
    return pins


def faults(project: Path) -> Iterator[str]:
    """Yield a sentence for every file that is missing or differs."""
    for path, md5 in pinned_files(project).items():
        file = project / path
        with CONSOLE.status(f"reading {path}"):
            if not file.is_file():
                yield f"{path} is missing; give make data, or dvc pull"
                continue
            same = file_md5(file) == md5
            if not same:
                yield f"{path} differs from its pin; {remedy(project, file)}"
            if path.name != MANIFEST:
                continue
            try:
                if same and not is_pinned(file.read_bytes(), read_manifest(file.parent), project):
                    yield f"{path} is named by a lock that is not committed; commit that, or restore it"
                for name in different_files(file.parent):
                    yield f"{path.parent / name} differs from its manifest; {remedy(project, file.parent / name)}"
            except InputError as fault:
                yield str(fault)


def remedy(project: Path, file: Path) -> str:
    """What to remove before the file is made or pulled again: a link's other end is as wrong as the file."""
    cache = project / ".dvc" / "cache"
    linked = next((copy for copy in cache.rglob("*") if copy.is_file() and copy.samefile(file)), None)
    also = "" if linked is None else f" and {linked.relative_to(project)}, the same bytes"
    return f"remove it{also}, and make or pull it again"


def main() -> None:
    project = Path.cwd()
    try:
        found = list(faults(project))
    except InputError as fault:
        found = [str(fault)]
    for sentence in found:
        print(f"error: {sentence}", file=sys.stderr)
    if found:
        sys.exit(1)
    count = len(pinned_files(project))
    print(f"{count} pinned files, and all that their manifests name, are as pinned")


if __name__ == "__main__":
    main()
