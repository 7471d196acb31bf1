"""Reading a prepared folder: any image by its index, from any process, and a sentence where it is
not what it was."""

import json
import math
import os
import pickle
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from rectifiers.data.datamodule import ImageData
from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenet.shards import MANIFEST, ShardSplit, read_manifest
from rectifiers.data.sources import Source
from rectifiers.data.transforms import Geometry
from rectifiers.runtime.errors import InputError
from refusals import refused


@pytest.fixture
def copied(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "copied"))


def opened(root: Path) -> ShardSplit:
    return ShardSplit(root, "train", read_manifest(root))


def test_a_manifest_of_absurd_size_is_refused_unread(copied: Path) -> None:
    os.truncate(copied / MANIFEST, 2**40)  # sparse, so that it takes no disk
    with refused(r"manifest.json cannot be read .*larger than 16,777,216"):
        read_manifest(copied)


def test_a_split_can_be_pickled_to_other_processes(prepared: Path) -> None:
    split = opened(prepared)
    first = split.image(5)
    copy = pickle.loads(pickle.dumps(split))
    assert (copy.image(5) == first).all()
    assert copy.digest() == split.digest()
    source, geometry = Source("miniature", ("a",) * 6, 3, split, split), Geometry(64, 56, False)
    here, there = (  # forked: the workers read from the same open files
        ImageData(source, geometry, global_batch=9, seed=0, workers=n).statistics_batches()
        for n in (0, 2)
    )
    assert all(map(torch.equal, here, there))


def test_a_missing_or_truncated_file_is_named(copied: Path) -> None:
    split = opened(copied)
    shard = copied / "train" / "shard-00000.bin"
    body = shard.read_bytes()
    shard.write_bytes(body[:100])
    with refused(r"shard-00000\.bin is cut short; pull the data again"):
        split.encoded(3)
    with refused(rf"shard-00000\.bin has 100 bytes and not {len(body):,}"):
        opened(copied)
    shard.unlink()
    with refused(r"shard-00000\.bin is missing.*prepare the archives"):
        opened(copied)
    with refused(r"shard-00000\.bin cannot be read"):
        pickle.loads(pickle.dumps(split)).encoded(3)


@pytest.mark.parametrize(
    "columns",
    [{"shard": 4}, {"label": 6}, {"offset": 2**64 - 1}, {"offset": 106004}, {"length": 2**32 - 1}],
)
def test_index_beyond_the_shards_is_refused(columns: dict[str, int], copied: Path) -> None:
    index = np.load(copied / "train" / "index.npy")
    for name, value in columns.items():
        index[name][0] = value
    np.save(copied / "train" / "index.npy", index)
    with refused(r"index\.npy does not fit the shards beside it"):
        opened(copied)


def test_an_index_of_another_kind_is_refused(copied: Path) -> None:
    path = copied / "train" / "index.npy"
    size = path.stat().st_size
    path.write_bytes(b"x" * size)
    with refused(r"index\.npy cannot be read"):
        opened(copied)
    np.save(path, np.zeros((size - 128) // 8))
    with refused(r"index\.npy (does not fit|has)"):
        opened(copied)


@pytest.mark.parametrize("name", ["index.npy", "shard-00001.bin"])
def test_damaged_files_give_the_images_or_an_error(name: str, prepared, copied) -> None:
    """A byte is changed, 300 times; the index's own hash is not looked at."""
    whole, outcomes = opened(prepared), Counter[str]()
    path = copied / "train" / name
    body = path.read_bytes()
    for seed in range(300):
        draw = np.random.default_rng(seed)
        damaged = bytearray(body)
        damaged[draw.integers(len(body))] ^= int(draw.integers(1, 256))
        path.write_bytes(damaged)
        try:
            split = opened(copied)
            for index in draw.choice(72, 9, replace=False):
                assert split.encoded(index) == whole.encoded(index)
            outcomes["read"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 30


def test_a_damaged_image_is_named_by_its_index(copied: Path) -> None:
    split = opened(copied)
    row = np.load(copied / "train" / "index.npy")[7]
    with open(copied / "train" / "shard-00000.bin", "r+b") as file:
        file.seek(int(row["offset"]))
        file.write(bytes(50))
    with refused(r"image 7 of .*from byte \d+\) is not what .*see make"):
        split.image(7)


def test_bad_validation_image(copied: Path, tmp_path: Path) -> None:
    source = imagenet(str(copied))
    assert source.inspected(tmp_path / "cache").digest == source.digest
    row = np.load(copied / "val" / "index.npy")[7]
    with open(copied / "val" / "shard-00000.bin", "r+b") as file:
        file.seek(int(row["offset"]) + 9)
        file.write(bytes(50))
    with refused(r"^image 7 of .*val .* is not what was written"):
        imagenet(str(copied)).inspected(tmp_path / "cache")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("files"),
        lambda m: m.update(format=1),
        lambda m: m["splits"].pop("val"),
        lambda m: m["files"].pop("train/index.npy"),
        lambda m: m["classes"][0].update(wnid=5),
        lambda m: m["splits"]["val"].update(digest=5),
        lambda m: m["files"].update({"../../evil": {"bytes": 1, "sha256": "0"}}),
        lambda m: m["files"]["val/index.npy"].update(bytes=math.inf),
        lambda m: m["files"].update(
            {"val/shard-\u0660\u0660\u0660\u0660\u0661.bin": {"bytes": 1, "sha256": "0"}}
        ),
    ],
)
def test_an_unreadable_manifest_is_reported_in_one_sentence(change, copied: Path) -> None:
    manifest = json.loads((copied / MANIFEST).read_text())
    change(manifest)
    for text in (json.dumps(manifest), "[" * 100_000):
        (copied / MANIFEST).write_text(text)
        with refused(r"manifest\.json cannot be read.*prepare the arch"):
            read_manifest(copied)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (MANIFEST, r"has no manifest\.json"),
        ("train/index.npy", r"train/index\.npy is missing"),
        ("val/shard-00000.bin", r"val/shard-00000\.bin is missing"),
    ],
)
def test_a_pipe_is_not_waited_for(name: str, sentence: str, copied: Path) -> None:
    (copied / name).unlink()
    os.mkfifo(copied / name)
    with refused(sentence):
        imagenet(root=str(copied))


def test_a_link_elsewhere_shows_nothing(copied: Path, tmp_path: Path) -> None:
    """Data may be links, as DVC makes them; what counts is that the bytes are those that were
    written."""
    shard = copied / "train" / "shard-00000.bin"
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret".ljust(shard.stat().st_size))
    shard.unlink()
    shard.symlink_to(secret)
    with refused("is not what was written there") as raised:
        opened(copied).encoded(0)
    assert "secret" not in str(raised.value)
