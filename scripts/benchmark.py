"""Benchmark an activation, an initialiser, or both; see docs/benchmark.md.

python scripts/benchmark.py activation=mish                   run an activation and write its card
python scripts/benchmark.py activation=relu init=orthogonal   an initialiser
python scripts/benchmark.py activation=my_file.my_function    your own function; or torch.nn.X
python scripts/benchmark.py activation=mish size=full trainer=gpu data.root=<folder>
python scripts/benchmark.py leaderboard                       rank results/benchmark/, judge
                                                              shortcuts, and list all runs
python scripts/benchmark.py check                             check that results follow the rules,
                                                              and pages from them

size=quick, the default, takes 10 to 15 minutes on two cores. If a call is interrupted, repeat it
to continue.
"""

import argparse
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from rectifiers.benchmark.definition import SIZES, Entry, benchmark
from rectifiers.benchmark.entries import EntryResults, load, load_all, save
from rectifiers.benchmark.run import check_available, run_entry
from rectifiers.cli.hints import check_arguments
from rectifiers.runs.provenance import is_changed
from rectifiers.runtime.console import cli_errors, say, wide_stdout
from rectifiers.runtime.errors import InputError

RESULTS = Path(__file__).parents[1] / "results"
RUNS = "runs.csv"
IMAGE = re.compile(r"^!\[.*\n\n", re.MULTILINE)  # which a terminal does not show


def run(parsed: argparse.Namespace, folder: Path) -> None:
    """Print the theory of an entry, run it, keep its results and its card in `folder`, and print
    the card."""
    arguments = parsed.arguments
    sizes = [a.removeprefix("size=") for a in arguments if a.startswith("size=")] or ["quick"]
    if sizes[-1] not in SIZES:
        raise InputError(f"size={sizes[-1]} is not known; give one of: {', '.join(SIZES)}")
    overrides = [argument for argument in arguments if not argument.startswith("size=")]
    size, entry = sizes[-1], Entry.of(overrides)
    check_arguments([*entry.overrides, *entry.places])
    check_available(entry, size)
    entries = load_all(folder, but=entry.name, are_runs_checked=False)  # `check` composes them

    # here and not above: --help and refusals do without the extra `report`, and without torch
    from rich.markdown import Markdown

    from rectifiers.benchmark.card import Card, better_start, measure, tasks_to_start_better

    parts, failed = measure(entry, ["theory"])
    if "theory" in parts:
        for line in parts["theory"]["words"].splitlines():
            say(line)
    own, before = folder / f"{entry.name}.json", None
    if own.exists():
        with suppress(InputError):  # one that is of no use is replaced
            before = load(own)
    say_if_changed()
    keep = partial(save, folder)  # before all else, which may be interrupted
    results = run_entry(entry, size, parsed.jobs, before, is_whole=parsed.all, keep=keep)
    save(folder, results)
    better, tasks = None, tasks_to_start_better(results, size)
    if size != "late" and tasks and (other := better_start(entry, parts.get("theory", {}))):
        earlier = entries.get(other.name)
        better = run_entry(other, size, parsed.jobs, earlier, only=tasks)

    measured, unmeasured = measure(entry, ["init", "cost"])
    parts, failed = {**parts, **measured}, {**failed, **unmeasured}
    if "cost" in parts:
        results = results.model_copy(update={"cost": parts["cost"]["seconds_ratio"]["median"]})
    path = save(folder, results)
    command = parsed.command or shlex.join(["python", *sys.argv])
    card = Card(results, entries, parts, failed, command, better)
    paths = [path, *card.write(folder)]
    wide_stdout().print(Markdown(IMAGE.sub("", card.markdown())))
    print(*paths, sep="\n")


def say_if_changed() -> None:
    if is_changed():
        note = "the code has uncommitted changes, so the leaderboard cannot take this entry"
        print(note, file=sys.stderr)


def rank(folder: Path, command: str) -> None:
    """Check the entries in a folder, and write the pages that are made of them, or compare them."""
    entries = load_all(folder)
    if not entries:
        example = "python scripts/benchmark.py activation=<name>"
        print(f"{folder} has no entries of {benchmark().version}; {example} makes one")
        return

    for name, results in entries.items():
        if reason := results.objection():
            raise InputError(f"{folder / name}.json: {reason}")
    write_pages(folder, entries, check=command == "check")
    if command == "check":
        print(f"{len(entries)} entries of benchmark {benchmark().version}")


def write_pages(folder: Path, entries: Mapping[str, EntryResults], check: bool) -> None:
    """Write the list of all runs into the folder of entries, and the leaderboard and what shortcuts
    cost beside it; or with `check` refuse those that do not follow from the entries."""
    from rectifiers.benchmark import cheaper
    from rectifiers.benchmark.leaderboard import leaderboard, runs_csv
    from rectifiers.results.documents import write_or_check, write_svg

    runs = runs_csv(entries)
    digest = hashlib.sha256(runs.encode()).hexdigest()
    texts = {
        folder / RUNS: runs,
        folder / f"{RUNS}.sha256": f"{digest}  {RUNS}\n",
        folder.parent / "LEADERBOARD.md": leaderboard(entries, digest),
    }
    shortcuts = cheaper.page(entries)
    if shortcuts is not None:
        texts[folder.parent / "SHORTCUTS.md"], figure = shortcuts
    write_or_check(texts, check, "python scripts/benchmark.py leaderboard")
    if check:
        return

    if shortcuts is not None:
        write_svg(figure, folder / "shortcuts.svg", "shortcuts")
    print(*texts, sep="\n")


def main() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads sleep, not spin
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "arguments",
        nargs="+",
        metavar="argument",
        help="activation=, init=, their settings, size=, and keys such as trainer= and data.root=; "
        "or a command alone",
    )
    text = "runs at a time (default: one per core; on a GPU, one)"
    parser.add_argument("--jobs", type=int, help=text)
    text = "run what a card does without after a failed search, which the leaderboard asks for"
    parser.add_argument("--all", action="store_true", help=text)
    text = "what the card names as its command (default: this one)"
    parser.add_argument("--command", help=text)
    text = "the folder of results (default: the project's)"
    parser.add_argument("--results", type=Path, default=RESULTS, help=text)

    parsed = parser.parse_intermixed_args()
    folder = parsed.results / "benchmark"

    with cli_errors("interrupted; the same command continues"):
        words = [word for word in parsed.arguments if "=" not in word]
        if parsed.arguments in (["leaderboard"], ["check"]):
            rank(folder, *parsed.arguments)
        elif words:
            raise InputError(
                f"{words[0]} is not a command to use here; give leaderboard or check alone, or an "
                "entry such as activation=mish",
                status=2,
            )
        else:
            run(parsed, folder)


if __name__ == "__main__":
    main()
