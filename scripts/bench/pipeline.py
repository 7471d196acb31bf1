"""The input pipeline against others: JPEG files or shards to batches of 64, on one core; then with more processes.

`python scripts/bench/pipeline.py [rounds]` prints tables and writes results/bench/<machine>.json. Ratios are of the
CPU time of a whole process on one core, interleaved; files are in the page cache.
"""

import os
import random
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import torch
from pairs import interleave, keep, ratios, show, spread
from peers import BATCH, JITTER, SIDE, Pass, installed

from photos import NOTE, write_photos, write_shards
from rectifiers.data import jpeg
from rectifiers.data.imagenet.source import imagenet
from rectifiers.data.module import ImageData
from rectifiers.data.sources import Source, folder
from rectifiers.data.transforms import Geometry, draw_plan, follow

PHOTOS = 192
PAPER = Geometry(256, SIDE, True, scale_jitter_px=JITTER, color_sigma=0.1)
REFERENCE, OURS = "ImageFolder + PIL, float32", "rectifiers, tiled shards"
PEERS = ("torchvision", "opencv-python-headless", "simplejpeg", "nvidia-dali-cuda120", "webdataset", "litdata", "ffcv")


def sources(root: Path) -> dict[str, Source]:
    """The photos in the forms that our own pipeline reads; shards are what `data=imagenet` trains from."""
    return {
        "rectifiers, files as they are": folder(str(root / "plain")),
        "rectifiers, tiled files": folder(str(root / "tiled")),
        OURS: imagenet(str(write_shards(root))),
    }


def ours(source: Source, workers: int = 0) -> Pass:
    """Our own pipeline: uint8 and a shift a photo; the device does the rest."""
    data = ImageData(source, PAPER, global_batch=BATCH, seed=0, workers=workers)
    epoch = iter(range(10**9))

    def work() -> None:
        data.batches.set_epoch(next(epoch))
        for _ in data.train_dataloader():
            pass

    return work


def differing_bytes(source: Source) -> int:
    """How many bytes of an epoch differ from Pillow's."""
    data = ImageData(source, PAPER, global_batch=BATCH, seed=0, workers=0)
    split, wrong = data.source.train, 0
    for items in data.batches:
        images = data.training.__getitems__(items).images
        for view, (epoch, index) in zip(images, items, strict=True):
            image = split.image(index)
            expected = follow(draw_plan(PAPER, 0, epoch, index, (image.shape[1], image.shape[2])), image)
            wrong += int((view != expected).sum())
    return wrong


def one_core(root: Path, rounds: int) -> dict:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        ways = installed(root / "plain" / "train")
        ways |= {name: ours(source) for name, source in sources(root).items()}
        seconds = interleave(ways, rounds)
    finally:
        os.sched_setaffinity(0, cores)
    images = PHOTOS // BATCH * BATCH
    rows = {}
    for name, taken in seconds.items():
        rows[name] = {
            "us_an_image": 1e6 * sorted(taken)[len(taken) // 2] / images,
            "reference_takes": ratios(seconds, REFERENCE, name),
            "takes_of_ours": ratios(seconds, name, OURS),
        }
    return rows


def scaling(root: Path, rounds: int) -> dict:
    """Wall time of one and of two reading processes, over an epoch that is long enough for their start not to count."""
    longer = imagenet(str(write_shards(root, times=40)))
    ways = {f"{n} workers": ours(longer, workers=n) for n in (1, 2)}
    return ratios(interleave(ways, rounds, clock=time.perf_counter), "1 workers", "2 workers")


def main(rounds: int) -> None:
    if jpeg.fault():
        sys.exit(f"error: {jpeg.fault()}")
    torch.set_num_threads(1)
    random.seed(0)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        sizes = write_photos(root, PHOTOS)
        wrong = {name: differing_bytes(source) for name, source in sources(root).items()}
        before = os.getloadavg()[0]
        more = scaling(root, max(3, rounds // 2))  # first, for what the others leave behind is forked with the workers
        rows = one_core(root, rounds)
    show(
        f"{rounds} rounds, {PHOTOS} photos, {sizes['plain'] / 1e3:.0f} kB ({sizes['tiled'] / 1e3:.0f} tiled), one core",
        [
            (name, f"{row['us_an_image']:.0f}", spread(row["reference_takes"]), spread(row["takes_of_ours"]))
            for name, row in rows.items()
        ],
        ("way", "us an image", "times as fast as the first", "times the shards' time"),
    )
    print(f"bytes that differ from Pillow's: {wrong}; two workers are {spread(more)} times as fast as one")
    print(f"photos: {NOTE}")
    told = {
        "photos": {"count": PHOTOS, "mean_bytes": sizes, "note": NOTE},
        "rounds": rounds,
        "one_core": rows,
        "two_workers_times_one": more,
        "load_before": before,
        "differing_bytes": wrong,
        "libraries": {name: metadata.version(name) for name in PEERS if _installed(name)},
    }
    keep("pipeline", told)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
