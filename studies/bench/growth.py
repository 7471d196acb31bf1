"""Measure what a process does for all images or all weights, however many processes there are, each
at three sizes: opening an index, choosing validation images, shuffling an epoch, going on within
it, and writing, reading and sending a checkpoint.

`python studies/bench/growth.py [rounds]` prints a table; docs/results/scale.md has its numbers.
Times are wall-clock times of one thread, medians with quartiles. The index is ImageNet's but for
the shards, which hold a byte per image. A checkpoint has a weight and a momentum per parameter, and
is read from the page cache; it is sent to a second process on this machine, by gloo."""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from rectifiers.data.datamodule import ShuffledBatches
from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenet.shards import FORMAT, INDEX, MANIFEST, SPLITS, file_sha256, shard_name
from rectifiers.data.sources import three_splits
from rectifiers.results.documents import markdown
from rectifiers.runtime.distributed import World, broadcast_from_rank_zero, join_process_group
from rectifiers.training.checkpoints import AtomicCheckpointIO

IMAGES = (80_073, 320_292, 1_281_167)
MILLIONS = (20, 80, 330)  # of parameters; model C has 331
PROCESSES, BATCH = 64, 128
SENT = 80  # millions of parameters, of the checkpoint that is sent
State = dict[str, Any]
Way = Callable[[], object]


def write_index(root: Path, images: int) -> None:
    """Write a prepared folder with so many training images, whose bytes nobody reads, and a share
    of ImageNet's for validation."""
    files: State = {}
    counts = dict(zip(SPLITS, (images, max(1, images // 26)), strict=True))
    for split, count in counts.items():
        (root / split).mkdir(parents=True)
        index = np.zeros(count, INDEX)
        index["offset"], index["length"] = np.arange(count), 1
        index["label"] = np.sort(np.arange(count) % 1000)
        index["height"], index["width"] = 375, 500
        np.save(root / split / "index.npy", index)
        (root / split / shard_name(0)).write_bytes(bytes(count))
        for name in ("index.npy", shard_name(0)):
            path = root / split / name
            files[f"{split}/{name}"] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    classes = [{"wnid": f"n{label:08d}"} for label in range(1000)]
    splits = {split: {"images": count, "digest": "0" * 32} for split, count in counts.items()}
    manifest = {"format": FORMAT, "files": files, "splits": splits, "classes": classes}
    (root / MANIFEST).write_text(json.dumps(manifest))


def first_batch(images: int, processes: int, done: int = 0) -> None:
    """Draw an epoch's order and take the first batch of a rank after `done` ones."""
    batches = ShuffledBatches(images, BATCH, seed=0, world=processes)
    batches.skip = done
    next(iter(batches))


def all_batches(images: int, processes: int) -> None:
    for _ in ShuffledBatches(images, BATCH, seed=0, world=processes):
        pass


def checkpoint(millions: int) -> State:
    weight, momentum = (torch.zeros(millions, 10**6) for _ in range(2))
    own = {"run": "none", "history": []}
    return {"state_dict": {"weight": weight}, "momentum": momentum, "rectifiers": own}


def timed(way: Way, rounds: int) -> list[float]:
    """Return the seconds of each round; a first one is dropped."""
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        way()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def row(what: str, size: str, seconds: list[float]) -> tuple[str, str, str]:
    """Return a row of the table, and print it."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    cells = (what, size, f"{1e3 * middle:.3g} ({1e3 * low:.3g} to {1e3 * high:.3g})")
    print(*cells, sep=" | ", flush=True)
    return cells


def of_images(root: Path, rounds: int) -> list[tuple[str, str, str]]:
    rows = []
    for images in IMAGES:
        write_index(root / str(images), images)
    ways: dict[str, Callable[[int], Way]] = {
        "opening the index": lambda images: partial(imagenet, str(root / str(images))),
        "choosing the validation images": lambda images: partial(
            three_splits, imagenet(str(root / str(images))), 10
        ),
        "the first batch of an epoch": lambda images: partial(first_batch, images, PROCESSES),
        "the first batch after half of it": lambda images: partial(
            first_batch, images, PROCESSES, images // BATCH // 2
        ),
        "an epoch's batches, one process": lambda images: partial(all_batches, images, 1),
        f"an epoch's batches, one of {PROCESSES}": lambda images: partial(
            all_batches, images, PROCESSES
        ),
    }
    for what, way_of in ways.items():
        for images in IMAGES:
            rows.append(row(what, f"{images:,} images", timed(way_of(images), rounds)))
    return rows


def of_weights(root: Path, rounds: int) -> list[tuple[str, str, str]]:
    rows = []
    for millions in MILLIONS:
        io, content, path = AtomicCheckpointIO(), checkpoint(millions), root / f"{millions}.ckpt"
        for what, way in (
            ("writing a checkpoint", partial(io.save_checkpoint, content, path)),
            ("reading a checkpoint", partial(io.load_checkpoint, path)),
        ):
            rows.append(row(what, f"{millions} million parameters", timed(way, rounds)))
        del content
        for file in root.glob("*.ckpt"):
            file.unlink()
    return rows


def send(rank: int, rounds: int, place: str) -> None:
    """Send a checkpoint from rank 0 to the other process; rank 0 writes the seconds to `place`."""
    join_process_group(World(rank, 2, rank), "gloo", 60)
    torch.set_num_threads(1)
    content = checkpoint(SENT) if rank == 0 else None
    seconds = timed(lambda: broadcast_from_rank_zero(lambda: content), rounds)
    if rank == 0:
        Path(place).write_text(json.dumps(seconds))
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rounds", nargs="?", type=int, default=5, help="default: 5")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    with tempfile.TemporaryDirectory() as place:
        rows = of_images(Path(place), rounds) + of_weights(Path(place), min(rounds, 3))
        seconds = Path(place) / "seconds.json"
        torch.multiprocessing.spawn(send, (min(rounds, 3), str(seconds)), nprocs=2)
        size = f"{SENT} million parameters"
        rows.append(row("sending a checkpoint", size, json.loads(seconds.read_text())))
    print(markdown(("what", "size", "ms"), rows))


if __name__ == "__main__":
    main()
