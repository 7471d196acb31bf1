"""Damages JPEG files, indexes and shards at random and reads them as training does; run by
test_fuzz.py.

`fuzz_reader.py PREPARED WORK COUNT SEED`: COUNT mutants of each kind, made from a
prepared folder, which lies there as it was, in WORK. A mutant
that takes a minute ends the process with its stack, a crash does too, and so does any error but
InputError. Prints what came out, as JSON."""

import faulthandler
import hashlib
import io
import json
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rectifiers.data import jpeg
from rectifiers.data.imagenet import imagenet
from rectifiers.data.imagenet.shards import INDEX, ShardSplit, read_manifest
from rectifiers.data.transforms import Geometry, Plan, Reader, apply_plan, center_plan
from rectifiers.runtime.errors import InputError

GEOMETRY = Geometry(40, 32, flip=False)
PLAN_FOR = partial(center_plan, GEOMETRY)
SLOWEST_S = 60


def damaged(content: bytes, draw: np.random.Generator, head: int) -> bytes:
    """Flip bits, cut, lengthen, overwrite or lose a piece; half of the time in the first `head`
    bytes."""
    out = bytearray(content)

    def place() -> int:
        return int(draw.integers(min(head, len(out)) if draw.integers(2) else len(out)))

    kind = draw.integers(6)
    if kind == 0:
        for _ in range(draw.integers(1, 9)):
            out[place()] ^= 1 << int(draw.integers(8))
    elif kind == 1:
        del out[place() :]
    elif kind == 2:
        out += draw.bytes(int(draw.integers(1, 300)))
    elif kind == 3:
        at = place()
        out[at : at + int(draw.integers(1, 5))] = draw.choice(
            [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff", b"\xff"]
        )
    elif kind == 4:
        at = place()
        del out[at : at + int(draw.integers(1, 200))]
    else:
        out[place()] = int(draw.integers(256))
    return bytes(out)


def view(split: ShardSplit, index: int) -> torch.Tensor | None:
    """What training gets to see of an image, or None for an InputError."""
    out = torch.zeros(1, 3, GEOMETRY.crop_px, GEOMETRY.crop_px, dtype=torch.uint8)
    (result,) = Reader(split).read([index], [PLAN_FOR], out)
    assert isinstance(result, Plan | InputError), result
    return None if isinstance(result, InputError) else out[0]


class Images:
    """Files whose checksum fits, whatever is in them: pixels must be Pillow's, or there are
    none."""

    def __init__(self, prepared: Path, work: Path) -> None:
        self.root = work / "images"
        (self.root / "train").mkdir(parents=True)
        photos = ShardSplit(prepared, "train", read_manifest(prepared))
        self.seeds = [photos.encoded(i) for i in range(0, 72, 3)]
        self.seeds += [
            tiled for i in range(1, 72, 6) if (tiled := jpeg.tile(photos.encoded(i))) is not None
        ]
        with Image.open(io.BytesIO(self.seeds[0])) as image:
            grey = io.BytesIO()
            image.convert("L").save(grey, "PPM")
        self.seeds.append(grey.getvalue())

    def read(self, draw: np.random.Generator) -> str:
        body = damaged(self.seeds[draw.integers(len(self.seeds))], draw, head=700)
        (self.root / "train" / "shard-00000.bin").write_bytes(body)
        row = np.array([(0, len(body), zlib.crc32(body), 0, 0, 1, 1)], INDEX)
        np.save(self.root / "train" / "index.npy", row)
        index = hashlib.sha256((self.root / "train" / "index.npy").read_bytes()).hexdigest()
        files = {
            "train/shard-00000.bin": {"bytes": len(body)},
            "train/index.npy": {"sha256": index},
        }
        split = ShardSplit(
            self.root, "train", {"files": files, "classes": [1], "splits": {"train": ONE}}
        )
        found = view(split, 0)
        if found is None:
            return "refused"
        image = split.image(0)
        assert torch.equal(
            found, apply_plan(PLAN_FOR((image.shape[-2], image.shape[-1])), image)
        ), "other pixels"
        return "read"


ONE = {"images": 1, "digest": ""}


class Damaged:
    """A prepared folder with one file that is not what was written: each image is what it was, or
    there is none."""

    def __init__(self, prepared: Path, work: Path, name: str, head: int) -> None:
        self.root, self.file, self.head = work / Path(name).stem, name, head
        shutil.copytree(prepared, self.root)
        self.manifest: dict[str, Any] = read_manifest(prepared)
        self.whole = (prepared / name).read_bytes()
        split = ShardSplit(prepared, "train", self.manifest)
        self.expected = [view(split, i) for i in range(72)]
        index = np.load(prepared / "train" / "index.npy")
        self.candidates = np.flatnonzero(index["shard"] == 1) if "shard" in name else np.arange(72)

    def read(self, draw: np.random.Generator) -> str:
        body = damaged(self.whole, draw, self.head)
        if body == self.whole:
            return "same"
        (self.root / self.file).write_bytes(body)
        if "index" in self.file:
            try:
                imagenet(str(self.root))
            except InputError:
                pass
            else:
                raise AssertionError("an index of another hash was opened")
        try:
            # as if the hash were not looked at
            split = ShardSplit(self.root, "train", self.manifest)
        except InputError:
            return "refused"
        outcomes = Counter()
        for index in draw.choice(self.candidates, 3, replace=False).tolist():
            found = view(split, index)
            outcomes["refused" if found is None else "read"] += 1
            assert found is None or torch.equal(found, self.expected[index]), (
                f"another image for {index}"
            )
        return "refused" if outcomes["refused"] else "read"


def main(prepared: Path, work: Path, count: int, seed: int) -> None:
    faulthandler.enable()
    assert jpeg.unavailable_reason() is None, jpeg.unavailable_reason()
    kinds: dict[str, Callable[[np.random.Generator], str]] = {
        "image": Images(prepared, work).read,
        "index": Damaged(prepared, work, "train/index.npy", head=128).read,
        "shard": Damaged(prepared, work, "train/shard-00001.bin", head=700).read,
    }
    outcomes = {kind: Counter() for kind in kinds}
    for i in range(count):
        for number, (kind, read) in enumerate(kinds.items()):
            faulthandler.dump_traceback_later(SLOWEST_S, exit=True)
            try:
                outcomes[kind][read(np.random.default_rng([seed, number, i]))] += 1
            except BaseException:
                print(f"mutant {kind} {seed} {i}", file=sys.stderr)
                raise
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), *map(int, sys.argv[3:5]))
