"""Convert the official archives to a folder to train from: the stages of
`pipelines/imagenet/dvc.yaml` and `dvc.yaml`.

Examples:
  python scripts/prepare_imagenet.py verify       # the archives are the pinned bytes
  python scripts/prepare_imagenet.py prepare      # archives -> shards, indexes, manifest; continues
                                                  after a stop
  python scripts/prepare_imagenet.py statistics   # of the training images' centre crops
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import yaml
from pydantic import ConfigDict

from rectifiers.data.imagenet.archives import Expected, file_md5, read_expected, verify
from rectifiers.runs.sections import Pixels, ShardBytes, Store
from rectifiers.runtime.console import cli_errors, progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, write_text
from rectifiers.runtime.schema import Section, checked


class Settings(Section):
    """What of the group `data` is used here."""

    model_config = ConfigDict(extra="ignore")
    root: str
    store: Store
    shard_bytes: ShardBytes
    resize_px: Pixels
    crop_px: Pixels


def read_settings(path: Path) -> Settings:
    """Return the keys of `Settings` in a file of `conf/data`."""
    try:
        data = dict(yaml.safe_load(path.read_text())["data"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as settings of a data set ({error!r}); restore it from git"
        ) from error
    return checked(Settings, data, f"{path}: data.")


def cached_md5() -> Callable[[Path, Callable[[int], None]], str]:
    """Return `file_md5` with the memory of DVC, where it knows the file, so that 150 GB are read
    once."""
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_objects.fs.local import LocalFileSystem

    try:
        state = Repo().state
    except Exception:  # not a repository of DVC: a copy of the code without .git, for one
        return file_md5

    def md5(path: Path, on_bytes: Callable[[int], None]) -> str:
        real, files = str(path.resolve()), LocalFileSystem()
        _, known = state.get(real, files)
        if known is None or known.name != "md5":
            known = HashInfo("md5", file_md5(path, on_bytes))
            state.save(real, files, known)
        return known.value

    return md5


def verify_all(expected: Expected, pins: Path | None) -> str:
    """Check every archive, and that DVC's file of pins, which `dvc repro -P` rewrites, agrees with
    `expected`."""
    wanted = {archive.path.name: archive.md5 for archive in expected.archives.values()}
    if pins is not None:
        try:
            pinned = {out["path"]: out["md5"] for out in yaml.safe_load(pins.read_text())["outs"]}
        except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
            raise InputError(
                f"{pins} cannot be read ({error!r}); give git checkout {pins}"
            ) from error
        if pinned != wanted:
            raise InputError(
                f"{pins} no longer pins the official archives; give git checkout {pins}"
            )
    md5 = cached_md5()
    for archive in expected.archives.values():
        size = archive.path.stat().st_size if archive.path.is_file() else 0
        with progress_bar(f"reading {archive.path.name}", size, "bytes") as advance:
            verify(archive, partial(md5, on_bytes=advance))
    return json.dumps(wanted, indent=1) + "\n"


def run_prepare(expected: Expected, settings: Settings, threads: int) -> None:
    from rectifiers.data.imagenet.preparation import prepare

    total = sum(expected.archives[role].path.stat().st_size for role in ("train", "val"))
    bars: dict[str, Callable[[int], None]] = {}
    with ExitStack() as shown:

        def advance(work: str, count: int) -> None:
            if work not in bars:
                shown.close()  # one bar at a time
                bars[work] = shown.enter_context(progress_bar(work, total, "bytes"))
            bars[work](count)

        prepare(
            expected,
            Path(settings.root),
            store=settings.store,
            shard_bytes=settings.shard_bytes,
            threads=threads,
            on_bytes=advance,
        )


def run_statistics(settings: Settings, place: Path, threads: int) -> None:
    from rectifiers.data.imagenet.colors import measure_colors
    from rectifiers.data.imagenet.shards import ShardSplit
    from rectifiers.data.imagenet.store import read_manifest
    from rectifiers.data.transforms import Geometry

    root = Path(settings.root)
    train = ShardSplit(root, "train", read_manifest(root))
    geometry = Geometry(settings.resize_px, settings.crop_px, flip=False)
    with progress_bar("statistics", len(train.labels)) as advance:
        statistics, mean_image = measure_colors(train, geometry, threads, lambda: advance(1))
    with atomic_file(place / "mean.npy") as file:
        np.save(file, mean_image, allow_pickle=False)
    write_text(place / "statistics.json", json.dumps(statistics, indent=1) + "\n")


@contextmanager
def _room_in_words() -> Iterator[None]:
    """Say of files that cannot be written that the work is not lost."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{error}; make room or give another place, and give the same command again: it goes on"
        ) from error


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "stage", choices=("verify", "prepare", "statistics"), help="what to do, in this order"
    )
    parser.add_argument(
        "--settings",
        type=Path,
        default=Path("conf/data/imagenet.yaml"),
        help="a file of conf/data (default: ImageNet's)",
    )
    archives = Path("pipelines/imagenet/archives.yaml")
    parser.add_argument(
        "--archives", type=Path, default=archives, help="the list of archives (default: ImageNet's)"
    )
    parser.add_argument("--pins", type=Path, help="a .dvc file that must pin what --archives says")
    parser.add_argument(
        "--out", type=Path, help="where verify (a file) and statistics (a folder) write"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count(),
        help="threads that read archives (default: one per core)",
    )
    given = parser.parse_args()
    warnings.filterwarnings(
        "ignore", module=r"PIL\.TiffImagePlugin"
    )  # of broken EXIF, which the manifest lists
    try:
        with cli_errors(), _room_in_words():
            settings, expected = read_settings(given.settings), read_expected(given.archives)
            if given.stage != "statistics":
                verified = verify_all(expected, given.pins)
                if given.stage == "prepare":
                    run_prepare(expected, settings, given.threads)
                elif given.out:
                    write_text(given.out, verified)
            else:
                run_statistics(
                    settings,
                    given.out or Path(settings.root).with_name("statistics"),
                    given.threads,
                )
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
