"""The blocks of the README that follow from committed records."""

import io
import lzma
from pathlib import Path

from rich.console import Console

from rectifiers.results.benchmark.definition import benchmark
from rectifiers.results.benchmark.entries import load_all
from rectifiers.results.benchmark.leaderboard import board, overall
from rectifiers.results.console import print_record
from rectifiers.results.generated import filled
from rectifiers.results.layout import markdown
from rectifiers.runs import record as records

TOP = 6  # entries of the leaderboard
WIDTH = 80  # columns of a printed run
FIRST_RUN = "make_train.json.xz"  # below results/


def render(document: str, results: Path) -> str:
    """Return the README with its blocks made from the records in `results`."""
    with_run = filled(document, "make train", f"```\n{first_run(results)}\n```\n")
    return filled(with_run, "leaderboard", top_rows(results))


def first_run(results: Path) -> str:
    """Return what `make train` printed, from the record of that run."""
    record = records.parse(lzma.decompress((results / FIRST_RUN).read_bytes()))
    printed = io.StringIO()
    print_record(record, Console(file=printed, width=WIDTH))
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join([*lines, f"runs/{record.run}/record.json"])


def top_rows(results: Path) -> str:
    """Return the first rows of the leaderboard of the quick tasks."""
    found = board(benchmark(), load_all(results / "benchmark"), "quick")
    table = overall(found)
    rows = markdown(table.head, ([str(cell) for cell in line.cells] for line in table.lines[:TOP]))
    more = f"\nThe first {TOP} of {len(table.lines)} entries.\n" if len(table.lines) > TOP else ""
    return f"\n{rows}{more}\n"
