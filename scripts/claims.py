"""The claims' runs: what is missing is run; `scripts/report.py claims` tabulates.

Examples:
  python scripts/claims.py list
  python scripts/claims.py run                               what neither runs/ nor results/claims
                                                             has
  python scripts/claims.py run figure3 dead_units --again    all runs of two claims, on this machine
  python scripts/claims.py search cifar_table2 --root data/cifar10
"""

import argparse
import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rectifiers.claims.claims import Claim, claim_exclusion_reason, claims, runs_of, search_runs
from rectifiers.claims.records import load
from rectifiers.cli.composition import compose_job
from rectifiers.runner import run_all
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.provenance import is_changed
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.programs import cli_errors
from rectifiers.runtime.signals import INTERRUPTED

RESULTS = Path(__file__).parents[1] / "results" / "claims"
# of a claim's runs beside its arm: W&B is not asked for hundreds of runs of seconds, and one thread
# gives equal bits
ALWAYS = ("logger=none", "threads=1")


def chosen(names: list[str]) -> list[Claim]:
    """Return the claims of these names, or all that have runs."""
    known = {claim.name: claim for claim in claims() if claim.tests}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"{name} is not a claim that can be run; {meant}`claims.py list` prints all "
                f"{len(known)}"
            )
    return [known[name] for name in names] if names else list(known.values())


def missing(
    wanted: Iterable[Claim],
    runs: Path,
    *,
    again: bool,
    search: bool = False,
    places: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Return the overrides of every run that is missing, by its name; two claims that share a run
    have one.

    search: the runs that choose learning rates, instead of those that are judged. places: further
    overrides."""
    found = [] if again else load(RESULTS)
    committed = is_changed() is False
    jobs: dict[str, list[str]] = {}
    for claim in wanted:
        for given, seed in searched(claim, found) if search else judged(claim, found):
            overrides = [
                f"claim={claim.name}",
                *given,
                *ALWAYS,
                *places,
                f"runs_dir='{runs}'",
                f"seed={seed}",
            ]
            config, _ = compose_job(tuple(overrides))
            name = run_id(science(config))
            path = runs / name / "record.json"
            reason = (
                claim_exclusion_reason(records.load(path)) if committed and path.exists() else None
            )
            if reason:  # of code that was not committed, say
                print(f"{path} answers nothing, for {reason}; it is run again", file=sys.stderr)
                overrides.append("rerun=true")
            if reason or not path.exists():
                jobs.setdefault(name, overrides)
    return jobs


Runs = Iterator[tuple[Sequence[str], int]]  # overrides and seed


def judged(claim: Claim, found: Sequence[TrainingRecord]) -> Runs:
    """Yield the runs that the claim is judged by and `found` lacks."""
    there = runs_of(claim, found)
    for arm, given in claim.arms.items():
        yield from ((given, seed) for seed in claim.all_seeds() if seed not in there[arm])


def searched(claim: Claim, found: Sequence[TrainingRecord]) -> Runs:
    """Yield the runs that choose its learning rates and `found` lacks."""
    if claim.search is not None:
        there = search_runs(claim, found)
        for name, given in claim.searched().items():
            yield from (
                (given, seed) for seed in claim.search.seeds if seed not in there.get(name, {})
            )


def run(wanted: list[Claim], asked: argparse.Namespace) -> None:
    """Run what is missing, the cheapest first; leave with status 1 where a run failed."""
    if is_changed():
        print(
            "the code is not committed: results/claims will not take in what runs now",
            file=sys.stderr,
        )
    places = [] if asked.root is None else [f"data.root='{asked.root.absolute()}'"]
    runs = missing(
        wanted, asked.runs, again=asked.again, search=asked.command == "search", places=places
    )
    print(f"missing runs: {len(runs)}", file=sys.stderr)
    if run_all([tuple(overrides) for overrides in runs.values()], asked.jobs):
        sys.exit(1)


def print_list(wanted: Iterable[Claim]) -> None:
    """Print the claims with the runs that are kept, and what these took."""
    table = Table("claim", "statement", "runs", "minutes")
    found = load(RESULTS)
    for claim in wanted:
        there = [run for arm in runs_of(claim, found).values() for run in arm.values()]
        runs = f"{len(there)} of {claim.seeds * len(claim.arms)}"
        minutes = f"{sum(run.wall_s for run in there) / 60:.1f}" if there else "-"
        table.add_row(claim.name, claim.statement, runs, minutes)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(
        dest="command", required=True, title="commands", metavar="command"
    )
    for name, text in (
        (
            "list",
            "print the claims, how many of their runs are kept, and the minutes that these took",
        ),
        ("search", "make the missing runs that choose the arms' learning rates"),
        ("run", "make the missing runs that are judged"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("claim", nargs="*", help="some claims (default: all)")
        if name != "list":
            command.add_argument(
                "--jobs", type=int, help="processes at a time (default: one per free core)"
            )
            command.add_argument(
                "--again", action="store_true", help="also what results/claims has"
            )
            command.add_argument(
                "--root",
                type=Path,
                help="the folder of data that are not in the project: data.root",
            )
            command.add_argument(
                "--runs", type=Path, default=Path("runs"), help="the folder of runs (default: runs)"
            )
    asked = parser.parse_args()
    try:
        with cli_errors():
            wanted = chosen(asked.claim)
            print_list(wanted) if asked.command == "list" else run(wanted, asked)
    except KeyboardInterrupt:  # before the runs, or a second one
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
