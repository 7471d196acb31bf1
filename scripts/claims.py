"""Run the claims of conf/claim; `scripts/report.py claims` then writes their pages.

Examples:
  python scripts/claims.py list
  python scripts/claims.py run                              all runs that have no record yet
  python scripts/claims.py run cifar_figure3 dead_units --again   all runs of two, on this machine
  python scripts/claims.py search cifar_table2 data.root=data/cifar10
  python scripts/claims.py run cifar_table2 trainer=gpu data.num_workers=1 --jobs 8   on a GPU
"""

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rectifiers.claims.archive import claim_exclusion_reason, load, runs_of, search_runs
from rectifiers.claims.claims import FROM, Claim, claims, start_of
from rectifiers.cli.composition import compose_job, override
from rectifiers.cli.runner import run_all
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.provenance import is_changed
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import cli_errors, printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject

RESULTS = Path(__file__).parents[1] / "results" / "claims"
RUNS = Path("runs") / "claims"
# of a claim's runs beside its arm: W&B is not asked for hundreds of runs of seconds, and one thread
# gives equal bits
ALWAYS = ("logger=none", "threads=1")


def chosen(names: list[str], *, search: bool = False) -> list[Claim]:
    """Return the claims of these names, or all that have runs; with `search` those that have runs
    that choose learning rates."""
    known = {claim.name: claim for claim in claims()}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise InputError(f"{name} is not a claim that can be run; {meant}see `claims.py list`")
        if search and not known[name].search:
            raise InputError(
                f"{name} has no search; give conf/claim/{name}.yaml one, or call `claims.py run`"
            )
    wanted = [known[name] for name in names] if names else list(known.values())
    return [claim for claim in wanted if claim.search] if search else wanted


def planned(claim: Claim, search: bool) -> Iterable[tuple[str, Sequence[str], Sequence[int]]]:
    """Return name, overrides and seeds of a claim's arms; with `search` those of the runs that
    choose learning rates."""
    if not search:
        return [(arm, given, claim.seeds_of(arm)) for arm, given in claim.arms.items()]
    seeds = claim.search.seeds if claim.search else ()
    return [(name, given, seeds) for name, given in claim.searched().items()]


def outcome_of(overrides: Sequence[str]) -> tuple[str, JsonObject]:
    """Return the id of the run that `train.py <overrides>` would make, and what it would measure
    at the end. The id of a run that starts from weights is known once they are there."""
    config = compose_job(tuple(overrides))[0]
    source = config.init.from_weights
    if source is not None and (source / "record.json").exists():
        from rectifiers.training.from_weights import with_weights_content  # imports torch

        with suppress(InputError):  # which the run itself will say
            config = with_weights_content(config)
    return run_id(science(config)), config.as_dict()["evaluation"]


def missing(
    wanted: Iterable[Claim],
    runs: Path,
    more: Sequence[str] = (),
    *,
    again: bool,
    search: bool = False,
) -> dict[str, list[str]]:
    """Return the overrides of every run that is missing, by its name; two claims that share a run
    have one.

    more: further overrides of every run, which keep its id and its evaluation.

    Raises:
        InputError: for an override in `more` that changes either, also where no run is missing.
    """
    kept: list[TrainingRecord] = [] if again else load(RESULTS)
    is_committed = is_changed() is False
    jobs: dict[str, list[str]] = {}
    for claim in wanted:
        done = search_runs(claim, kept) if search else runs_of(claim, kept)
        for arm, overrides, seeds in planned(claim, search):
            always = (*ALWAYS, override("runs_dir", str(runs)))
            run = [f"claim={claim.name}", *overrides, *always]
            for seed in (seeds[0], seeds[-1]):
                _check_keeps(claim, [*run, f"seed={seed}"], more)

            for seed in seeds:
                if seed in done.get(arm, {}):
                    continue

                job = [*run, f"seed={seed}", *more]
                if start := start_of(overrides):
                    source = [f"claim={claim.name}", *claim.arms[start], *always, f"seed={seed}"]
                    folder = _add([*source, *more], runs, jobs, is_committed)
                    job.append(override(FROM.rstrip("="), str(folder)))
                _add(job, runs, jobs, is_committed)
    return jobs


def _add(job: list[str], runs: Path, jobs: dict[str, list[str]], is_committed: bool) -> Path:
    """Add a run to `jobs` by its name, unless its folder has a record that can be used; return the
    folder."""
    name = outcome_of(job)[0]
    path = runs / name / "record.json"
    if path.exists():
        # made again with uncommitted code, a run could not be used either
        reason = claim_exclusion_reason(records.load(path)) if is_committed else None
        if reason is None:
            return path.parent
        line = f"{path} cannot be used: {reason}; it is run again"
        print(printable(line), file=sys.stderr)
        job.append("rerun=true")
    jobs.setdefault(name, job)
    return path.parent


def _check_keeps(claim: Claim, run: Sequence[str], more: Sequence[str]) -> None:
    """Check that the overrides `more` keep what a run of the claim is and what it measures."""
    if more and outcome_of([*run, *more]) != outcome_of(run):
        raise InputError(
            f"{' '.join(more)} changes what a run of {claim.name} is or measures; leave out each "
            "override that does",
            status=2,
        )


def print_list(wanted: Iterable[Claim]) -> None:
    """Print the claims with the runs that are kept, and what these took."""
    table = Table("claim", "statement", "runs", "minutes")
    kept = load(RESULTS)
    for claim in wanted:
        done = [run for arm in runs_of(claim, kept).values() for run in arm.values()]
        runs = f"{len(done)} of {sum(len(claim.seeds_of(arm)) for arm in claim.arms)}"
        minutes = f"{sum(run.wall_s for run in done) / 60:.1f}" if done else "-"
        table.add_row(claim.name, claim.statement, runs, minutes)
    Console().print(table)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in (
        ("list", "print the claims, how many of their runs have records, and how long they took"),
        ("search", "make the missing runs of the searches for learning rates"),
        ("run", "make the missing runs that decide the claims"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        add = command.add_argument
        add("claim", nargs="*", help="names of claims (default: all)")
        if name != "list":
            text = "for every run, such as trainer=gpu; refused if it changes a result"
            add("override", nargs="*", help=text)
            text = "runs at a time (default: one per core; on a GPU, one)"
            add("--jobs", type=int, help=text)
            add("--again", action="store_true", help="also make runs that results/claims has")
            text = f"the folder of runs (default: {RUNS})"
            add("--runs", type=Path, default=RUNS, help=text)

    options, rest = parser.parse_known_args()
    if wrong := [word for word in rest if word.startswith("-")]:
        parser.error(f"unrecognized arguments: {' '.join(wrong)}")

    with cli_errors("interrupted; the same command continues"):
        words = [*options.claim, *rest]  # argparse leaves over those behind an option
        more = [word for word in words if options.command != "list" and "=" in word]
        is_search = options.command == "search"
        wanted = chosen([word for word in words if word not in more], search=is_search)
        if options.command == "list":
            return print_list(wanted)

        if is_changed():
            note = "the code has uncommitted changes, so these runs cannot enter results/claims"
            print(note, file=sys.stderr)
        jobs = missing(wanted, options.runs, more, again=options.again, search=is_search)
        print(f"missing runs: {len(jobs)}", file=sys.stderr)
        if not jobs and not options.again:
            print("--again repeats the runs that have records", file=sys.stderr)
        # the weights that a run starts from are there before it
        later = {name for name, job in jobs.items() if start_of(job)}
        failures = run_all([tuple(job) for n, job in jobs.items() if n not in later], options.jobs)
        if later:
            failures |= run_all([tuple(jobs[name]) for name in sorted(later)], options.jobs)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
