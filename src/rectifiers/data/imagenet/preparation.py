"""Conversion of the official archives to a prepared folder (see `store`), one class at a time,
restartable."""

import hashlib
import json
import os
import re
import shutil
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from filelock import lock_descriptor

from rectifiers.data.imagenet.archives import (
    IMAGE_LIMIT,
    Expected,
    Member,
    list_members,
    read_member,
)
from rectifiers.data.imagenet.devkit import WNID, Devkit, read_devkit
from rectifiers.data.imagenet.originals import ODDITIES, WAYS, Stored, to_stored, transcoder
from rectifiers.data.imagenet.store import (
    FORMAT,
    INDEX,
    MANIFEST,
    SPLITS,
    ShardWriter,
    check_index_holds,
    different_files,
    file_sha256,
    read_manifest,
    shard_name,
)
from rectifiers.data.images import digest_files
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, write_text

MOST_NAMED = (
    1000  # images that the manifest names per oddity; half of ImageNet may have a common one
)
Members = Callable[
    [], list[Member]
]  # lists the images of one class, the unit of work between two commits
Item = TypeVar("Item")
Result = TypeVar("Result")
VAL_NAME = re.compile(r"ILSVRC2012_val_[0-9]{8}\.JPEG")


def prepare(
    expected: Expected,
    root: Path,
    *,
    store: str,
    shard_bytes: int,
    threads: int,
    on_bytes: Callable[[str, int], None] = lambda work, count: None,
) -> None:
    """Make the folder `root` from verified archives. Work in progress is in `<root>.part`, and a
    later call continues it.

    The bytes depend on the archives, `store` and `shard_bytes`, neither on the threads nor on
    interruptions. on_bytes: called with ("storing", bytes of the archives that a step has read,
    also by an earlier call), and then with ("checking", bytes that are stored).

    Raises:
        InputError: for archives with unexpected contents; `root` is unchanged then, and the work in
        progress is removed,
            because other archives make other bytes.
    """
    root = root.resolve()  # the target, where `root` is a link to a larger disk
    convert = partial(to_stored, tile=transcoder(store))
    archives = {archive.path.name: {"md5": archive.md5} for archive in expected.archives.values()}
    plan = {"format": FORMAT, "store": store, "shard_bytes": shard_bytes, "archives": archives}
    part = root.with_name(f"{root.name}.part")
    with _in_progress(part, plan):
        if not _is_made(root, plan):
            devkit = read_devkit(
                expected.archives["devkit"].path, expected.classes, expected.val_images
            )
            for split, list_classes in (("train", _train_classes), ("val", _val_classes)):
                end = (0, 0)
                with open(expected.archives[split].path, "rb") as archive:
                    for label, members in enumerate(list_classes(expected, archive, devkit)):
                        step = part / "steps" / split / f"{label:05d}.json"
                        if not step.is_file():
                            name = f"{split}/{devkit.wnids[label]}"
                            with ShardWriter(part / "store" / split, end, shard_bytes) as shards:
                                done = _store(
                                    name, label, archive, members(), shards, convert, threads
                                )
                            write_text(step, json.dumps(done))  # last: with it the class is stored
                        done = json.loads(step.read_bytes())
                        offset, length, _, shard, *_ = done["images"][-1]["row"]
                        end = (shard, offset + length)
                        on_bytes("storing", done["read"])
            _finish(part, plan, expected, devkit, partial(on_bytes, "checking"))
            if root.exists():
                root.rename(part / "replaced")
            (part / "store").rename(root)
        shutil.rmtree(part)


def _is_made(root: Path, plan: dict[str, Any]) -> bool:
    try:
        manifest = read_manifest(root)
        return {key: manifest.get(key) for key in plan} == plan and not different_files(root)
    except InputError:
        return False


@contextmanager
def _in_progress(part: Path, plan: dict[str, Any]) -> Iterator[None]:
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
        _keep(part, plan)
        try:
            yield
        except InputError:
            shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _keep(part: Path, plan: dict[str, Any]) -> None:
    try:
        known = json.loads((part / "plan.json").read_bytes())
    except (OSError, ValueError):
        known = None
    if known != plan:
        (part / "plan.json").unlink(
            missing_ok=True
        )  # first, so that a killed removal is completed by the next call
    for path in part.iterdir():
        if known != plan or path.name == "replaced":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in part.rglob("*.part"):  # left incomplete by a killed process
        path.unlink()
    for split in SPLITS:
        (part / "store" / split).mkdir(parents=True, exist_ok=True)
        (part / "steps" / split).mkdir(parents=True, exist_ok=True)
    write_text(part / "plan.json", json.dumps(plan))


def _train_classes(expected: Expected, archive: BinaryIO, devkit: Devkit) -> list[Members]:
    """Return the classes of the tar of tars; each inner tar is listed when its turn comes."""
    path = expected.archives["train"].path
    size = os.fstat(archive.fileno()).st_size
    wanted = re.compile(rf"{WNID.pattern}\.tar")
    inner = list_members(
        archive, path.name, wanted, size=size, most=expected.classes, most_bytes=size
    )
    if tuple(member.name.removesuffix(".tar") for member in inner) != devkit.wnids:
        raise InputError(f"{path} does not hold the classes of the devkit; fetch both again")
    return [partial(_inner_members, expected, archive, tar) for tar in inner]


def _inner_members(expected: Expected, archive: BinaryIO, tar: Member) -> list[Member]:
    name = f"{expected.archives['train'].path.name}/{tar.name}"
    wanted = re.compile(rf"{tar.name.removesuffix('.tar')}_[0-9]{{1,9}}\.JPEG")
    least, most = expected.class_images
    images = list_members(
        archive, name, wanted, start=tar.offset, size=tar.bytes, most=most, most_bytes=IMAGE_LIMIT
    )
    if len(images) < least:
        raise InputError(
            f"{name} holds {len(images)} images, and a class has {least} to {most}; fetch the "
            "archive again"
        )
    return images


def _val_classes(expected: Expected, archive: BinaryIO, devkit: Devkit) -> list[Members]:
    """Return the classes of the flat tar, whose images, in the order of their names, have the
    ground truth's labels."""
    path, count = expected.archives["val"].path, expected.val_images
    size = os.fstat(archive.fileno()).st_size
    images = list_members(
        archive, path.name, VAL_NAME, size=size, most=count, most_bytes=IMAGE_LIMIT
    )
    if len(images) != count:
        raise InputError(
            f"{path} holds {len(images):,} images and must hold {count:,}; fetch it again"
        )
    classes: dict[str, list[Member]] = {wnid: [] for wnid in devkit.wnids}
    for member, label in zip(images, devkit.val_labels, strict=True):
        classes[devkit.wnids[label]].append(member)
    for wnid, members in classes.items():
        if len(members) != expected.class_val_images:
            raise InputError(
                f"the ground truth gives {wnid} {len(members)} images and must give "
                f"{expected.class_val_images}; "
                "fetch the devkit again"
            )
    return [partial(list, members) for members in classes.values()]


def _store(
    name: str,
    label: int,
    archive: BinaryIO,
    members: Sequence[Member],
    shards: ShardWriter,
    convert: Callable[[bytes, str], Stored],
    threads: int,
) -> dict[str, Any]:
    """Store the images of one class and return what became of them, with the number of bytes of the
    originals."""
    file = Path(archive.name).name
    originals = (
        (read_member(archive, file, member), f"{file}: {member.name}") for member in members
    )
    images = []
    for member, stored in zip(
        members, map_in_order(lambda it: convert(*it), originals, threads), strict=True
    ):
        check_index_holds(
            f"{file}: {member.name}",
            length=len(stored.body),
            height=stored.shape[0],
            width=stored.shape[1],
        )
        shard, offset = shards.add(stored.body)
        images.append(
            {
                "name": f"{name}/{member.name}",
                "row": (
                    offset,
                    len(stored.body),
                    zlib.crc32(stored.body),
                    shard,
                    label,
                    *stored.shape,
                ),
                "way": stored.way,
                "oddities": stored.oddities,
                "digest": stored.digest.hex(),
            }
        )
    return {"read": sum(member.bytes for member in members), "images": images}


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


def _images(part: Path, split: str) -> Iterator[dict[str, Any]]:
    for path in sorted((part / "steps" / split).iterdir()):
        yield from json.loads(path.read_bytes())["images"]


def _finish(
    part: Path,
    plan: dict[str, Any],
    expected: Expected,
    devkit: Devkit,
    on_bytes: Callable[[int], None],
) -> None:
    """Write the indexes, and the manifest with the hash of every file; never hold all images' names
    in memory."""
    ways, oddities = Counter[str](), Counter[str]()
    named: dict[str, dict[str, str]] = {key: {} for key in ODDITIES}
    splits, files, store = {}, {}, part / "store"
    for split in SPLITS:
        index = np.fromiter((tuple(image["row"]) for image in _images(part, split)), dtype=INDEX)
        if split == "train" and len(index) != expected.train_images:
            raise InputError(
                f"{expected.archives['train'].path} holds {len(index):,} images and must hold "
                f"{expected.train_images:,}; fetch it again"
            )
        with atomic_file(store / split / "index.npy") as file:
            np.save(file, index, allow_pickle=False)
        hashes = {"index.npy": file_sha256(store / split / "index.npy")}
        hashes |= _check_shards(store / split, index, on_bytes)
        for name, sha256 in hashes.items():
            files[f"{split}/{name}"] = {
                "bytes": (store / split / name).stat().st_size,
                "sha256": sha256,
            }
        digest = digest_files(
            (i["name"], i["row"][4], bytes.fromhex(i["digest"])) for i in _images(part, split)
        )
        splits[split] = {"images": len(index), "digest": digest}
        for image in _images(part, split):
            ways[image["way"]] += 1
            oddities.update(image["oddities"])
            for key in image["oddities"]:
                if oddities[key] <= MOST_NAMED:
                    named[key][image["name"]] = image["way"]
    manifest = {
        **plan,
        "classes": [
            {"wnid": wnid, "words": words}
            for wnid, words in zip(devkit.wnids, devkit.words, strict=True)
        ],
        "splits": splits,
        "files": files,
        "ways": {way: {"is": text, "count": ways[way]} for way, text in WAYS.items()},
        "oddities": {
            key: {"is": text, "count": oddities[key], "stored": named[key]}
            for key, text in ODDITIES.items()
        },
    }
    write_text(store / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _check_shards(
    folder: Path, index: np.ndarray, on_bytes: Callable[[int], None]
) -> dict[str, str]:
    """Check the stored bytes, which may have changed between two calls, and return the SHA-256 of
    the shards."""
    hashes: dict[str, str] = {}
    for number in range(int(index["shard"][-1]) + 1):
        path, content, is_sound = folder / shard_name(number), hashlib.sha256(), True
        with open(path, "rb") as file:
            for row in index[index["shard"] == number]:
                body = file.read(int(row["length"]))
                content.update(body)
                is_sound &= zlib.crc32(body) == row["crc32"]
            is_sound &= not file.read(1)
        if not is_sound:
            raise InputError(
                f"{path} is not what was written there; remove {folder.parents[1]} and prepare "
                "again"
            )
        hashes[path.name] = content.hexdigest()
        on_bytes(path.stat().st_size)
    return hashes
