"""The rectifier benchmark: a card for any activation and initialiser, and the leaderboard. docs/benchmark.md says how.

python scripts/benchmark.py activation=mish              run what is missing of an entry, and write its card
python scripts/benchmark.py activation=relu init=lsuv    an initialiser, or both
python scripts/benchmark.py activation=relu activation._target_=my.module.X
python scripts/benchmark.py activation=mish size=full compute=one_gpu data.root=<folder>
python scripts/benchmark.py leaderboard                  make results/LEADERBOARD.md from results/benchmark
python scripts/benchmark.py check                        do results and leaderboard fit benchmark, code and data?

size=quick (the default) is ten minutes on two cores. An interrupted call goes on where it was.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from rectifiers.cli.benchmark import Entry, work
from rectifiers.cli.benchmark_check import check
from rectifiers.cli.refusals import check_arguments
from rectifiers.results.benchmark.definition import Size, benchmark
from rectifiers.results.benchmark.entries import load_all, save
from rectifiers.results.benchmark.leaderboard import render_markdown
from rectifiers.runs.provenance import is_changed
from rectifiers.runtime.distributed import LAUNCHER
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.programs import one_sentence
from rectifiers.runtime.signals import INTERRUPTED

RESULTS = Path(__file__).parents[1] / "results"


def run(arguments: list[str], jobs: int, results: Path, first: int) -> None:
    """Run an entry in `jobs` processes and keep its results; a process that only helps begins with task `first`."""
    sizes = [each.removeprefix("size=") for each in arguments if each.startswith("size=")] or ["quick"]
    if sizes[-1] not in get_args(Size):
        raise InputError(f"size={sizes[-1]} is not known; give one of: {', '.join(get_args(Size))}")
    given = [each for each in arguments if not each.startswith("size=")]
    check_arguments(given)
    entry = Entry.of(given)
    if first:
        work(entry, sizes[-1], first)
        return
    if is_changed():
        print("the code is not committed: the leaderboard will not take in what runs now", file=sys.stderr)
    with helped(arguments, jobs - 1):
        found = work(entry, sizes[-1])
    print(save(results / "benchmark", found))


@contextmanager
def helped(arguments: list[str], helpers: int) -> Iterator[None]:
    """Let other processes work on the same entry in the body; they end with it, or with this process."""
    command = [sys.executable, str(Path(__file__).absolute()), *arguments, "--first"]
    environment = {**os.environ, LAUNCHER: str(os.getpid())}
    running = [
        subprocess.Popen([*command, str(number)], env=environment, start_new_session=True)
        for number in range(1, helpers + 1)
    ]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def write_leaderboard(results: Path) -> None:
    """Write results/LEADERBOARD.md."""
    path = results / "LEADERBOARD.md"
    write_text(path, render_markdown(benchmark(), load_all(results / "benchmark")))
    print(path)


def check_all(results: Path) -> None:
    """Refuse results that are not of this benchmark, and a leaderboard that is not what they say."""
    entries = load_all(results / "benchmark")
    for stem, found in entries.items():
        check(found, stem)
    path = results / "LEADERBOARD.md"
    if not path.is_file() or path.read_text() != render_markdown(benchmark(), entries):
        raise InputError(f"{path} is not what the results say; call python scripts/benchmark.py leaderboard")
    print(f"{len(entries)} entries of benchmark {benchmark().version}")


def main() -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads wait asleep, and not spinning
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arguments", nargs="+", metavar="key=value, leaderboard or check")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of results (default: the project's)")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_intermixed_args()
    try:
        with one_sentence():
            if asked.arguments == ["leaderboard"]:
                write_leaderboard(asked.results)
            elif asked.arguments == ["check"]:
                check_all(asked.results)
            else:
                run(asked.arguments, asked.jobs, asked.results, asked.first)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
