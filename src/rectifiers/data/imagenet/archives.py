"""The official archives as untrusted files: their pins, and where their members lie. Nothing is
unpacked to disk."""

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from rectifiers.runtime.errors import InputError

ROLES = ("train", "val", "devkit")
HEADER_LIMIT = 1 << 20  # bytes of a tar's header (long names, pax records)
IMAGE_LIMIT = 1 << 26  # bytes of an image file; the largest of ImageNet has 15 MB
DEVKIT_LIMIT = 1 << 26  # bytes of the devkit, unpacked
DEVKIT_MEMBERS = 1000
READ_BYTES = 1 << 24  # at a time, of a whole archive


@dataclass(frozen=True)
class Archive:
    """One archive: its path, its pinned md5, and its size where that is known."""

    path: Path
    md5: str
    bytes: int | None


@dataclass(frozen=True)
class Expected:
    """The archives of a data set and their contents.

    class_images: the least and the most training images per class. class_val_images: validation
    images per class."""

    archives: Mapping[str, Archive]
    classes: int
    train_images: int
    val_images: int
    class_images: tuple[int, int]
    class_val_images: int


@dataclass(frozen=True)
class Member:
    """A file in an archive: its name, and the offset and number of its bytes."""

    name: str
    offset: int
    bytes: int


def read_expected(path: Path, text: str | None = None) -> Expected:
    """Read a file of pins and counts, such as `pipelines/imagenet/archives.yaml`.

    text: its content, where that is not the file's present one.

    Raises:
        InputError: where the file cannot be read.
    """
    try:
        content = yaml.safe_load(path.read_text() if text is None else text)
        archives = {
            role: Archive(Path(content["folder"]) / facts["file"], facts["md5"], facts["bytes"])
            for role, facts in ((role, content[role]) for role in ROLES)
        }
        counts: dict[str, Any] = {
            key: content[key] for key in ("classes", "train_images", "val_images")
        }
        least, most = content["class_images"]
        return Expected(
            archives,
            **counts,
            class_images=(least, most),
            class_val_images=content["class_val_images"],
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
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
                elif info.size < 0:
                    problem = f"claims {info.size:,} bytes"
                elif info.size > most_bytes:
                    problem = (
                        f"claims {info.size:,} bytes, more than the {most_bytes:,} that "
                        "such a file may have"
                    )
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


def read_gzipped_members(path: Path, names: Mapping[str, re.Pattern[str]]) -> dict[str, bytes]:
    """Return, for each key of `names`, the one file of a small .tar.gz whose name matches its
    pattern.

    Raises:
        InputError: where a file is missing, or the archive unpacks to more than DEVKIT_LIMIT bytes.
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
    file = io.BytesIO(content)
    inside = re.compile(r"(?!/)(?!(.*/)?\.\.(/|$)).+")
    members = list_members(
        file,
        path.name,
        inside,
        size=len(content),
        most=DEVKIT_MEMBERS,
        most_bytes=DEVKIT_LIMIT,
        folders=True,
    )
    contents: dict[str, bytes] = {}
    for key, pattern in names.items():
        matching = [member for member in members if pattern.fullmatch(member.name)]
        if len(matching) != 1:
            raise InputError(
                f"{path} has {len(matching)} files {pattern.pattern} and must have one; fetch "
                "it again"
            )
        contents[key] = read_member(file, path.name, matching[0])
    return contents
