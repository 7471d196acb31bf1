"""Photographs that travel to another machine in pieces: archives below a size, with digests.

Examples:
  python studies/gpu/pieces.py pack data/tiny pieces --mib 28
  python studies/gpu/pieces.py unpack pieces data/tiny    again for each piece that arrives
"""

import argparse
import gzip
import hashlib
import json
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from rectifiers.runtime.console import cli_errors, say
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import atomic_file, write_text

MIB = 2**20
MARGIN = MIB  # more than what tarfile and gzip hold of a piece before they write it
INDEX = "pieces.json"  # digests of all pieces by name
UNPACKED = ".unpacked.json"  # and of those that are unpacked
SUFFIX, ANNOTATIONS = ".JPEG", "val_annotations.txt"  # the latter of the official folder


def pack(photographs: Path, pieces: Path, largest: int) -> None:
    """Write the photographs below `train` and `val` as archives of less than `largest` bytes, and
    an index with the digest of each. Equal photographs give equal bytes."""
    paths = [path for part in ("train", "val") for path in sorted((photographs / part).rglob("*"))]
    paths = [path for path in paths if path.suffix == SUFFIX or path.name == ANNOTATIONS]
    if not paths:
        raise InputError(f"{photographs} has no photographs in train/ and val/; give their folder")

    pieces.mkdir(parents=True, exist_ok=True)
    index: dict[str, str] = {}
    while paths:
        piece = pieces / f"piece-{len(index):02d}.tar.gz"
        with (
            atomic_file(piece) as file,
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w|") as archive,
        ):
            is_full = False
            while paths and not is_full:
                path = paths.pop(0)
                member = tarfile.TarInfo(path.relative_to(photographs).as_posix())
                member.size = path.stat().st_size
                archive.addfile(member, BytesIO(path.read_bytes()))
                is_full = file.tell() > largest - MARGIN

        index[piece.name] = digest(piece)
        say(f"{piece}: {piece.stat().st_size / MIB:.1f} MiB, {len(paths):,} photographs left")
    write_text(pieces / INDEX, json.dumps(index, indent=1) + "\n")


def unpack(pieces: Path, photographs: Path) -> list[str]:
    """Unpack the pieces that are there and were not unpacked earlier; return the names of those
    that are missing."""
    try:
        index = json.loads((pieces / INDEX).read_text())
    except (OSError, ValueError) as error:
        remedy = "copy it beside the pieces of each call"
        raise unreadable(pieces / INDEX, error, remedy) from error

    done = photographs / UNPACKED
    unpacked = json.loads(done.read_text()) if done.exists() else {}
    for name, expected in index.items():
        piece = pieces / name
        if unpacked.get(name) == expected or not piece.exists():
            continue
        if digest(piece) != expected:
            raise InputError(f"{piece} is not what was packed; copy it again")
        with tarfile.open(piece, "r:gz") as archive:
            if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(photographs)
        unpacked[name] = expected
        write_text(done, json.dumps(unpacked, indent=1) + "\n")
        say(f"{name} is unpacked")
    return [name for name, expected in index.items() if unpacked.get(name) != expected]


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    steps = parser.add_subparsers(dest="step", required=True, metavar="step")
    step = steps.add_parser("pack", help="write the photographs as archives with digests")
    step.add_argument("photographs", type=Path)
    step.add_argument("pieces", type=Path)
    step.add_argument("--mib", type=int, default=48, help="largest archive, in MiB (default: 48)")
    step = steps.add_parser("unpack", help="unpack the archives that are there")
    step.add_argument("pieces", type=Path)
    step.add_argument("photographs", type=Path)
    options = parser.parse_args()

    with cli_errors("interrupted; the same command continues"):
        if options.step == "pack":
            return pack(options.photographs, options.pieces, options.mib * MIB)
        missing = unpack(options.pieces, options.photographs)
        print(f"missing: {', '.join(missing)}" if missing else "all pieces are unpacked")
        sys.exit(bool(missing))
    return None


if __name__ == "__main__":
    main()
