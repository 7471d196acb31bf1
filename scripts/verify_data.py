"""Read all prepared data again and name the files that differ from their pinned checksums.

DVC does not read a file again if its time and size are unchanged, nor a cache that is linked to it.
This program reads everything. It compares archives with `pipelines/*/archives.yaml`, other outputs
with `dvc.lock`, and the files below them with the manifest. ImageNet is checked only if its
data are present; a missing file of the miniature is an error."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rectifiers.data.imagenet import locked_outs, locks
from rectifiers.data.imagenet.archives import file_md5, read_expected
from rectifiers.data.imagenet.shards import MANIFEST, different_files
from rectifiers.runtime.console import cli_errors, print_error, stderr
from rectifiers.runtime.errors import InputError

REMEDY = (
    "remove it and the copy in DVC's cache that find -L $(dvc cache dir) -samefile {} names, if "
    "any, and get it again: by dvc pull or dvc repro if a stage makes it"
)


def pinned_files(project: Path) -> dict[Path, str]:
    """Return the md5 of every pinned file of a data set by its path below the project; the lock of
    the project's own folder is of a training."""
    pins = {
        path: md5
        for lock in locks(project)
        if lock.parent != project
        for path, md5 in locked_outs(lock).items()
        if not md5.endswith(".dir")
        and (lock.parent.name == "miniature" or (project / path).is_file())
    }
    for listed in sorted(project.glob("pipelines/*/archives.yaml")):
        for archive in read_expected(listed).archives.values():
            if archive.path in pins or (project / archive.path).is_file():
                pins[archive.path] = archive.md5
    return pins


def find_errors(project: Path) -> Iterator[str]:
    """Yield a sentence for every file that is missing or differs."""
    for path, md5 in pinned_files(project).items():
        file = project / path
        with stderr.status(f"reading {path}"):
            if not file.is_file():
                yield f"{path} is missing; give make data or dvc pull"
                continue

            if file_md5(file) != md5:
                yield f"{path} differs from its pin; {REMEDY.format(path)}"
            if path.name == MANIFEST:
                try:
                    for name in different_files(file.parent):
                        part = path.parent / name
                        yield f"{part} differs from its manifest; {REMEDY.format(part)}"
                except InputError as error:
                    yield str(error)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with cli_errors():
        errors = list(find_errors(Path.cwd()))
    for sentence in errors:
        print_error(InputError(sentence))
    if errors:
        sys.exit(1)
    print("all pinned files, and all that their manifests name, are as pinned")


if __name__ == "__main__":
    main()
