"""Read all prepared data again and name the files that differ from their pinned checksums.

DVC does not read a file again if its time and size are unchanged, nor a cache that is linked to it.
This program reads everything. It compares archives with `pipelines/*/archives.yaml`, other outputs
with `dvc.lock`, and the files below them with the manifest. ImageNet and Imagenette are checked
only if their data are present; a missing file of the miniature is an error."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rectifiers.data.imagenet import is_pinned, locked_outs, locks
from rectifiers.data.imagenet.archives import file_md5, read_expected
from rectifiers.data.imagenet.shards import MANIFEST, different_files
from rectifiers.runtime.console import cli_errors, print_error, stderr
from rectifiers.runtime.errors import InputError


def pinned_files(project: Path) -> dict[Path, tuple[str, str]]:
    """Return by its path below the project for every pinned file (its md5, the command that
    restores it)."""
    pins: dict[Path, tuple[str, str]] = {}
    for lock in locks(project):
        stages = lock.with_suffix(".yaml").relative_to(project)
        at_root = lock.parent == project
        make, stage = ("make data", "") if at_root else (f"dvc repro {stages}", f"{stages}:")
        for path, out in locked_outs(lock).items():
            if not out.md5.endswith(".dir") and (at_root or (project / path).is_file()):
                pins[path] = out.md5, f"give {make}, or dvc pull {stage}{out.stage}"
    for listed in sorted(project.glob("pipelines/*/archives.yaml")):
        for archive in read_expected(listed).archives.values():
            if archive.path in pins or (project / archive.path).is_file():
                _, restore = pins.get(archive.path, ("", "fetch the archive again"))
                pins[archive.path] = archive.md5, restore
    return pins


def find_errors(project: Path) -> Iterator[str]:
    """Yield a sentence for every file that is missing or differs."""
    for path, (md5, restore) in pinned_files(project).items():
        file = project / path
        with stderr.status(f"reading {path}"):
            if not file.is_file():
                yield f"{path} is missing; {restore}"
                continue
            same = file_md5(file) == md5
            if not same:
                yield f"{path} differs from its pin; {remedy(path, restore)}"
            if path.name != MANIFEST:
                continue
            try:
                if same and not is_pinned(file.read_bytes(), project):
                    yield f"{path} is named by a lock that is not committed; commit or restore it"
                for name in different_files(file.parent):
                    part = path.parent / name
                    yield f"{part} differs from its manifest; {remedy(part, restore)}"
            except InputError as error:
                yield str(error)


def remedy(path: Path, restore: str) -> str:
    """Return how to restore a file of which DVC's cache may have a link, with the same bytes."""
    copy = f"the copy in DVC's cache that find -L $(dvc cache dir) -samefile {path} names, if any"
    return f"remove it and {copy}, and {restore}"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with cli_errors():
        project = Path.cwd()
        errors = list(find_errors(project))
    for sentence in errors:
        print_error(InputError(sentence))
    if errors:
        sys.exit(1)
    count = len(pinned_files(project))
    print(f"{count} pinned files, and all that their manifests name, are as pinned")


if __name__ == "__main__":
    main()
