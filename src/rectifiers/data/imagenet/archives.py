"""The official archives as untrusted files: their pins, where their members lie, and what the
devkit says. Nothing is unpacked to disk."""

import gzip
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

from rectifiers.runtime.errors import InputError

ROLES = ("train", "val", "devkit")
HEADER_LIMIT = 1 << 20  # bytes of a tar's header (long names, pax records)
IMAGE_LIMIT = 1 << 26  # bytes of an image file; the largest of ImageNet has 15 MB
DEVKIT_LIMIT = 1 << 26  # bytes of the devkit, unpacked
DEVKIT_MEMBERS = 1000
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


# lists the images of one class, the unit of work between two commits of a preparation
Members = Callable[[], list[Member]]


def read_expected(path: Path) -> Expected:
    """Read a file of pins and counts, such as `pipelines/imagenet/archives.yaml`.

    Raises:
        InputError: where the file cannot be read.
    """
    try:
        content = yaml.safe_load(path.read_text())
        archives = {}
        for role in ROLES:
            facts = content.pop(role)
            place = Path(content["folder"]) / facts["file"]
            archives[role] = Archive(place, facts["md5"], facts["bytes"])
        del content["folder"]
        for key in ("class_images", "class_val_images"):
            least, most = content[key]
            content[key] = (least, most)
        return Expected(archives, **content)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read as a list of archives ({error!r}); restore it from git"
        ) from error


def file_md5(path: Path, on_bytes: Callable[[int], None] = lambda count: None) -> str:
    """Return the md5 of a file. on_bytes: called with the number of bytes after each part that is
    read."""
    content = hashlib.md5()
    with open(path, "rb") as file:
        while part := file.read(READ_BYTES):
            content.update(part)
            on_bytes(len(part))
    return content.hexdigest()


def verify(archive: Archive, md5: Callable[[Path], str] = file_md5) -> None:
    """Check that an archive has its pinned size and md5.

    Raises:
        InputError: where it is missing or differs, with the remedy.
    """
    path = archive.path
    if not path.is_file():
        raise InputError(f"{path} is missing; put the archive (or a link to it) there")
    size = path.stat().st_size
    if archive.bytes not in (None, size):
        raise InputError(
            f"{path} has {size:,} bytes and the pinned archive {archive.bytes:,}; fetch it "
            "again, it may be cut short"
        )
    actual = md5(path)
    if actual != archive.md5:
        raise InputError(
            f"{path} has the md5 {actual} and the pinned archive {archive.md5}; fetch it again"
        )


class _Section(io.RawIOBase):
    """A part of a file as a file of its own; a single read is limited to the size of a tar's
    header."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER_LIMIT:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        self._file.seek(self._start + self._at)
        body = self._file.read(max(0, min(size, self._size - self._at)))
        self._at += len(body)
        return body


def list_members(
    file: BinaryIO,
    archive: str,
    wanted: re.Pattern[str],
    *,
    start: int = 0,
    size: int,
    most: int,
    most_bytes: int,
    folders: bool = False,
) -> list[Member]:
    """Return the files of the tar that lies at `start` in `file` and is `size` bytes long, sorted
    by name.

    archive: its name in messages. wanted: a pattern that every whole name must match. most,
    most_bytes: limits on the number of files and on the size of each. folders: whether to skip
    folders instead of refusing them.

    Raises:
        InputError: for a file that is no tar, is cut short, or contains anything but `wanted`
        regular files once each.
    """
    members: dict[str, Member] = {}
    try:
        with tarfile.open(fileobj=_Section(file, start, size), mode="r:") as tar:
            for info in tar:
                if folders and info.isdir():
                    continue
                name = info.name
                if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse():
                    problem = "is no regular file"
                elif not wanted.fullmatch(name):
                    problem = f"is not named as its files are ({wanted.pattern})"
                elif name in members:
                    problem = "is there twice"
                elif not 0 <= info.size <= most_bytes:
                    problem = f"claims {info.size:,} bytes, and such a file has {most_bytes:,}"
                elif info.offset_data + info.size > size:
                    problem = "is cut short"
                elif len(members) == most:
                    problem = f"is one more than the {most:,} files that belong there"
                else:
                    members[name] = Member(name, start + info.offset_data, info.size)
                    continue
                raise InputError(
                    f"{archive}: {_printable(name)} {problem}; fetch the archive again from "
                    "its source"
                )
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"{archive} cannot be read as a tar ({_printable(str(error))}); fetch the archive again"
        ) from error
    return [members[name] for name in sorted(members)]


def _printable(name: str) -> str:
    """Return a name from an archive without control characters and surrogates, at most 120
    characters long."""
    shown = ascii(name)
    return shown if len(shown) <= 120 else f"{shown[:117]}..."


def read_member(file: BinaryIO, archive: str, member: Member) -> bytes:
    """Return a member's bytes.

    Raises:
        InputError: where the archive ends early.
    """
    file.seek(member.offset)
    body = file.read(member.bytes)
    if len(body) != member.bytes:
        raise InputError(f"{archive} is cut short within {member.name}; fetch it again")
    return body


# ---- the devkit ----


def read_devkit_files(path: Path) -> tuple[bytes, bytes]:
    """Return meta.mat and the ground truth from the devkit's .tar.gz.

    Raises:
        InputError: where one is missing, or the archive unpacks to more than DEVKIT_LIMIT bytes.
    """
    try:
        with gzip.open(path) as packed:
            content = packed.read(DEVKIT_LIMIT + 1)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be unpacked ({error}); fetch it again") from error
    if len(content) > DEVKIT_LIMIT:
        raise InputError(
            f"{path} unpacks to more than {DEVKIT_LIMIT:,} bytes, which no devkit has; fetch "
            "it again"
        )
    file, any_name = io.BytesIO(content), re.compile(r"(?s).+")
    limits = {"size": len(content), "most": DEVKIT_MEMBERS, "most_bytes": DEVKIT_LIMIT}
    listed = list_members(file, path.name, any_name, **limits, folders=True)
    members = {member.name: member for member in listed}
    try:
        meta, truth = (
            read_member(file, path.name, members[f"ILSVRC2012_devkit_t12/data/{name}"])
            for name in ("meta.mat", "ILSVRC2012_validation_ground_truth.txt")
        )
    except KeyError as error:
        raise InputError(f"{path} has no file {error}; fetch it again") from error
    return meta, truth


def read_devkit(path: Path, classes: int, val_images: int) -> Devkit:
    """Read the devkit's archive.

    The ground truth is given in ILSVRC2012_IDs, whose order is not that of the labels: a label is
    the position of the class among the sorted WNIDs. `meta.mat` maps one to the other; it lists
    inner nodes, too.

    Raises:
        InputError: where the devkit does not contain `classes` classes and `val_images` labels.
    """
    meta, ground_truth = read_devkit_files(path)
    try:
        synsets = np.atleast_1d(scipy.io.loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"])
        leaves = {
            int(row["ILSVRC2012_ID"]): (str(row["WNID"]), str(row["words"]))
            for row in synsets
            if int(row["num_children"]) == 0 and int(row["ILSVRC2012_ID"]) <= classes
        }
        truth = [int(line) for line in ground_truth.decode("ascii").split()]
    except Exception as error:  # a hostile MATLAB file can raise anything
        raise InputError(
            f"{path} cannot be read as the devkit ({error!r}); fetch it again"
        ) from error
    words_of = dict(leaves.values())
    wnids = tuple(sorted(words_of))
    if sorted(leaves) != list(range(1, classes + 1)) or len(wnids) != classes:
        raise InputError(
            f"{path}: meta.mat has {len(leaves)} ids and {len(wnids)} WNIDs of classes, and must "
            f"have {classes} of each; fetch it again"
        )
    unusable = next((wnid for wnid in wnids if not WNID.fullmatch(wnid)), None)
    if unusable is not None:
        raise InputError(
            f"{path}: meta.mat names a class {unusable!a}, which is no WNID; fetch it again"
        )
    if len(truth) != val_images or not all(1 <= number <= classes for number in truth):
        raise InputError(
            f"{path}: the ground truth has {len(truth):,} lines and must have {val_images:,} "
            f"numbers from 1 to {classes}; fetch it again"
        )
    labels = tuple(wnids.index(leaves[number][0]) for number in truth)
    return Devkit(wnids, tuple(words_of[wnid] for wnid in wnids), labels)


# ---- the images of the archives, class by class ----


def train_classes(expected: Expected, archive: BinaryIO, devkit: Devkit) -> dict[str, Members]:
    """Return the classes of the tar of tars; each inner tar is listed when its turn comes."""
    path = expected.archives["train"].path
    size = os.fstat(archive.fileno()).st_size
    wanted = re.compile(rf"{WNID.pattern}\.tar")
    inner = list_members(
        archive, path.name, wanted, size=size, most=expected.classes, most_bytes=size
    )
    classes = {tar.name[: -len(".tar")]: tar for tar in inner}
    if tuple(classes) != devkit.wnids:
        raise InputError(f"{path} does not hold the classes of the devkit; fetch both again")
    return {
        wnid: partial(_inner_members, expected, archive, wnid, tar) for wnid, tar in classes.items()
    }


def _inner_members(expected: Expected, archive: BinaryIO, wnid: str, tar: Member) -> list[Member]:
    name = f"{expected.archives['train'].path.name}/{tar.name}"
    wanted = re.compile(rf"{wnid}_[0-9]{{1,9}}\.JPEG")
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


def val_classes(expected: Expected, archive: BinaryIO, devkit: Devkit) -> dict[str, Members]:
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
    least, most = expected.class_val_images
    for wnid, members in classes.items():
        if not least <= len(members) <= most:
            raise InputError(
                f"the ground truth gives {wnid} {len(members)} images, and a class has {least} to "
                f"{most}; fetch the devkit again"
            )
    return {wnid: partial(list, members) for wnid, members in classes.items()}
