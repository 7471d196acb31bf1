"""The block of the README that follows from a committed record."""

import io
import lzma
from pathlib import Path

from rich.console import Console

from rectifiers.results.console import print_record
from rectifiers.results.generated import filled
from rectifiers.runs import record as records

WIDTH = 80  # columns of a printed run
FIRST_RUN = "make_train.json.xz"  # below results/


def render(document: str, results: Path) -> str:
    """Return the README with its block made from the record in `results`."""
    return filled(document, "make train", f"```\n{first_run(results)}\n```\n")


def first_run(results: Path) -> str:
    """Return what `make train` printed, from the record of that run."""
    record = records.parse(lzma.decompress((results / FIRST_RUN).read_bytes()))
    printed = io.StringIO()
    print_record(record, Console(file=printed, width=WIDTH))
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join([*lines, f"runs/{record.run}/record.json"])
