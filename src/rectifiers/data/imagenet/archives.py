"""The official archives as untrusted files: their pins, where their members lie, and what the
devkit says. Nothing is unpacked to disk."""

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import scipy.io
import yaml

from rectifiers.runtime.errors import InputError, unreadable

ROLES = ("train", "val", "devkit")
IMAGE_LIMIT = 1 << 26  # bytes of an image file; the largest of ImageNet has 15 MB
DEVKIT_LIMIT = 1 << 24  # bytes of a file of the devkit
READ_BYTES = 1 << 24  # at a time, of a whole archive
WNID = re.compile(r"n[0-9]{8}")
VAL_NAME = re.compile(r"ILSVRC2012_val_[0-9]{8}\.JPEG")


@dataclass(frozen=True)
class Archive:
    """One archive: its path, its pinned md5, and its size where that is known."""

    path: Path
    md5: str
    bytes: int | None


@dataclass(frozen=True)
class Expected:
    """The archives of a data set and their contents.

    class_images, class_val_images: the least and the most images of a class for training and for
    validation."""

    archives: Mapping[str, Archive]
    classes: int
    train_images: int
    val_images: int
    class_images: tuple[int, int]
    class_val_images: tuple[int, int]

    @property
    def md5s(self) -> dict[str, str]:
        """The pinned md5 of every archive by its file's name."""
        return {archive.path.name: archive.md5 for archive in self.archives.values()}


@dataclass(frozen=True)
class Member:
    """A file in an archive: its name, and the offset and number of its bytes."""

    name: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Devkit:
    """Classes in label order (sorted WordNet ids), and validation labels in the order of file
    names."""

    wnids: tuple[str, ...]
    words: tuple[str, ...]
    val_labels: tuple[int, ...]


# Lists the images of one class, the unit of work between two commits of a preparation. It is called
# when the class's turn comes, because listing reads all headers of a tar.
Members = Callable[[], list[Member]]


def refused(what: object, problem: str) -> InputError:
    """Return the error that an archive, or a part of one, is not the official one."""
    return InputError(f"{what} {problem}; fetch it again")


def read_expected(path: Path) -> Expected:
    """Read a file of pins and counts, such as `pipelines/imagenet/archives.yaml`."""
    try:
        content = yaml.safe_load(path.read_text())
        archives = {}
        for role in ROLES:
            facts = content.pop(role)
            place = Path(content["folder"]) / facts["file"]
            archives[role] = Archive(place, facts["md5"], facts["bytes"])
        del content["folder"]
        return Expected(archives, **content)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(path, repr(error), "restore it from git") from error


def file_md5(path: Path, on_bytes: Callable[[int], None] = lambda count: None) -> str:
    """Return the md5 of a file. on_bytes: called with the number of bytes of each part."""
    content = hashlib.md5()
    with open(path, "rb") as file:
        while part := file.read(READ_BYTES):
            content.update(part)
            on_bytes(len(part))
    return content.hexdigest()


def verify(archive: Archive, md5: Callable[[Path], str] = file_md5) -> None:
    """Refuse an archive that is missing, or has not its pinned size and md5."""
    path = archive.path
    if not path.is_file():
        raise InputError(f"{path} is missing; put the archive (or a link to it) there")
    size = path.stat().st_size
    if archive.bytes not in (None, size):
        raise refused(path, f"has {size:,} bytes and the pinned archive {archive.bytes:,}")
    if (actual := md5(path)) != archive.md5:
        raise refused(path, f"has the md5 {actual} and the pinned archive {archive.md5}")


def list_members(
    file: BinaryIO,
    archive: str,
    pattern: re.Pattern[str],
    *,
    start: int = 0,
    size: int,
    most: int,
    most_bytes: int,
) -> list[Member]:
    """Return the files of the tar that lies at `start` in `file` and is `size` bytes long, sorted
    by name.

    Anything but whole regular files once each, whose whole names match `pattern`, is refused.
    archive: its name in messages. most, most_bytes: limits on the number of files and on the size
    of each.
    """
    members: dict[str, Member] = {}
    try:
        file.seek(start)
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for info in tar:
                belongs = (
                    info.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
                    and not info.issparse()
                    and pattern.fullmatch(info.name)
                    and info.name not in members
                    and 0 <= info.size <= most_bytes
                    and info.offset_data + info.size <= start + size
                    and len(members) < most
                )
                if not belongs:
                    raise refused(f"{archive}: {info.name!a:.120}", "is no file that belongs there")
                members[info.name] = Member(info.name, info.offset_data, info.size)
    except InputError:
        raise
    except Exception as error:  # a hostile file can raise anything
        raise refused(archive, f"cannot be read as a tar ({str(error)!a:.120})") from error
    return [members[name] for name in sorted(members)]


def read_member(file: BinaryIO, archive: str, member: Member) -> bytes:
    """Return a member's bytes, all of them."""
    file.seek(member.offset)
    body = file.read(member.bytes)
    if len(body) != member.bytes:
        raise refused(archive, f"is cut short within {member.name}")
    return body


# ---- the devkit ----


def read_devkit(path: Path, classes: int, val_images: int) -> Devkit:
    """Read the devkit's archive, which must have `classes` classes and `val_images` labels.

    The ground truth is given in ILSVRC2012_IDs, whose order is not that of the labels: a label is
    the position of the class among the sorted WNIDs. `meta.mat` maps one to the other; it lists
    inner nodes, too.

    Raises:
        InputError: where the archive cannot be read, or holds anything else.
    """
    try:
        with tarfile.open(path, "r:gz") as kit:
            meta, ground_truth = (
                kit.extractfile(f"ILSVRC2012_devkit_t12/data/{name}").read(DEVKIT_LIMIT)  # type: ignore[union-attr]
                for name in ("meta.mat", "ILSVRC2012_validation_ground_truth.txt")
            )
        synsets = np.atleast_1d(scipy.io.loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        leaves = {
            int(row["ILSVRC2012_ID"]): (str(row["WNID"]), str(row["words"]))
            for row in synsets
            if int(row["num_children"]) == 0 and int(row["ILSVRC2012_ID"]) <= classes
        }
        truth = [int(line) for line in ground_truth.decode("ascii").split()]
    except Exception as error:  # a hostile file can raise anything
        raise refused(path, f"cannot be read as the devkit ({error!r})") from error

    words_of = dict(leaves.values())  # by WNID
    wnids = tuple(sorted(words_of))
    if (
        sorted(leaves) != list(range(1, classes + 1))
        or len(wnids) != classes
        or not all(map(WNID.fullmatch, wnids))
        or len(truth) != val_images
        or not all(1 <= number <= classes for number in truth)
    ):
        what = f"{classes} classes, each by its id and WNID, and {val_images:,} labels of theirs"
        raise refused(path, f"must have {what}")

    labels = tuple(wnids.index(leaves[number][0]) for number in truth)
    return Devkit(wnids, tuple(words_of[wnid] for wnid in wnids), labels)


# ---- the images of the archives, class by class ----


def train_classes(expected: Expected, archive: BinaryIO, devkit: Devkit) -> dict[str, Members]:
    """Return the classes of the tar of tars; each inner tar is listed when its turn comes."""
    path = expected.archives["train"].path
    size = os.fstat(archive.fileno()).st_size
    pattern = re.compile(rf"{WNID.pattern}\.tar")
    inner = list_members(
        archive, path.name, pattern, size=size, most=expected.classes, most_bytes=size
    )
    classes = {tar.name[: -len(".tar")]: tar for tar in inner}
    if tuple(classes) != devkit.wnids:
        raise refused(path, "does not hold the classes of the devkit")
    return {
        wnid: partial(_inner_members, expected, archive, wnid, tar) for wnid, tar in classes.items()
    }


def _inner_members(expected: Expected, archive: BinaryIO, wnid: str, tar: Member) -> list[Member]:
    name = f"{expected.archives['train'].path.name}/{tar.name}"
    pattern = re.compile(rf"{wnid}_[0-9]{{1,9}}\.JPEG")
    least, most = expected.class_images
    images = list_members(
        archive, name, pattern, start=tar.offset, size=tar.bytes, most=most, most_bytes=IMAGE_LIMIT
    )
    if len(images) < least:
        raise refused(name, f"holds {len(images)} images, and a class has {least} to {most}")
    return images


def val_classes(expected: Expected, archive: BinaryIO, devkit: Devkit) -> dict[str, Members]:
    """Return the classes of the flat tar, whose images, in the order of their names, have the
    ground truth's labels."""
    path, count = expected.archives["val"].path, expected.val_images
    size = os.fstat(archive.fileno()).st_size
    images = list_members(
        archive, path.name, VAL_NAME, size=size, most=count, most_bytes=IMAGE_LIMIT
    )
    if len(images) != count:
        raise refused(path, f"holds {len(images):,} images and must hold {count:,}")
    classes: dict[str, list[Member]] = {wnid: [] for wnid in devkit.wnids}
    for member, label in zip(images, devkit.val_labels, strict=True):
        classes[devkit.wnids[label]].append(member)
    least, most = expected.class_val_images
    for wnid, members in classes.items():
        if not least <= len(members) <= most:
            problem = f"gives {wnid} {len(members)} images, and a class has {least} to {most}"
            raise refused(expected.archives["devkit"].path, problem)
    return {wnid: partial(list, members) for wnid, members in classes.items()}
