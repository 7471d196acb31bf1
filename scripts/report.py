"""Show runs, and write tables, claims and reports from their records.

Examples:
  python scripts/report.py show activation=prelu,relu data=digits protocol=dense
  python scripts/report.py diff 0a3802792865 317e1d627db5
  python scripts/report.py classes 04c5e2d306e0 data.root=data/imagenette

With --json every command prints its result as JSON.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, update_wrapper
from os.path import isdir
from pathlib import Path
from typing import Any

from rectifiers.claims import archive as claim_records
from rectifiers.cli.pages import (
    Outcome,
    claim_runs,
    claim_runs_of_tables,
    write_claims,
    write_readme,
    write_tables,
)
from rectifiers.results import class_errors, documents, listing, tables
from rectifiers.results.frame import CLAIM, exclusion_reason, experiment_of
from rectifiers.runs import record as records
from rectifiers.runs.folder import record_paths
from rectifiers.runtime.console import cli_errors, ignore_broken_pipe, say
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import refuse_link, write_text
from rectifiers.runtime.machine import no_garbage_collection

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
RUNS = Path("runs")
# of committed files, beside PAGES; each names what differs, and the command to write it
CHECKS = (
    "scripts/benchmark.py check",
    "studies/language_model_page.py --check",
    "studies/performance.py --check",
    "studies/starts_page.py --check",
)


def show(runs: Path, filters: list[str], every: bool) -> Outcome:
    """Print the runs that match the filters, the newest first, with their test errors."""
    selected = listing.select(known_runs(runs, nested=every), filters)
    protocols = [text.partition("=")[2] for text in filters if text.startswith("protocol=")]
    usual = listing.usual_protocol(selected)
    protocol = protocols[-1].partition(",")[0] if protocols else usual
    rows = listing.summaries(selected, protocol)
    return rows, listing.runs_table(rows, protocol)


def diff(runs: Path, A: str, B: str) -> Outcome:  # noqa: N803 as --help shows them
    """Print what differs between two runs."""
    known = known_runs(runs)
    pair = listing.find(known, A), listing.find(known, B)
    comparison = listing.compare(*(run.record for run in pair))
    if len(set(comparison["runs"])) == 1:
        comparison["runs"] = [f"{run.record.run} ({run.origin})" for run in pair]
    return comparison, listing.comparison_table(comparison)


def classes(
    runs: Path,
    run: str,
    settings: list[str],
    compare: list[str] | None,
    protocol: str | None,
) -> Outcome:
    """Print a run's errors by class from its kept scores, what PReLU changes of them over seeds,
    and the largest confusions; draw into its folder the failures that it was most sure of."""
    from rectifiers.cli.finished import check_free, split_trust

    trust, arguments = split_trust(settings)
    values = {key: value for key, _, value in (text.partition("=") for text in arguments)}
    check_free(values)
    known = known_runs(runs)
    found = listing.find(known, run)
    test = class_errors.load_test(found, protocol)

    arms = None
    if compare:
        known += [listing.Run(record, RESULTS / "claims") for record in claim_runs(RESULTS)]
        first, second = (class_errors.training(listing.find(known, name)) for name in compare)
        arms = (first, second)
    numbers, words = class_errors.report(test, [run.record for run in known], arms)

    place = found.path.with_name("failures.svg")
    is_drawn = draw_failures(found.path.parent, place, test.data, numbers, values, trust)
    numbers["picture"] = str(place) if is_drawn else None
    return numbers, f"{words}\n{place}" if is_drawn else words


def draw_failures(
    folder: Path,
    place: Path,
    data: str,
    numbers: Any,
    values: dict[str, str],
    trust: tuple[str, ...],
) -> bool:
    """Draw the failures of the run in `folder`, which was tested on data with the hash `data`;
    return whether the data are there, and print what is missing."""
    from rectifiers.cli.finished import of_run

    refuse_link(folder)  # it may be anybody's
    try:
        config, _, _ = of_run(str(folder.resolve()), values, trust)
        from rectifiers.analysis import failures  # here: it loads torch

        shown = numbers["failures"]
        images = failures.photographs(config, data, [failure["image"] for failure in shown])
    except InputError as error:
        say(f"no picture: {error}")
        return False

    title = f"{numbers['run']}, {numbers['protocol']}: the failures that it was most sure of"
    documents.write_svg(failures.draw(images, shown, title), place, numbers["run"])
    return True


def known_runs(runs: Path, *, nested: bool = True) -> list[listing.Run]:
    """Return the collected runs and those of `runs`; with `nested` those in folders within, too."""
    check_runs(runs)
    return listing.gather(RESULTS / "records", runs, nested=nested)


def check_runs(runs: Path) -> None:
    """Refuse a folder that was given and is not there; without one, there may be no runs yet."""
    if runs != RUNS and not isdir(runs):
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")


def collect(runs: Path) -> Outcome:
    """Copy finished runs of experiments and claims to results/, and name those left out with the
    reason."""
    check_runs(runs)
    copied, of_claims, left_out = [], [], {}
    taken: dict[str, Path] = {}  # by the run's name, which copies in folders within have, too
    for path in record_paths(runs):
        try:
            record = records.load(path)
            is_of_claim = str(experiment_of(record.trainings[0].choices)).startswith(CLAIM)
            find_reason = claim_records.claim_exclusion_reason if is_of_claim else exclusion_reason
            reason = find_reason(record)
            if not reason and record.run in taken:
                reason = f"{taken[record.run]} is of the same run"
        except InputError as error:  # the others are copied all the same
            reason = str(error)

        if reason:
            left_out[str(path)] = reason
            say(f"left out {path}: {reason}")
            continue
        taken[record.run] = path
        if is_of_claim:
            of_claims.append(record)
        else:
            place = RESULTS / "records" / f"{record.run}.json"
            records.write(place, record)
            copied.append(str(place))

    claim_records.add(RESULTS / "claims", of_claims)
    added = [record.run for record in of_claims]
    return {"copied": copied, "claims": added, "left_out": left_out}, "\n".join([*copied, *added])


def wandb_report(
    project: str, entity: str | None, table: str | None, out: Path | None, with_claims: bool
) -> Outcome:
    """Write the W&B report of the collected runs, to W&B or to a file."""
    from rectifiers.results import wandb_report as report  # here: its import takes seconds

    ids = Path(".cache") / "wandb_reports.json"
    if out is None:
        report.check_account(ids.parent)  # before the records, which take seconds to read
    found = tables.load(RESULTS / "records") + (
        claim_runs_of_tables(RESULTS) if with_claims else []
    )
    if out is None:
        place = report.save(found, entity=entity, project=project, group=table, kept=ids)
    else:
        built = report.build(found, entity=entity or "entity", project=project, group=table)
        write_text(out, json.dumps(report.specification(built), indent=1) + "\n")
        place = str(out)
    return {"path": place}, place


# what this program writes from the same records, by the command's name
PAGES = {
    name: update_wrapper(partial(write, RESULTS), write)  # with its docstring, for --help
    for name, write in {
        "claims": write_claims,
        "tables": write_tables,
        "readme": write_readme,
    }.items()
}


def check_all() -> Outcome:
    """Compute each committed result again, and name the files that differ."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        running = {command: threads.submit(failure_of, command) for command in CHECKS}
        # in this process, because reading the records takes longer than each of these pages
        errors = {f"scripts/report.py {name} --check": stale(page) for name, page in PAGES.items()}
        errors |= {command: done.result() for command, done in running.items()}
    found = {command: error for command, error in errors.items() if error}
    lines = [f"{command}: {error}" for command, error in found.items()]
    return {"stale": found}, "\n".join(lines) or "every committed file is what the records say"


def stale(write: Callable[[bool], Outcome]) -> str:
    """Return what differs of the files that a function writes, or nothing."""
    try:
        write(True)
    except InputError as error:
        return str(error)
    return ""


def failure_of(command: str) -> str:
    """Run a program of the checkout, and return why it fails, or nothing."""
    program, *arguments = command.split()
    call = [sys.executable, str(ROOT / program), *arguments]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    return done.stderr.strip().removeprefix("error: ") or "it fails"


# The commands with their options; each is a function, and its options are the function's arguments.
OF_RUNS = {"--runs": {"type": Path, "default": RUNS, "help": "the folder of runs (default: runs)"}}
OF_FILES = {
    "--check": {
        "action": "store_true",
        "help": "write nothing; exit with 1 if a file is out of date",
    }
}
FILTERS = "filters, as in activation=prelu,relu data=digits optim.lr=0.01 protocol=dense"
OF_SHOW: dict[str, dict[str, Any]] = {
    "--all": {
        "action": "store_true",
        "dest": "every",
        "help": "also runs of searches, claims and cards, which are in folders within",
    },
    "filters": {"nargs": "*", "metavar": "key=value", "help": FILTERS},
}
A_RUN = {"help": "a run id, the beginning of one, latest, or the path of a record"}
OF_CLASSES: dict[str, dict[str, Any]] = {
    "run": {"help": A_RUN["help"]},
    "settings": {
        "nargs": "*",
        "metavar": "key=value",
        "help": "where its images are, as for evaluate.py: data.root=<folder>",
    },
    "--compare": {
        "nargs": 2,
        "metavar": ("A", "B"),
        "help": "runs of two settings, committed ones too: A's errors by class minus B's, over the "
        "seeds of both (default: PReLU and ReLU with the run's other settings)",
    },
    "--protocol": {"help": "the test protocol (default: ten_view, or one with kept scores)"},
}
OF_WANDB: dict[str, dict[str, Any]] = {
    "--project": {"default": "rectifiers", "help": "W&B's project (default: rectifiers)"},
    "--entity": {"help": "owner of the project (default: your account)"},
    "--table": {"help": "one table or figure, such as table2 (default: all)"},
    "--out": {"type": Path, "help": "write the report to this file, without W&B"},
    "--claims": {
        "action": "store_true",
        "dest": "with_claims",
        "help": "also the claims' runs that stand in TABLES.md",
    },
}
COMMANDS: dict[str, tuple[Any, dict[str, dict[str, Any]]]] = {
    "show": (show, OF_RUNS | OF_SHOW),
    "diff": (diff, OF_RUNS | {"A": A_RUN, "B": A_RUN}),
    "classes": (classes, OF_RUNS | OF_CLASSES),
    "collect": (collect, OF_RUNS),
    "tables": (PAGES["tables"], OF_FILES),
    "claims": (PAGES["claims"], OF_FILES),
    "readme": (PAGES["readme"], OF_FILES),
    "check": (check_all, {}),
    "wandb": (wandb_report, OF_WANDB),
}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(required=True, title="commands", metavar="command")
    for name, (function, options) in COMMANDS.items():
        text = function.__doc__
        command = commands.add_parser(name, help=text.rstrip("."), description=text)
        command.set_defaults(function=function)
        command.add_argument("--json", action="store_true", help="print JSON")
        for option, settings in options.items():
            command.add_argument(option, **settings)

    arguments = vars(parser.parse_args())
    function, as_json = arguments.pop("function"), arguments.pop("json")
    with cli_errors(), no_garbage_collection():
        outcome, words = function(**arguments)

    with ignore_broken_pipe():
        if as_json:
            print(json.dumps(outcome, indent=1))
        elif words:
            print(words)
    if isinstance(outcome, dict) and outcome.get("stale"):
        sys.exit(1)


if __name__ == "__main__":
    main()
