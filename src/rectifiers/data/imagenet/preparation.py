"""Conversion of the official archives to a prepared folder (see `store`), one class at a time, restartable."""

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import lock_descriptor

from rectifiers.data.imagenet.archives import IMAGE_LIMIT, Expected, Member, list_members, read_member
from rectifiers.data.imagenet.devkit import WNID, Devkit, read_devkit
from rectifiers.data.imagenet.originals import ODDITIES, WAYS, Stored, to_stored, transcoder
from rectifiers.data.imagenet.store import (
    FORMAT,
    INDEX,
    MANIFEST,
    SPLITS,
    ShardWriter,
    different_files,
    file_sha256,
    read_manifest,
    shard_name,
)
from rectifiers.data.images import digest_files
from rectifiers.data.parallel import map_in_order
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, write_text

MOST_NAMED = 1000  # images that the manifest names per oddity; half of ImageNet may have a common one
VAL_NAME = re.compile(r"ILSVRC2012_val_\d{8}\.JPEG")


@dataclass(frozen=True)
class _Step:
    """One class of one split, the unit of work between two commits."""

    split: str
    wnid: str
    label: int
    archive: str
    file: BinaryIO
    members: Callable[[], list[Member]]


def prepare(
    expected: Expected,
    root: Path,
    *,
    store: str,
    shard_bytes: int,
    threads: int,
    on_bytes: Callable[[str, int], None] = lambda work, count: None,
) -> None:
    """Make the folder `root` from verified archives. Work in progress is in `<root>.part`, and a later call continues
    it.

    The bytes depend on the archives, `store` and `shard_bytes`, neither on the threads nor on interruptions. on_bytes:
    called with ("storing", bytes of the archives that a step has read, also by an earlier call), and then with
    ("checking", bytes that are stored).

    Raises:
        InputError: for archives with unexpected contents; `root` is unchanged then, and the work in progress is
        removed,
            because other archives make other bytes.
    """
    root = root.resolve()  # the target, where `root` is a link to a larger disk
    tile = transcoder(store)
    archives = {archive.path.name: {"md5": archive.md5} for archive in expected.archives.values()}
    plan = {"format": FORMAT, "store": store, "shard_bytes": shard_bytes, "archives": archives}
    part = root.with_name(f"{root.name}.part")
    with ExitStack() as stack:
        _continue_or_start(part, plan, stack)
        stack.enter_context(_removed_where_refused(part))
        if not _is_made(root, plan):
            devkit = read_devkit(expected.archives["devkit"].path, expected.classes, expected.val_images)
            files = {split: stack.enter_context(open(expected.archives[split].path, "rb")) for split in SPLITS}
            convert = partial(to_stored, tile=tile)
            for steps in (_train_steps(expected, files["train"], devkit), _val_steps(expected, files["val"], devkit)):
                end = (0, 0)
                for step in steps:
                    end, read = _run(step, part, end, convert, shard_bytes, threads)
                    on_bytes("storing", read)
            _finish(part, plan, expected, devkit, partial(on_bytes, "checking"))
            if root.exists():
                root.rename(part / "replaced")
            (part / "store").rename(root)
        shutil.rmtree(part)


@contextmanager
def _removed_where_refused(part: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _is_made(root: Path, plan: dict[str, Any]) -> bool:
    try:
        manifest = read_manifest(root)
        return {key: manifest.get(key) for key in plan} == plan and not different_files(root)
    except InputError:
        return False


def _continue_or_start(part: Path, plan: dict[str, Any], stack: ExitStack) -> None:
    """Keep the work in progress of the same plan and remove any other; refuse a second process."""
    part.mkdir(parents=True, exist_ok=True)
    lock = os.open(part, os.O_RDONLY)
    stack.callback(os.close, lock)
    try:
        is_ours = lock_descriptor(lock, blocking=False)
    except OSError as error:
        raise InputError(f"{part} cannot be locked ({error}); prepare on a file system with locks") from error
    if not is_ours:
        raise InputError(f"{part} is in use by another preparation; wait for it, or end it")
    try:
        known = json.loads((part / "plan.json").read_bytes())
    except (OSError, ValueError):
        known = None
    if known != plan:
        (part / "plan.json").unlink(missing_ok=True)  # first, so that a killed removal is completed by the next call
    for path in part.iterdir():
        if known != plan or path.name == "replaced":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in part.rglob("*.part"):  # left incomplete by a killed process
        path.unlink()
    for split in SPLITS:
        (part / "store" / split).mkdir(parents=True, exist_ok=True)
        (part / "steps" / split).mkdir(parents=True, exist_ok=True)
    write_text(part / "plan.json", json.dumps(plan))


def _train_steps(expected: Expected, file: BinaryIO, devkit: Devkit) -> Iterator[_Step]:
    """Yield the classes of the tar of tars; each inner tar is listed when its turn comes."""
    archive = expected.archives["train"].path
    size = os.fstat(file.fileno()).st_size
    inner = list_members(
        file, archive.name, re.compile(rf"{WNID.pattern}\.tar"), size=size, most=expected.classes, most_bytes=size
    )
    if tuple(member.name.removesuffix(".tar") for member in inner) != devkit.wnids:
        raise InputError(f"{archive} does not hold the classes of the devkit; fetch both again")
    least, most = expected.class_images
    for label, (wnid, tar) in enumerate(zip(devkit.wnids, inner, strict=True)):

        def members(wnid: str = wnid, tar: Member = tar) -> list[Member]:
            images = list_members(
                file,
                f"{archive.name}/{tar.name}",
                re.compile(rf"{wnid}_\d{{1,9}}\.JPEG"),
                start=tar.offset,
                size=tar.bytes,
                most=most,
                most_bytes=IMAGE_LIMIT,
            )
            if len(images) < least:
                raise InputError(
                    f"{archive.name}/{tar.name} holds {len(images)} images, and a class has {least} to {most}; "
                    "fetch the archive again"
                )
            return images

        yield _Step("train", wnid, label, archive.name, file, members)


def _val_steps(expected: Expected, file: BinaryIO, devkit: Devkit) -> Iterator[_Step]:
    """Yield the classes of the flat tar, whose images, in the order of their names, have the ground truth's labels."""
    archive = expected.archives["val"].path
    size = os.fstat(file.fileno()).st_size
    images = list_members(file, archive.name, VAL_NAME, size=size, most=expected.val_images, most_bytes=IMAGE_LIMIT)
    if len(images) != expected.val_images:
        raise InputError(
            f"{archive} holds {len(images):,} images and must hold {expected.val_images:,}; fetch it again"
        )
    for label, wnid in enumerate(devkit.wnids):
        members = [member for member, its_label in zip(images, devkit.val_labels, strict=True) if its_label == label]
        if len(members) != expected.class_val_images:
            raise InputError(
                f"the ground truth gives {wnid} {len(members)} images and must give {expected.class_val_images}; "
                "fetch the devkit again"
            )
        yield _Step("val", wnid, label, archive.name, file, lambda members=members: members)  # type: ignore[misc]


def _run(
    step: _Step,
    part: Path,
    end: tuple[int, int],
    convert: Callable[[bytes, str], Stored],
    shard_bytes: int,
    threads: int,
) -> tuple[tuple[int, int], int]:
    """Store one class from `end`, a (shard, byte), on, unless the step's file, which is written last, exists.

    Returns the new end and the number of bytes of the class's originals.
    """
    path = part / "steps" / step.split / f"{step.label:05d}.json"
    if not path.is_file():
        members = step.members()
        images = []
        with ShardWriter(part / "store" / step.split, end, shard_bytes) as shards:

            def originals() -> Iterator[tuple[bytes, str]]:
                for member in members:
                    yield read_member(step.file, step.archive, member), f"{step.archive}: {member.name}"

            kept = map_in_order(lambda original: convert(*original), originals(), threads)
            for member, stored in zip(members, kept, strict=True):
                shard, offset = shards.add(stored.body)
                images.append(
                    {
                        "name": f"{step.split}/{step.wnid}/{member.name}",
                        "row": (offset, len(stored.body), zlib.crc32(stored.body), shard, step.label, *stored.shape),
                        "way": stored.way,
                        "oddities": stored.oddities,
                        "digest": stored.digest.hex(),
                    }
                )
        write_text(path, json.dumps({"read": sum(member.bytes for member in members), "images": images}))
    done = json.loads(path.read_bytes())
    offset, length, _, shard, *_ = done["images"][-1]["row"]
    return (shard, offset + length), done["read"]


def _images(part: Path, split: str) -> Iterator[dict[str, Any]]:
    for path in sorted((part / "steps" / split).iterdir()):
        yield from json.loads(path.read_bytes())["images"]


def _finish(
    part: Path, plan: dict[str, Any], expected: Expected, devkit: Devkit, on_bytes: Callable[[int], None]
) -> None:
    """Write the indexes, and the manifest with the hash of every file; never hold all images' names in memory."""
    ways: dict[str, dict[str, Any]] = {way: {"is": text, "count": 0} for way, text in WAYS.items()}
    oddities: dict[str, dict[str, Any]] = {
        key: {"is": text, "count": 0, "stored": {}} for key, text in ODDITIES.items()
    }
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
            files[f"{split}/{name}"] = {"bytes": (store / split / name).stat().st_size, "sha256": sha256}
        digest = digest_files((i["name"], i["row"][4], bytes.fromhex(i["digest"])) for i in _images(part, split))
        splits[split] = {"images": len(index), "digest": digest}
        for image in _images(part, split):
            ways[image["way"]]["count"] += 1
            for odd in (oddities[key] for key in image["oddities"]):
                odd["count"] += 1
                if odd["count"] <= MOST_NAMED:
                    odd["stored"][image["name"]] = image["way"]
    manifest = {
        **plan,
        "classes": [{"wnid": wnid, "words": words} for wnid, words in zip(devkit.wnids, devkit.words, strict=True)],
        "splits": splits,
        "files": files,
        "ways": ways,
        "oddities": oddities,
    }
    write_text(store / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _check_shards(folder: Path, index: np.ndarray, on_bytes: Callable[[int], None]) -> dict[str, str]:
    """Check the stored bytes, which may have changed between two calls, and return the SHA-256 of the shards."""
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
            raise InputError(f"{path} is not what was written there; remove {folder.parents[1]} and prepare again")
        hashes[path.name] = content.hexdigest()
        on_bytes(path.stat().st_size)
    return hashes
