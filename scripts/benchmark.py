"""The rectifier benchmark: a card for any activation and initialiser, and the leaderboard.
docs/benchmark.md says how.

python scripts/benchmark.py activation=mish              run what is missing of an entry, and write
                                                         its card
python scripts/benchmark.py activation=relu init=orthogonal   an initialiser, or both
python scripts/benchmark.py activation=relu activation._target_=my.module.X
python scripts/benchmark.py activation=mish size=full trainer=gpu data.root=<folder>
python scripts/benchmark.py leaderboard                  rank the entries in results/benchmark/
python scripts/benchmark.py check                        are they of this benchmark?

size=quick (the default) is ten minutes on two cores. An interrupted call goes on where it was.
"""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import get_args

from rectifiers.benchmark.definition import Entry, Size, benchmark
from rectifiers.benchmark.run import load, load_all, run_entry, save
from rectifiers.cli.composition import all_keys
from rectifiers.cli.hints import check_arguments
from rectifiers.runtime.console import cli_errors, wide_stdout
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.signals import INTERRUPTED

RESULTS = Path(__file__).parents[1] / "results"
IMAGE = re.compile(r"^!\[.*\n\n", re.MULTILINE)  # which a terminal does not show


def run(arguments: list[str], jobs: int | None, folder: Path) -> None:
    """Run an entry in `jobs` processes (None: one per free core); keep its results and its card in
    `folder`, and print the card."""
    sizes = [a.removeprefix("size=") for a in arguments if a.startswith("size=")] or ["quick"]
    if sizes[-1] not in get_args(Size):
        raise InputError(f"size={sizes[-1]} is not known; give one of: {', '.join(get_args(Size))}")
    overrides = [argument for argument in arguments if not argument.startswith("size=")]
    check_arguments(overrides, all_keys)
    entry = Entry.of(overrides)
    # here and not above: --help and refusals do without the extra `report`
    from rich.markdown import Markdown

    from rectifiers.benchmark.card import Card, measure
    from rectifiers.benchmark.ranking import BASELINES

    files = {name: folder / f"{name}.json" for name in BASELINES if name != entry.name}
    baselines = {name: load(path) for name, path in files.items() if path.is_file()}
    results = run_entry(entry, sizes[-1], jobs)
    path = save(folder, results)
    card = Card(results, baselines, *measure(entry))
    paths = [path, *card.write(folder)]
    wide_stdout().print(Markdown(IMAGE.sub("", card.markdown())))
    print(*paths, sep="\n")


def rank(folder: Path, check: bool) -> None:
    """Check the entries in a folder, and unless that is all, write the leaderboard beside them."""
    if not (entries := load_all(folder)):
        command = "python scripts/benchmark.py activation=<name>"
        print(f"{folder} has no entries of {benchmark().version}; {command} makes one")
    elif check:
        print(f"{len(entries)} entries of benchmark {benchmark().version}")
    else:
        from rectifiers.benchmark.ranking import leaderboard

        write_text(folder / "LEADERBOARD.md", leaderboard(entries))
        print(folder / "LEADERBOARD.md")


def main() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads sleep, not spin
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
    text = "the folder of results (default: the project's)"
    parser.add_argument("--results", type=Path, default=RESULTS, help=text)
    parsed = parser.parse_intermixed_args()
    folder = parsed.results / "benchmark"
    try:
        with cli_errors():
            if parsed.arguments in (["leaderboard"], ["check"]):
                rank(folder, parsed.arguments == ["check"])
            else:
                run(parsed.arguments, parsed.jobs, folder)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it was", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
