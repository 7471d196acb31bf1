"""What ImageNet's index costs: measured on as many rows, over real shards, in real worker
processes."""

import hashlib
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from photos import jpeg, photo
from rectifiers.data.imagenet.shards import FORMAT, INDEX, MANIFEST, shard_name

pytestmark = pytest.mark.process

IMAGES, SHARDS = {"train": 1281167, "val": 50000}, {"train": 141, "val": 6}
BAR_MB, BAR_S = 300, 2  # a worker; opening
# The process that trains has imported all that a run does. A collection of garbage comes in every
# long run.
PROGRAM = """
import gc, json, multiprocessing, resource, sys, time
from pathlib import Path
import rectifiers.training.train
from rectifiers.data.imagenet import imagenet
from rectifiers.data.datamodule import ImageData, TrainDataset, CenterDataset
from rectifiers.data.transforms import Geometry

def memory_mb(process):
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
    own = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return {"resident": kilobytes["Rss"] / 1024, "share": kilobytes["Pss"] / 1024, "own": own / 1024}

def collecting(read):
    def reads(dataset, items):
        gc.collect()
        return read(dataset, items)
    return reads

for kind in (TrainDataset, CenterDataset):
    kind.__getitems__ = collecting(kind.__getitems__)
before, started = memory_mb("self"), time.process_time()
source = imagenet(sys.argv[1])
opened = {"seconds": time.process_time() - started, "mb": memory_mb("self")["own"] - before["own"]}
geometry = Geometry(256, 224, True, scale_jitter_px=(256, 512), color_sigma=0.1)
data = ImageData(source, geometry, global_batch=128, seed=0, workers=2)
workers = {}
for name, loader in (("train", data.train_dataloader()), ("val", data.val_dataloader())):
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    workers[name] = [memory_mb(process.pid) for process in multiprocessing.active_children()]
    del batches
images = {"train": len(source.train.labels), "val": len(source.val.labels)}
print(json.dumps({"opened": opened, "workers": workers, "images": images}))
"""  # noqa: E501


@pytest.fixture(scope="module")
def full_size(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder of ImageNet's size, whose shards are all one file of 16 photos of
    ImageNet's mean size."""
    root = tmp_path_factory.mktemp("full")
    photos = [jpeg(photo(375, 500, i)) for i in range(16)]
    starts = np.cumsum([0, *map(len, photos)])
    files = {}
    for split, count in IMAGES.items():
        (root / split).mkdir()
        index, which = np.zeros(count, INDEX), np.arange(count) % len(photos)
        index["offset"], index["length"] = (
            starts[which],
            np.array([len(body) for body in photos])[which],
        )
        index["crc32"] = np.array([zlib.crc32(body) for body in photos])[which]
        index["shard"] = np.arange(count) * SHARDS[split] // count
        index["label"], index["height"], index["width"] = np.arange(count) * 1000 // count, 375, 500
        np.save(root / split / "index.npy", index)
        first = root / split / shard_name(0)
        first.write_bytes(b"".join(photos))
        for number in range(1, SHARDS[split]):
            os.link(first, root / split / shard_name(number))
        for path in (root / split).iterdir():
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix == ".npy" else ""
            files[f"{split}/{path.name}"] = {"bytes": path.stat().st_size, "sha256": sha256}
    splits = {split: {"images": count, "digest": ""} for split, count in IMAGES.items()}
    classes = [{"wnid": str(i)} for i in range(1000)]
    manifest = {"format": FORMAT, "files": files, "classes": classes, "splits": splits}
    (root / MANIFEST).write_text(json.dumps(manifest))
    return root


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="memory is read from Linux' /proc"
)
def test_imagenets_index_opens_at_once_and_workers_use_little_memory(full_size: Path) -> None:
    """A worker's share counts what it has by itself, and of what several have in common its part.

    Resident, it has over 500 MB whatever is read: torch alone has that, and it is the training
    process' own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(full_size)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(json.dumps(found))  # shown by pytest -rP
    assert found["images"] == IMAGES
    assert found["opened"]["seconds"] < BAR_S
    assert found["opened"]["mb"] < BAR_MB
    for workers in found["workers"].values():
        assert len(workers) == 2
        assert all(worker["share"] < BAR_MB for worker in workers)
        assert all(worker["own"] < BAR_MB / 3 for worker in workers)
