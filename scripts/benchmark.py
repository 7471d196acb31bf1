"""The rectifier benchmark: a card for any activation and initialiser, and the leaderboard.
docs/benchmark.md says how.

python scripts/benchmark.py activation=mish              run what is missing of an entry, and write
                                                         its card
python scripts/benchmark.py activation=relu init=orthogonal   an initialiser, or both
python scripts/benchmark.py activation=relu activation._target_=my.module.X
python scripts/benchmark.py activation=mish size=full trainer=gpu data.root=<folder>
python scripts/benchmark.py leaderboard                  make the leaderboard and the cards from
                                                         results/benchmark/
python scripts/benchmark.py check                        do results and leaderboard fit benchmark,
                                                         code and data?

size=quick (the default) is ten minutes on two cores. An interrupted call goes on where it was.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_args
from xml.sax.saxutils import escape

from rich.markdown import Markdown

from rectifiers.cli.benchmark import Entry, work
from rectifiers.cli.benchmark_card import measure
from rectifiers.cli.benchmark_check import check
from rectifiers.cli.composition import all_keys
from rectifiers.cli.hints import check_arguments
from rectifiers.results.benchmark import card as cards
from rectifiers.results.benchmark import card_index, card_page
from rectifiers.results.benchmark.card_figure import description, figure
from rectifiers.results.benchmark.definition import Size, benchmark
from rectifiers.results.benchmark.entries import EntryResults, load, load_all, path_of, save
from rectifiers.results.benchmark.leaderboard import render_markdown
from rectifiers.results.figures import write_svg
from rectifiers.results.generated import refuse_stale, stale_files, write_or_check
from rectifiers.runs.provenance import is_changed
from rectifiers.runtime.console import wide_stdout
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.programs import cli_errors
from rectifiers.runtime.signals import INTERRUPTED

RESULTS = Path(__file__).parents[1] / "results"
LEADERBOARD = "python scripts/benchmark.py leaderboard"  # what writes all of these pages
IMAGE = re.compile(
    r"^!\[.*\n\n", re.MULTILINE
)  # a figure in Markdown, which a terminal does not show
KINDS = (".md", ".svg", ".json")  # of a card's files


def run(arguments: list[str], jobs: int | None, results: Path) -> None:
    """Run an entry in `jobs` processes (None: one per free core) and keep its results."""
    sizes = [each.removeprefix("size=") for each in arguments if each.startswith("size=")] or [
        "quick"
    ]
    if sizes[-1] not in get_args(Size):
        raise InputError(f"size={sizes[-1]} is not known; give one of: {', '.join(get_args(Size))}")
    given = [each for each in arguments if not each.startswith("size=")]
    check_arguments(given, all_keys)
    entry = Entry.of(given)
    if is_changed():
        print(
            "the code is not committed: the leaderboard will not take in what runs now",
            file=sys.stderr,
        )
    found = work(entry, sizes[-1], jobs)
    save(results / "benchmark", with_other_sizes(results, found))
    cards.save(results / "cards", measure(entry))
    entries = load_all(results / "benchmark")
    path = write_card(results, entry.name, entries)
    wide_stdout().print(Markdown(IMAGE.sub("", path.read_text())))
    for each in (
        path_of(results / "benchmark", entry.name),
        *(path.with_suffix(kind) for kind in KINDS),
    ):
        print(each)


def with_other_sizes(results: Path, found: EntryResults) -> EntryResults:
    """Return an entry's results with those that its file has of tasks of another size."""
    path = path_of(results / "benchmark", found.entry)
    return found.joined(load(path)) if path.is_file() else found


def write_card(results: Path, entry: str, entries: Mapping[str, EntryResults]) -> Path:
    """Write the card of an entry from its records, Markdown and figure; return the Markdown's
    path."""
    card, path = cards.load(results / "cards" / f"{entry}.json"), results / "cards" / f"{entry}.md"
    said = description(card, entries[entry], entries)
    write_svg(
        figure(benchmark(), card, entries[entry], entries), path.with_suffix(".svg"), entry, said
    )
    write_text(path, card_text(path, entries))
    return path


def card_text(path: Path, entries: Mapping[str, EntryResults]) -> str:
    """Return what the card at `path` is to say as Markdown."""
    card = cards.load(path.with_suffix(".json"))
    read = cards.chapters(benchmark(), card, entries[path.stem], entries)
    return card_page.render_markdown(benchmark(), card, read)


def stale_card(path: Path, entries: Mapping[str, EntryResults]) -> list[Path]:
    """Return the committed files of a card that are not what its records say."""
    drawn = path.with_suffix(".svg")
    said = description(cards.load(path.with_suffix(".json")), entries[path.stem], entries)
    if not drawn.is_file() or f">{escape(said)}<" not in drawn.read_text():
        return [drawn]
    return stale_files({path: card_text(path, entries)})


def checked_entries(results: Path) -> dict[str, EntryResults]:
    """Return the entries in `results`, by name.

    Raises:
        InputError: where one is not of this benchmark, or a card is unusable or has no entry.
    """
    entries = load_all(results / "benchmark")
    for stem, found in entries.items():
        check(found, stem)
    for path in (results / "cards").glob("*.json"):
        cards.load(path)
        if path.stem not in entries:
            raise InputError(
                f"{path} is the card of an entry that has no results; run the entry, or remove it"
            )
    return entries


def card_paths(results: Path) -> list[Path]:
    """Return the Markdown of every card whose measured numbers are there."""
    return [path.with_suffix(".md") for path in sorted((results / "cards").glob("*.json"))]


def pages(results: Path, entries: Mapping[str, EntryResults]) -> dict[Path, str]:
    """Return the documents that have all entries."""
    names = [path.stem for path in card_paths(results)]
    return {
        results / "benchmark" / "LEADERBOARD.md": render_markdown(benchmark(), entries, names),
        results / "benchmark" / "CARDS.md": card_index.render_markdown(benchmark(), names, entries),
    }


def no_entries(results: Path) -> str:
    """Return what there is to say of a folder without entries."""
    command = "python scripts/benchmark.py activation=<name>"
    return f"{results / 'benchmark'} has no entries of {benchmark().version}; {command} makes one"


def write_leaderboard(results: Path) -> None:
    """Write LEADERBOARD.md, CARDS.md and the cards (ReLU and PReLU stand in each) from results that
    `check` takes."""
    if not (entries := checked_entries(results)):
        print(no_entries(results))
        return
    for path in card_paths(results):
        write_card(results, path.stem, entries)
    texts = pages(results, entries)
    write_or_check(texts, False, LEADERBOARD)
    print(*texts, sep="\n")


def check_all(results: Path) -> None:
    """Refuse results that are not of this benchmark, and a leaderboard or cards that are not what
    they say."""
    if not (entries := checked_entries(results)):
        print(no_entries(results))
        return
    stale = stale_files(pages(results, entries))
    refuse_stale(
        [*stale, *(each for path in card_paths(results) for each in stale_card(path, entries))],
        LEADERBOARD,
    )
    print(f"{len(entries)} entries of benchmark {benchmark().version}")


def main() -> None:
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # before torch: threads wait asleep, and not spinning
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "arguments",
        nargs="+",
        metavar="key=value, leaderboard or check",
        help="an entry by its overrides (activation=, init=, their settings, size=, places), "
        "or a command alone",
    )
    parser.add_argument("--jobs", type=int, help="processes at a time (default: one per free core)")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help="the folder of results (default: the project's)",
    )
    asked = parser.parse_intermixed_args()
    try:
        with cli_errors():
            if asked.arguments == ["leaderboard"]:
                write_leaderboard(asked.results)
            elif asked.arguments == ["check"]:
                check_all(asked.results)
            else:
                run(asked.arguments, asked.jobs, asked.results)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it was", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
