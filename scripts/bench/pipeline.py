"""The input pipeline against others: JPEG files or shards to batches of 64, on one core; then with
more processes.

`python scripts/bench/pipeline.py [rounds]` prints tables and writes results/bench/<machine>.json.
Ratios are of the CPU time of a whole process on one core, interleaved; files are in the page cache.
"""

import itertools
import os
import random
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import Way, interleave, measure, medians, ratios
from peers import BATCH, JITTER, SIDE, drain, installed

from photos import NOTE, write_photos, write_shards
from rectifiers.data import jpeg
from rectifiers.data.imagenet.source import imagenet
from rectifiers.data.module import ImageData
from rectifiers.data.sources import Source, folder
from rectifiers.data.transforms import Geometry, apply_plan, draw_plan

PHOTOS = 192
PAPER = Geometry(256, SIDE, True, scale_jitter_px=JITTER, color_sigma=0.1)
REFERENCE, OURS = "ImageFolder + PIL, float32", "rectifiers, tiled shards"
PEERS = (
    "torchvision",
    "opencv-python-headless",
    "simplejpeg",
    "nvidia-dali-cuda120",
    "webdataset",
    "litdata",
    "ffcv",
)


def sources(root: Path) -> dict[str, Source]:
    """The photos in the forms that our own pipeline reads; shards are what `data=imagenet` trains
    from."""
    return {
        "rectifiers, files as they are": folder(str(root / "plain")),
        "rectifiers, tiled files": folder(str(root / "tiled")),
        OURS: imagenet(str(write_shards(root))),
    }


def ours(source: Source, workers: int = 0) -> Way:
    """Return an epoch of our own pipeline: uint8 and a shift per photo; the device does the
    rest."""
    data = ImageData(source, PAPER, global_batch=BATCH, seed=0, workers=workers)
    epoch = itertools.count()

    def work() -> None:
        data.batches.set_epoch(next(epoch))
        drain(data.train_dataloader())

    return work


def differing_bytes(source: Source) -> int:
    """How many bytes of an epoch differ from Pillow's."""
    data = ImageData(source, PAPER, global_batch=BATCH, seed=0, workers=0)
    split, wrong = data.source.train, 0
    for items in data.batches:
        images = data.training.__getitems__(items).images
        for view, (epoch, index) in zip(images, items, strict=True):
            image = split.image(index)
            expected = apply_plan(
                draw_plan(PAPER, 0, epoch, index, (image.shape[1], image.shape[2])), image
            )
            wrong += int((view != expected).sum())
    return wrong


def one_core(root: Path, rounds: int) -> dict:
    """Compare every way on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        ways = installed(root / "plain" / "train")
        ways |= {name: ours(source) for name, source in sources(root).items()}
        seconds = interleave(ways, rounds)
    finally:
        os.sched_setaffinity(0, cores)
    return {
        name: {
            "us_an_image": median,
            "reference_takes": ratios(seconds, REFERENCE, name),
            "takes_of_ours": ratios(seconds, name, OURS),
        }
        for name, median in medians(seconds, 1e6 / (PHOTOS // BATCH * BATCH)).items()
    }


def two_workers(root: Path, rounds: int) -> dict:
    """Compare two reading processes with one by the clock, over an epoch long enough for their
    start not to count."""
    longer = imagenet(str(write_shards(root, times=40)))
    ways = {str(n): ours(longer, workers=n) for n in (1, 2)}
    return ratios(interleave(ways, rounds, clock=time.perf_counter), "1", "2")


def main(rounds: int) -> dict[str, Any]:
    if jpeg.unavailable_reason():
        sys.exit(f"error: {jpeg.unavailable_reason()}")
    random.seed(0)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        sizes = write_photos(root, PHOTOS)
        differing = {name: differing_bytes(source) for name, source in sources(root).items()}
        load = os.getloadavg()[0]
        workers = two_workers(
            root, max(3, rounds // 2)
        )  # first: worker processes copy what other libraries leave behind
        ways = one_core(root, rounds)
    return {
        "photos": {"count": PHOTOS, "mean_bytes": sizes, "note": NOTE},
        "one_core": ways,
        "two_workers_times_one": workers,
        "load_before": load,
        "differing_bytes": differing,
        "libraries": {
            each.name: each.version for each in metadata.distributions() if each.name in PEERS
        },
    }


if __name__ == "__main__":
    measure(main, __doc__, rounds=7)
