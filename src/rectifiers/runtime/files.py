"""Files: where the configuration and the checkout are, git, reading with bounds, and writing whole
or not at all."""

import errno
import hashlib
import os
import socket
import stat
import struct
import subprocess
import zipfile
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from rectifiers.runtime.errors import InputError

LARGEST_CONFIG = 2**24  # bytes
ZIP_END, ZIP64_END = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")
ZIP64_LOCATOR = struct.Struct("<4sLQL")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PACKAGE = Path(__file__).parents[1]
CHECKOUT = None if (PACKAGE / "conf").is_dir() else PACKAGE.parents[1]  # None: it is installed
CONF = (CHECKOUT or PACKAGE) / "conf"


def check_writable(key: str, folder: Path) -> None:
    """Refuse a place, which `key` gave, where no folder can be made, before the work that could not
    be kept."""
    places = (folder.absolute(), *folder.absolute().parents)
    nearest = next(filter(os.path.lexists, places))  # a link to nothing included
    is_writable = os.access(nearest, os.W_OK | os.X_OK)
    if not os.path.isdir(nearest) or not is_writable:
        raise InputError(
            f"{key}={folder} cannot be written, for {nearest} is no folder that can be; give "
            "another"
        )


def _open_no_link(place: str, flags: int) -> int:
    return os.open(place, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Let an OSError of the body say that it is about `path`, where it names no file: that of a
    full disk does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing and move it there at the end: a kill leaves the old
    file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # of this host and process: the folder may be shared
    part = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        with errors_naming(path), open(part, "wb", opener=_open_no_link) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


def read_bytes(path: Path, largest: int) -> bytes:
    """Read a file that anybody may have made: a regular one of at most `largest` bytes, and no
    symbolic link; an OSError where it is something else."""
    # without O_NONBLOCK, opening a pipe would wait for its writer
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        content = opened.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest:,} bytes")
    return content


def file_digest(path: Path) -> str:
    """Return a hash of a regular file's bytes, 32 hex digits."""
    if not os.path.isfile(path):
        raise FileNotFoundError(errno.ENOENT, "it is not a file", str(path))
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def refuse_link(place: Path) -> None:
    """Refuse a folder that anybody may have made a symbolic link to anywhere, before it is written
    to."""
    if os.path.islink(place):
        raise InputError(f"{place} is a symbolic link, which is not followed")


def load_yaml(text: str) -> Any:
    """Return the values of a YAML text of this package or of its results, by libyaml where it is
    there, which takes a tenth of the time."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class _PlainLoader(yaml.SafeLoader):
    """Reads plain YAML: aliases, which can stand for any amount of data, tags, and keys given twice
    are errors."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"an alias in line {line}")
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError(f"a tag in line {line}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise yaml.YAMLError(
                f"a key stands twice in the mapping of line {node.start_mark.line + 1}"
            )
        return mapping


def read_yaml(path: Path) -> Any:
    """Read the YAML of a file that anybody may have made; a ValueError where it is not of plain
    values. See `read_bytes`."""
    try:
        return yaml.load(read_bytes(path, LARGEST_CONFIG), _PlainLoader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_torch_zip(path: Path) -> bool:
    """Return whether torch reads a file as a zip file; it looks at the first bytes alone."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def check_zip(path: Path) -> None:
    """Read a zip file that torch wrote to its end; a BadZipFile where a part is not what was
    written. Other damage has other exceptions."""
    if path.is_symlink() or not path.is_file():
        raise zipfile.BadZipFile("it is no regular file")
    with open(path, "rb") as file, zipfile.ZipFile(file) as zip_file:
        parts = zip_file.infolist()
        _check_directory(file, parts)
        _check_parts(parts)
        if (damaged := zip_file.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {damaged} does not fit")


def _check_parts(parts: Sequence[zipfile.ZipInfo]) -> None:
    """Raise a BadZipFile where two parts have one name, or one is not as torch writes it."""
    names = {part.orig_filename.lower() for part in parts}  # torch ignores the case
    if len(names) < len(parts):
        raise zipfile.BadZipFile("two parts have one name")

    for part in parts:
        # a compressed part may unpack to any size
        is_stored = part.compress_type == zipfile.ZIP_STORED
        has_its_size = part.compress_size == part.file_size
        has_its_name = part.filename == part.orig_filename
        # torch takes a part with attributes for a folder, and returns uninitialised memory for it
        is_file = not part.external_attr
        if not (is_stored and has_its_size and has_its_name and is_file):
            raise zipfile.BadZipFile(f"{part.filename} is no part that torch writes")


def _check_directory(file: IO[bytes], parts: Sequence[zipfile.ZipInfo]) -> None:
    """Raise a BadZipFile where a zip file could have another directory for torch than for Python:
    torch believes the offsets of the end records, and Python their places."""
    file.seek(0, os.SEEK_END)
    end = file.tell() - ZIP_END.size
    file.seek(max(0, end - ZIP64_LOCATOR.size - ZIP64_END.size))
    tail = file.read()

    signature, *_, count, length, offset, _ = ZIP_END.unpack(tail[-ZIP_END.size :])
    is_whole = signature == b"PK\x05\x06"

    # a zip file with numbers of 64 bits has two more records before it
    locator = tail[: -ZIP_END.size][-ZIP64_LOCATOR.size :]
    if locator.startswith(b"PK\x06\x07"):
        end -= ZIP64_LOCATOR.size + ZIP64_END.size
        is_whole &= ZIP64_LOCATOR.unpack(locator)[2] == end
        signature, *_, count, length, offset = ZIP64_END.unpack(tail[: ZIP64_END.size])
        is_whole &= signature == b"PK\x06\x06"

    is_whole &= offset + length == end and count == len(parts)
    starts_with_a_part = min((part.header_offset for part in parts), default=0) == 0
    if not is_whole or not starts_with_a_part:
        raise zipfile.BadZipFile("its directory is not where a zip file of torch has it")


def git(*arguments: str, at: Path) -> str | None:
    """Return the output of a git command in a folder, or None where it fails or git is not
    installed."""
    command = ["git", "--no-optional-locks", "-C", str(at), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def root_folder(root: str | None) -> Path:
    """Return the folder `data.root`, which must be there, or `data/`."""
    if root is not None and not Path(root).is_dir():
        raise InputError(
            f"data.root={root} is not a folder; create it, or leave data.root out to use data/"
        )
    return Path(root or "data")
