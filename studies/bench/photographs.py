"""Compare Imagenette, prepared by `dvc repro pipelines/imagenette/dvc.yaml`, with the folder that
it was made from: every value of every photograph, and the time to read 960 of them in training
beside torchvision's ImageFolder, on one core.

`python studies/bench/photographs.py [rounds]` prints a table and writes
results/bench/<machine>.json. The ratio is that of CPU times, which take turns."""

import os
import random
from pathlib import Path
from typing import Any

from harness import interleave, measure, medians, ratios
from pipeline import BATCH, OURS, ours, torchvisions
from torch import Tensor

from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenette import imagenette
from rectifiers.data.splits import Split
from rectifiers.data.transforms import Geometry

FOLDER, PREPARED = Path("data/raw/imagenette"), Path("data/prepared/imagenette")
HALVED = Geometry(128, 112, True, scale_jitter_px=(128, 256), color_sigma=0.1)
BATCHES = 1000 // BATCH


def equal_values(files: Split, prepared: Split) -> tuple[int, int]:
    """Return how many values two splits have, and how many of them differ."""
    values = different = 0
    for index in range(len(files.labels)):
        image: Tensor = files.image(index)
        values += image.numel()
        different += int((image != prepared.image(index)).sum())
    return values, different


def main(rounds: int) -> dict[str, Any]:
    files, prepared = imagenette(str(FOLDER)), imagenet(str(PREPARED))
    random.seed(0)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ways = torchvisions(FOLDER / "train", HALVED, BATCHES)
    ways[OURS] = ours(prepared, HALVED, BATCHES)
    seconds = interleave(ways, rounds)

    train, val = (
        equal_values(getattr(files, split), getattr(prepared, split)) for split in ("train", "val")
    )
    return {
        "values": train[0] + val[0],
        "different": train[1] + val[1],
        "images": len(files.train.labels) + len(files.val.labels),
        "one_core": {
            name: {"us_an_image": median, "takes_of_ours": ratios(seconds, name, OURS)}
            for name, median in medians(seconds, 1e6 / (BATCHES * BATCH)).items()
        },
    }


if __name__ == "__main__":
    measure(main, __doc__, rounds=7)
