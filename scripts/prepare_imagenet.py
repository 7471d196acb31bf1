"""Convert ImageNet's official archives to shards for training. DVC runs these stages.

Examples:
  python scripts/prepare_imagenet.py verify    check the archives against their checksums
  python scripts/prepare_imagenet.py prepare   write shards, indexes and the manifest; continues
                                               after an interruption
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Annotated, Literal

from rectifiers.data.imagenet.archives import file_md5, read_expected, verify
from rectifiers.data.images import Inspection, cached_inspection
from rectifiers.runtime.console import cli_errors, progress_bar
from rectifiers.runtime.errors import reading
from rectifiers.runtime.files import load_yaml, write_text
from rectifiers.runtime.machine import usable_cores
from rectifiers.runtime.ranges import Range
from rectifiers.runtime.schema import Section, checked

CACHE = Path(".cache")


class Settings(Section):
    """The folder of the prepared images, their form, and the size of a file of them."""

    root: str
    store: Literal["tiled", "plain"]  # tiled: JPEGs with restart markers, decoded faster
    shard_bytes: Annotated[int, Range(ge=1, le=2**40)]


def read_settings(path: Path) -> Settings:
    """Return the settings of a file such as `pipelines/imagenet/settings.yaml`."""
    with reading(path, "restore it from git"):
        return checked(Settings, load_yaml(path.read_text())["data"], f"{path}: data.")


def cached_md5(path: Path) -> str:
    """Return the md5 of an archive, which is read again only where it has changed."""

    def read() -> Inspection:
        with progress_bar(f"reading {path.name}", path.stat().st_size, "bytes") as advance:
            return Inspection(file_md5(path, advance), {})

    return cached_inspection(CACHE, [path], "md5", read).digest


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("stage", choices=("verify", "prepare"), help="the stages, in this order")
    folder = Path("pipelines/imagenet")
    for name in ("settings", "archives"):
        file = folder / f"{name}.yaml"
        add(f"--{name}", type=Path, default=file, help=f"the {name} (default: ImageNet's)")
    add("--out", type=Path, help="the file that verify writes")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    stage, out = arguments.stage, arguments.out
    warnings.filterwarnings("ignore", module=r"PIL\.TiffImagePlugin")  # of broken EXIF
    with cli_errors("interrupted; the same command continues from here"):
        settings = read_settings(arguments.settings)
        expected = read_expected(arguments.archives)
        root = Path(settings.root)
        for archive in expected.archives.values():  # before they are prepared, too
            verify(archive, cached_md5)
        if stage == "verify" and out:
            write_text(out, json.dumps(expected.md5s, indent=1) + "\n")
        if stage == "prepare":
            from rectifiers.data.imagenet.prepare import prepare

            store, size = settings.store, settings.shard_bytes
            prepare(expected, root, store=store, shard_bytes=size, threads=usable_cores())


if __name__ == "__main__":
    main()
