"""Compare the input pipeline with torchvision's: from JPEG files or shards to batches of 64,
[N, 3, 224, 224], on one core, and then with two reading processes.

`python studies/bench/pipeline.py [rounds]` prints a table and writes results/bench/<machine>.json.
Ratios compare the CPU times of whole processes on one core, which take turns. The files are in the
page cache. All pipelines draw scale, crop and mirror from the same distribution."""

import io
import itertools
import os
import random
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Way, interleave, measure, medians, ratios
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_sample_images
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import functional as pil
from torchvision.transforms.v2 import functional as v2

from rectifiers.data import jpeg
from rectifiers.data.datamodule import ImageData
from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenet.archives import Archive, Expected, file_md5
from rectifiers.data.imagenet.prepare import prepare
from rectifiers.data.sources import Source, folder
from rectifiers.data.splits import take
from rectifiers.data.transforms import COLOR_VALUES, COLOR_VECTORS, Geometry, resized

PHOTOS, BATCH = 192, 64
PAPER = Geometry(256, 224, True, scale_jitter_px=(256, 512), color_sigma=0.1)
REFERENCE, OURS = "ImageFolder + PIL, float32", "rectifiers, tiled shards"
SIZES = ((375, 500), (375, 500), (375, 500), (500, 375), (333, 500), (480, 640))
NOISE = 9.0  # grey levels, for about 106 kB at 500 x 375, ImageNet's mean
NOTE = (
    "cut from scikit-learn's two sample photos (427 x 640) and scaled to 500 x 375, 375 x 500 "
    "and other sizes, with sensor noise, JPEG quality about 92, 4:2:0; they imitate ImageNet's "
    "mean size and shape, not its variety"
)


def write_photos(root: Path) -> float:
    """Write the training photos of two classes, and two of them for validation, below `root`;
    return their mean bytes. Each is a random part of a sample photo, with noise."""
    samples = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    draw, total = np.random.default_rng(0), 0
    for i in range(PHOTOS):
        photo, (height, width) = samples[draw.integers(2)], SIZES[i % len(SIZES)]
        scale = min(photo.width / width, photo.height / height) * draw.uniform(0.6, 1)
        left = draw.uniform(0, photo.width - scale * width)
        top = draw.uniform(0, photo.height - scale * height)
        box = (left, top, left + scale * width, top + scale * height)
        view = np.asarray(photo.resize((width, height), Image.Resampling.LANCZOS, box=box))

        pixels = (view + draw.normal(0, NOISE, view.shape)).clip(0, 255).astype(np.uint8)
        quality = int(draw.integers(88, 97))
        for split in ("train", "val") if i < 2 else ("train",):
            path = root / split / f"n{i % 2:08d}" / f"{i}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path, quality=quality, subsampling="4:2:0")
        total += path.stat().st_size
    return total / PHOTOS


def write_archives(photos: Path, place: Path) -> dict[str, Archive]:
    """Write the photos as archives in ImageNet's layout below `place`; return them by role."""
    from make_miniature import (
        DEVKIT,
        gzipped,
        tar,
    )  # of scripts/, which the harness adds to the path

    wnids = sorted(path.name for path in (photos / "train").iterdir())
    inner = {}
    for wnid in wnids:
        files = {
            f"{wnid}_{path.name}": path.read_bytes() for path in (photos / "train" / wnid).iterdir()
        }
        inner[f"{wnid}.tar"] = tar(files)

    held_out = [path for wnid in wnids for path in sorted((photos / "val" / wnid).iterdir())]
    val = {f"ILSVRC2012_val_{i:08d}.JPEG": path.read_bytes() for i, path in enumerate(held_out, 1)}
    truth = "".join(f"{wnids.index(path.parent.name) + 1}\n" for path in held_out)

    fields = ("ILSVRC2012_ID", "WNID", "words", "num_children")
    synsets = np.zeros((len(wnids), 1), dtype=[(name, object) for name in fields])
    for label, wnid in enumerate(wnids):
        synsets[label, 0] = (float(label + 1), wnid, wnid, 0.0)
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets})
    devkit = {
        f"{DEVKIT}/data/meta.mat": meta.getvalue(),
        f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt": truth.encode(),
    }

    bodies = {"train": tar(inner), "val": tar(val), "devkit": gzipped(tar(devkit))}
    archives = {}
    for role, body in bodies.items():
        path = place / f"{role}.tar"
        path.write_bytes(body)
        archives[role] = Archive(path, file_md5(path), None)
    return archives


def prepared_source(photos: Path, root: Path) -> Source:
    """Prepare the photos as tiled shards below `root`, as ImageNet is prepared, and open them."""
    archives = write_archives(photos, root)
    expected = Expected(archives, 2, PHOTOS, 2, (1, PHOTOS), (1, 1))
    prepare(expected, root / "prepared", store="tiled", shard_bytes=1 << 30, threads=1)
    return imagenet(str(root / "prepared"))


def drain(loader: DataLoader) -> None:
    for _ in loader:
        pass


def torchvisions(root: Path) -> dict[str, Way]:
    """Return an epoch of the files below `root` by torchvision: as most training scripts do it,
    with mean image and colour shift on the host; then, like ours, as bytes for the device."""
    side, jitter = PAPER.crop_px, PAPER.scale_jitter_px
    assert jitter is not None
    mean = torch.rand(3, side, side)
    colors = np.random.default_rng(0)

    def draw_view(height: int, width: int) -> tuple[list[int], tuple[int, int, int, int], bool]:
        """Return the size to scale to, the crop (top, left, height, width) and whether it is
        mirrored."""
        size = resized(height, width, random.randint(*jitter))
        top, left = random.randint(0, size[0] - side), random.randint(0, size[1] - side)
        return list(size), (top, left, side, side), random.random() < 0.5

    def tensor_view(path: str) -> torch.Tensor:
        image = decode_jpeg(read_file(path), ImageReadMode.RGB)
        size, box, is_mirrored = draw_view(*image.shape[-2:])
        crop = v2.crop(v2.resize(image, size, antialias=True), *box)
        return v2.horizontal_flip(crop) if is_mirrored else crop

    def normalized(image: Image.Image) -> torch.Tensor:
        size, box, is_mirrored = draw_view(image.height, image.width)
        crop = pil.crop(pil.resize(image, size), *box)
        pixels = pil.to_tensor(pil.hflip(crop) if is_mirrored else crop) - mean
        shift = COLOR_VECTORS @ (COLOR_VALUES * colors.normal(0, 0.1, 3))
        return pixels + torch.from_numpy(shift).float()[:, None, None]

    folders = {
        REFERENCE: ImageFolder(root, normalized),
        "torchvision v2 on tensors": ImageFolder(root, loader=tensor_view),
    }
    loaders = {name: DataLoader(data, BATCH, shuffle=True) for name, data in folders.items()}
    return {name: partial(drain, loader) for name, loader in loaders.items()}


def ours(source: Source, workers: int = 0) -> Way:
    """Return an epoch of our own pipeline: uint8 and a shift per photo; the device does the
    rest."""
    data = ImageData(source, PAPER, global_batch=BATCH, seed=0, workers=workers)
    epoch = itertools.count()

    def work() -> None:
        data.batches.set_epoch(next(epoch))
        drain(data.train_dataloader())

    return work


def main(rounds: int) -> dict[str, Any]:
    if jpeg.unavailable_reason():
        sys.exit(f"error: {jpeg.unavailable_reason()}")
    random.seed(0)
    with tempfile.TemporaryDirectory() as place:
        root, cores = Path(place), os.sched_getaffinity(0)
        photos = root / "photos"
        mean_bytes = write_photos(photos)
        prepared = prepared_source(photos, root)

        # an epoch long enough for the start of the processes not to count; they come first, because
        # they copy whatever the other ways leave behind
        longer = replace(prepared, train=take(prepared.train, np.tile(np.arange(PHOTOS), 40)))
        workers = {str(n): ours(longer, workers=n) for n in (1, 2)}
        by_the_clock = interleave(workers, max(3, rounds // 2), time.perf_counter)

        ways = torchvisions(photos / "train")
        ways["rectifiers, files as they are"] = ours(folder(str(photos)))
        ways[OURS] = ours(prepared)
        os.sched_setaffinity(0, {min(cores)})
        seconds = interleave(ways, rounds)
        os.sched_setaffinity(0, cores)

    images = PHOTOS // BATCH * BATCH
    one_core = {
        name: {
            "us_an_image": microseconds,
            "reference_takes": ratios(seconds, REFERENCE, name),
            "takes_of_ours": ratios(seconds, name, OURS),
        }
        for name, microseconds in medians(seconds, 1e6 / images).items()
    }
    return {
        "photos": {"count": PHOTOS, "mean_bytes": mean_bytes, "note": NOTE},
        "one_core": one_core,
        "two_workers_times_one": ratios(by_the_clock, "1", "2"),
    }


if __name__ == "__main__":
    measure(main, __doc__, rounds=7)
