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

from pydantic import ConfigDict

from rectifiers.data.imagenet.archives import file_md5, read_expected, verify
from rectifiers.data.images import Inspection, cached_inspection
from rectifiers.runs.sections import ShardBytes, Store
from rectifiers.runtime.console import cli_errors, progress_bar
from rectifiers.runtime.files import load_yaml, write_text
from rectifiers.runtime.machine import usable_cores
from rectifiers.runtime.schema import Section, checked

CACHE = Path(".cache")


class Settings(Section):
    """What of the group `data` is used here."""

    model_config = ConfigDict(extra="ignore")
    root: str
    store: Store
    shard_bytes: ShardBytes


def read_settings(path: Path) -> Settings:
    """Return the keys of `Settings` in a file of `conf/data`."""
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
    settings, archives = Path("conf/data/imagenet.yaml"), Path("pipelines/imagenet/archives.yaml")
    add("--settings", type=Path, default=settings, help="a file of conf/data (default: ImageNet's)")
    add("--archives", type=Path, default=archives, help="the archives (default: ImageNet's)")
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
