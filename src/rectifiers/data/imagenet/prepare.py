"""Conversion of the official archives to a prepared folder (see `shards`), one class at a time,
restartable."""

import hashlib
import io
import json
import os
import shutil
import warnings
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from filelock import lock_descriptor
from PIL import Image

from rectifiers.data import jpeg
from rectifiers.data.imagenet.archives import (
    Devkit,
    Expected,
    Member,
    Members,
    read_devkit,
    read_member,
    refused,
    train_classes,
    val_classes,
)
from rectifiers.data.imagenet.shards import (
    FORMAT,
    INDEX,
    MANIFEST,
    SPLITS,
    ShardWriter,
    file_sha256,
    shard_name,
)
from rectifiers.data.images import check_pixels, digest_files
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, write_text
from rectifiers.runtime.schema import JsonObject

Transcoder = Callable[[bytes], bytes | None]
Item = TypeVar("Item")
Result = TypeVar("Result")
LARGEST_SIDE = 2**16 - 1  # of an image that an index can hold
KEPT = "kept"  # the original's bytes, metadata included
TILED = "tiled"  # its coefficients with restart markers, sequential, without metadata
PIXELS = "pixels"  # its RGB pixels by Pillow's convert, an uncompressed PPM, without metadata


def prepare(expected: Expected, root: Path, *, store: str, shard_bytes: int, threads: int) -> None:
    """Make the folder `root` from verified archives. Work in progress is in `<root>.part`, and a
    later call continues it.

    The bytes depend on the archives, `store` and `shard_bytes`, neither on the threads nor on
    interruptions. Where an archive is refused, `root` is unchanged, and the work in progress is
    removed, because other archives make other bytes.
    """
    root = root.resolve()  # the target, where `root` is a link to a larger disk
    part = root.with_name(f"{root.name}.part")
    reason = jpeg.unavailable_reason() if store == "tiled" else None
    if reason is not None:  # the stored bytes must not depend on that silently
        raise InputError(
            f"data.store: {store} needs the C extension, and {reason}; or set it to plain in the "
            "settings"
        )
    tile = jpeg.tile if store == "tiled" else None
    archives = {name: {"md5": md5} for name, md5 in expected.md5s.items()}
    plan = {"format": FORMAT, "store": store, "shard_bytes": shard_bytes, "archives": archives}

    with _in_progress(part, plan), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of metadata
        devkit = read_devkit(
            expected.archives["devkit"].path, expected.classes, expected.val_images
        )
        for split, list_classes in (("train", train_classes), ("val", val_classes)):
            with open(expected.archives[split].path, "rb") as archive:
                classes = list_classes(expected, archive, devkit)
                _store(part, split, archive, classes, shard_bytes, tile, threads)
        _finish(part, plan, expected, devkit)

        # one rename, so that `root` is never there in part
        if root.exists():
            shutil.rmtree(root)
        (part / "store").rename(root)
        shutil.rmtree(part)


@contextmanager
def _in_progress(part: Path, plan: JsonObject) -> Iterator[None]:
    """Lock `part`, and keep the work of the same plan in it and no other; where the body refuses,
    remove all."""
    part.mkdir(parents=True, exist_ok=True)
    lock = os.open(part, os.O_RDONLY)
    try:
        try:
            is_ours = lock_descriptor(lock, blocking=False)
        except OSError as error:
            raise InputError(
                f"{part} cannot be locked ({error}); prepare on a file system with locks"
            ) from error
        if not is_ours:
            raise InputError(f"{part} is in use by another preparation; wait for it, or end it")
        _keep_work_of(plan, part)
        try:
            yield
        except InputError:
            shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _keep_work_of(plan: JsonObject, part: Path) -> None:
    """Leave in `part` only what an earlier call completed by the same plan."""
    try:
        known = json.loads((part / "plan.json").read_bytes())
    except (OSError, ValueError):
        known = None
    if known != plan or not (part / "store").is_dir():  # it is of another plan, or has been moved
        # first, so that a killed removal is completed by the next call
        (part / "plan.json").unlink(missing_ok=True)
        for path in part.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in part.rglob("*.part"):  # left incomplete by a killed process
        path.unlink()
    for split in SPLITS:
        (part / "store" / split).mkdir(parents=True, exist_ok=True)
        (part / "steps" / split).mkdir(parents=True, exist_ok=True)
    write_text(part / "plan.json", json.dumps(plan))


# ---- the stored form of an image: the same pixels, in a form that libjpeg reads ----


@dataclass(frozen=True)
class Stored:
    """An image as it is stored: its bytes, its height and width, and what was done with the
    original: KEPT, TILED or PIXELS."""

    body: bytes
    shape: tuple[int, int]
    way: str


def to_stored(original: bytes, name: str, tile: Transcoder | None) -> Stored:
    """Convert one image, a JPEG or PNG, to its stored form. It is decoded, and once more where its
    bytes change."""
    try:
        image = Image.open(io.BytesIO(original), formats=("JPEG", "PNG"))
        check_pixels(image)
        if max(image.size) > LARGEST_SIDE:
            raise ValueError(f"it has {image.width} x {image.height} px")
        pixels = image.convert("RGB")
    except Exception as error:  # a hostile file can raise anything
        raise refused(name, f"cannot be read as an image ({error})") from error

    body, way = original, KEPT
    if image.mode == "CMYK" or image.format == "PNG":  # libjpeg gives no RGB for four inks
        file = io.BytesIO()
        pixels.save(file, "PPM")  # builds of zlib compress PNG differently, and bytes are pinned
        body, way = file.getvalue(), PIXELS
    elif tile is not None and (tiled := tile(original)) is not None:
        body, way = tiled, TILED

    if way != KEPT:
        with Image.open(io.BytesIO(body), formats=("JPEG", "PPM")) as after:
            if after.convert("RGB").tobytes() != pixels.tobytes():
                raise InputError(
                    f"storing {name} would change its pixels, which is a bug; set data.store to "
                    "plain in the settings"
                )
    return Stored(body, (image.height, image.width), way)


def _store(
    part: Path,
    split: str,
    archive: BinaryIO,
    classes: Mapping[str, Members],
    shard_bytes: int,
    tile: Transcoder | None,
    threads: int,
) -> None:
    """Store the images of one split. A class is one step, which is left out where an earlier call
    has completed it."""
    end = (0, 0)  # the shard and the byte at which the next class begins
    size = os.fstat(archive.fileno()).st_size
    with progress_bar(f"storing {split}", size, "bytes") as advance:
        for label, (wnid, members) in enumerate(classes.items()):
            step = part / "steps" / split / f"{label:05d}.json"
            if not step.is_file():
                with closing(ShardWriter(part / "store" / split, end, shard_bytes)) as shards:
                    stored = _stored_in_order(archive, members(), tile, threads)
                    images = _store_class(shards, f"{split}/{wnid}", label, stored)
                write_text(step, json.dumps(images))  # last: with it the class is stored
            images = json.loads(step.read_bytes())
            offset, length, _, shard, *_ = images[-1]["row"]
            end = (shard, offset + length)
            advance(sum(image["read"] for image in images))


def _stored_in_order(
    archive: BinaryIO, members: Iterable[Member], tile: Transcoder | None, threads: int
) -> Iterator[tuple[Member, str, Stored]]:
    """Yield each member of an archive, the hash of its bytes, and its stored form."""
    file = Path(archive.name).name
    originals = ((member, read_member(archive, file, member)) for member in members)

    def convert(member_and_original: tuple[Member, bytes]) -> tuple[Member, str, Stored]:
        member, original = member_and_original
        digest = hashlib.blake2b(original, digest_size=16).hexdigest()
        return member, digest, to_stored(original, f"{file}: {member.name}", tile)

    return map_in_order(convert, originals, threads)


def _store_class(
    shards: ShardWriter, folder: str, label: int, images: Iterable[tuple[Member, str, Stored]]
) -> list[JsonObject]:
    """Append the images of a class, and return what the index and the manifest need of each.

    row: as in INDEX. digest: of the original, for the hash of the data. read: the original's bytes,
    for the progress bar of a later call."""
    entries = []
    for member, digest, stored in images:
        shard, offset = shards.add(stored.body)
        crc = zlib.crc32(stored.body)
        entry = {
            "name": f"{folder}/{member.name}",
            "way": stored.way,
            "row": (offset, len(stored.body), crc, shard, label, *stored.shape),
            "digest": digest,
            "read": member.bytes,
        }
        entries.append(entry)
    return entries


def map_in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield `work(item)` for every item, in the order of the items; at most 2 per thread are in
    memory.

    Threads instead of processes: decoders release the GIL, and no process outlives a kill.
    """
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


# ---- the indexes and the manifest ----


def _images(part: Path, split: str) -> Iterator[JsonObject]:
    """Yield what is known of each stored image of a split, in order; see `_store_class`."""
    for path in sorted((part / "steps" / split).iterdir()):
        yield from json.loads(path.read_bytes())


def _finish(part: Path, plan: JsonObject, expected: Expected, devkit: Devkit) -> None:
    """Write the indexes, and the manifest with the hash of every file; never hold all images' names
    in memory."""
    store, ways, as_pixels = part / "store", Counter[str](), list[str]()
    splits: JsonObject = {}
    files: JsonObject = {}
    for split in SPLITS:
        index = np.fromiter((tuple(image["row"]) for image in _images(part, split)), dtype=INDEX)
        if split == "train" and len(index) != expected.train_images:
            counts = f"{len(index):,} images and must hold {expected.train_images:,}"
            raise refused(expected.archives["train"].path, f"holds {counts}")
        with atomic_file(store / split / "index.npy") as file:
            np.save(file, index, allow_pickle=False)

        files |= _hash_files(store, split, index)
        digest = digest_files(
            (image["name"], label, bytes.fromhex(image["digest"]))
            for image, label in zip(_images(part, split), index["label"].tolist(), strict=True)
        )
        splits[split] = {"images": len(index), "digest": digest}
        for image in _images(part, split):
            ways[image["way"]] += 1
            if image["way"] == PIXELS:
                as_pixels.append(image["name"])

    names = zip(devkit.wnids, devkit.words, strict=True)
    manifest = {
        **plan,
        "classes": [{"wnid": wnid, "words": words} for wnid, words in names],
        "splits": splits,
        "files": files,
        "stored": {way: ways[way] for way in (KEPT, TILED, PIXELS)},
        "stored_as_pixels": as_pixels,
    }
    write_text(store / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _hash_files(store: Path, split: str, index: np.ndarray) -> JsonObject:
    """Return the size and the hash of a split's index and shards, as the manifest has them."""
    files = {}
    shards = [shard_name(number) for number in range(int(index["shard"][-1]) + 1)]
    total = int(index["length"].sum(dtype=np.uint64))
    with progress_bar(f"hashing {split}", total, "bytes") as advance:
        for name in ("index.npy", *shards):
            path = store / split / name
            size = path.stat().st_size
            files[f"{split}/{name}"] = {"bytes": size, "sha256": file_sha256(path)}
            advance(size)
    return files
