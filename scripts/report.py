"""Records to tables, claims, and Weights & Biases.

Examples:
  python scripts/report.py show activation=prelu,relu data=digits protocol=dense
  python scripts/report.py diff e6eb31a64f10 0c255a4692ea

Every command prints what it found or did as JSON with --json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from os.path import isdir  # unlike Path.is_dir: False of a name that is too long for a path
from pathlib import Path
from typing import Any

import yaml

from rectifiers.claims import records as claim_records
from rectifiers.claims import report as claims_report
from rectifiers.claims.claims import arm_hash, claim_exclusion_reason, claims, runs_of, search_runs
from rectifiers.claims.judge import answer, check_rates
from rectifiers.claims.report import FIGURES
from rectifiers.results import readme, tables
from rectifiers.results.eligibility import CLAIM, PLACE, described, exclusion_reason, known
from rectifiers.results.generated import filled, refuse_stale, stale_files, write_or_check
from rectifiers.results.listing import (
    Run,
    compare,
    comparison_table,
    find,
    gather,
    runs_table,
    select,
    summaries,
    usual_protocol,
)
from rectifiers.results.numerical_floor import rounding_table
from rectifiers.runs import record as records
from rectifiers.runs.identity import science
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.console import cli_errors, ignore_broken_pipe
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
RUNS = Path("runs")
ALL = "evaluation=calibration"  # every protocol
# of committed files, the longest first; each names what differs, and the command that writes it
CHECKS = (
    "report.py tables --check",
    "report.py claims --check",
    "report.py readme --check",
    "benchmark.py check",
    "initialization.py --check",
    "performance.py --check",
    "picture.py --check",
)
Outcome = tuple[Any, str]  # of a command: plain data for --json, and the same in words


def collect(runs: Path) -> Outcome:
    """Copy the records of experiments and claims from `runs` to results; say which are left out,
    and why."""
    check_runs(runs)
    copied, of_claims, left_out = [], [], {}
    for path in sorted(runs.glob("*/record.json")):
        try:
            record = records.load(path)
            of_claim = str(record.choices.get("experiment")).startswith(CLAIM)
            reason = claim_exclusion_reason(record) if of_claim else exclusion_reason(record)
        except InputError as error:  # the others are copied all the same
            reason = str(error)
        if reason:
            left_out[str(path)] = reason
            print(f"left out {path}: {reason}", file=sys.stderr)
        elif of_claim:
            of_claims.append(record)
        else:
            copied.append(str(RESULTS / "records" / f"{record.run}.json"))
            records.write(Path(copied[-1]), record)
    claim_records.add(RESULTS / "claims", of_claims)
    added = [record.run for record in of_claims]
    return {"copied": copied, "claims": added, "left_out": left_out}, "\n".join([*copied, *added])


def in_tables() -> list[Record]:
    """Return the records that the tables are made from."""
    return [
        *tables.load(RESULTS / "records"),
        *claims_report.for_tables(claim_records.load(RESULTS / "claims")),
    ]


def write_tables(check: bool) -> Outcome:
    """Write results/TABLES.md, or say whether it is stale."""
    records = in_tables()
    path, text = RESULTS / "TABLES.md", tables.render_markdown(records)
    write_or_check({path: text}, check, "make table")
    outcome: dict[str, Any] = {"path": str(path), "written": not check}
    outcome["tables"] = [asdict(table) for table in tables.document(records)]
    return outcome, "" if check else str(path)


def write_claims(check: bool) -> Outcome:
    """Register the claims' runs, and write results/CLAIMS.md and FINDINGS.md with a table and a
    figure per claim; or say which are stale."""
    from rectifiers.claims import figures

    texts = experiments()
    if not check:
        write_or_check(texts, check, "make claims")
        known.cache_clear()
    folder, path, drawings = RESULTS / "claims", RESULTS / "CLAIMS.md", RESULTS / FIGURES
    records = claim_records.load(folder)
    problem = check_claims(records)
    results = [answer(claim, records) for claim in claims()]
    texts[path] = claims_report.claims_page(results, records)
    texts[RESULTS / "FINDINGS.md"] = claims_report.findings_page(results)
    for claim in (claim for claim in claims() if claim.tests):
        texts[folder / f"{claim.name}.csv"] = claims_report.runs_csv(claim, records)
    drawn = {drawings / f"{r.claim.name}.svg": r for r in results if claims_report.has_figure(r)}
    if check:
        stale = stale_files(texts, folder.glob("*.csv"))
        stale += [svg for svg, result in drawn.items() if figures.is_stale(result, svg)]
        refuse_stale([*stale, *sorted(set(drawings.glob("*.svg")) - drawn.keys())], "make claims")
        if problem:
            raise InputError(problem)
    else:
        if problem:
            print(problem, file=sys.stderr)
        write_or_check(texts, check, "make claims")
        for svg, result in drawn.items():
            figures.write(result, svg)
    verdicts = {result.claim.name: str(result.verdict) for result in results}
    tables = [asdict(table) for table in claims_report.tables(results)]
    outcome = {"path": str(path), "written": not check, "verdicts": verdicts, "tables": tables}
    return outcome, "" if check else str(path)


def check_claims(records: Sequence[TrainingRecord]) -> str:
    """Check that each criterion is older than its runs and that each arm has the rate that its
    search found best; return why the former cannot be said, or nothing.

    Raises:
        InputError: for the first claim of which either is not so.
    """
    for claim in claims():
        if claim.search:
            check_rates(claim.name, claim.search, claim.arms, search_runs(claim, records))
    judged = ((claim, runs_of(claim, records)) for claim in claims() if claim.tests)
    unknown = claim_records.check_criteria(judged)
    if not unknown:
        return ""
    return (
        f"{len(unknown)} commits that made records are not in this clone, so that nobody can say "
        "whether their criteria stood before the runs; call git fetch --unshallow"
    )


def write_readme(check: bool) -> Outcome:
    """Fill the blocks of README.md and of the page on statistics from the results, or say whether
    they are stale."""
    path, statistics = ROOT / "README.md", ROOT / "docs/explanation/statistics.md"
    texts = {
        path: readme.render(path.read_text(), RESULTS),
        statistics: filled(statistics.read_text(), "rounding", f"\n{rounding_table(RESULTS)}\n"),
    }
    write_or_check(texts, check, "python scripts/report.py readme")
    return {"path": str(path), "written": not check}, "" if check else f"{path}\n{statistics}"


def check_all() -> Outcome:
    """Make every committed file again and name those that differ."""

    def run(command: str) -> str:
        program, *arguments = command.split()
        script = ROOT / "scripts" / program
        done = subprocess.run(
            [sys.executable, script, *arguments], cwd=ROOT, capture_output=True, text=True
        )
        return done.stderr.strip().removeprefix("error: ") or "it fails" if done.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        errors = dict(zip(CHECKS, threads.map(run, CHECKS), strict=True))
    stale = {command: error for command, error in errors.items() if error}
    lines = [f"{command}: {error}" for command, error in stale.items()]
    return {"stale": stale}, "\n".join(lines) or "every committed file is what the records say"


def check_runs(runs: Path) -> None:
    """Refuse a folder that was given and is not there; without one, there may be no runs yet."""
    if runs != RUNS and not isdir(runs):
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")


def known_runs(runs: Path) -> list[Run]:
    """Return the collected runs and those of `runs`."""
    check_runs(runs)
    return gather(RESULTS / "records", runs)


def show(runs: Path, filters: list[str]) -> Outcome:
    """Print the runs that fit, with their errors by the protocol that is asked for, or the usual
    one."""
    selected = select(known_runs(runs), filters)
    protocols = [text.partition("=")[2] for text in filters if text.startswith("protocol=")]
    protocol = protocols[-1].partition(",")[0] if protocols else usual_protocol(selected)
    rows = summaries(selected, protocol)
    return rows, runs_table(rows, protocol)


def diff(runs: Path, A: str, B: str) -> Outcome:  # noqa: N803 as --help shows them
    """Print what differs between two runs."""
    known = known_runs(runs)
    one, other = find(known, A), find(known, B)
    comparison = compare(one.record, other.record)
    if one.record.run == other.record.run:
        comparison["runs"] = [f"{run.record.run} ({run.origin})" for run in (one, other)]
    return comparison, comparison_table(comparison)


def wandb_report(project: str, entity: str | None, table: str | None, out: Path | None) -> Outcome:
    """Save the W&B report of what is collected, or write its document to a file."""
    from rectifiers.tracking import report  # here and not above: it takes seconds to import

    records = tables.load(RESULTS / "records")
    if out is None:
        ids = Path(".cache") / "wandb_reports.json"
        place = report.save(records, entity=entity, project=project, group=table, kept=ids)
    else:
        built = report.build(records, entity=entity or "entity", project=project, group=table)
        write_text(out, json.dumps(report.specification(built), indent=1) + "\n")
        place = str(out)
    return {"path": place}, place


def experiments() -> dict[Path, str]:
    """Return the text of experiments.yaml by its path, as conf/ says it: hashes, the protocols'
    settings by data, networks' sizes."""
    from rectifiers.cli.composition import compose_job, composed
    from rectifiers.training.build import network_size

    registry: dict[str, Any] = {"experiments": {}, "claims": {}, "settings": {}, "networks": {}}
    for path in sorted((CONF / "experiment").rglob("*.yaml")):
        name = path.relative_to(CONF / "experiment").with_suffix("").as_posix()
        if not name.startswith(CLAIM):
            registry["experiments"][name] = described(science(composed([f"experiment={name}"])))
    for claim in (claim for claim in claims() if claim.arms):
        registry["claims"][claim.name] = {}
        for arm, overrides in {**claim.arms, **claim.searched()}.items():
            config, _ = compose_job((f"experiment={CLAIM}{claim.name}", *overrides))
            registry["claims"][claim.name][arm] = arm_hash(science(config))
    for path in sorted((CONF / "data").glob("*.yaml")):
        protocols = composed([f"data={path.stem}", ALL]).evaluation.protocols
        registry["settings"][path.stem] = {n: p.as_dict() for n, p in protocols.items()}
    for path in sorted((CONF / "model").glob("*.yaml")):
        # init.fc_std is of networks with three linear layers
        config = composed(["data=imagenet", "init.fc_std=null", f"model={path.stem}"])
        size = network_size(config, classes=1000, channels=3, input_px=224)
        registry["networks"][path.stem] = size
    return {PLACE: yaml.safe_dump(registry, sort_keys=True)}


def options() -> argparse.ArgumentParser:
    """Return the commands with their options; each is a function, and its options are the
    function's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, title="commands", metavar="command")

    def add(
        name: str, function: Callable[..., Outcome], of_runs: bool = False
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=(function.__doc__ or "").rstrip("."), description=function.__doc__
        )
        command.set_defaults(function=function)
        command.add_argument("--json", action="store_true", help="print JSON")
        if of_runs:
            command.add_argument(
                "--runs", type=Path, default=RUNS, help="the folder of runs (default: runs)"
            )
        return command

    example = "activation=prelu,relu data=digits optim.lr=0.01 protocol=dense"
    add("show", show, of_runs=True).add_argument(
        "filters", nargs="*", metavar="key=value", help=example
    )
    comparing = add("diff", diff, of_runs=True)
    for side in "AB":
        comparing.add_argument(side, help="a run's name, its beginning, or a record's path")
    add("collect", collect, of_runs=True)
    for name, function in (
        ("tables", write_tables),
        ("claims", write_claims),
        ("readme", write_readme),
    ):
        help_text = "only say whether it is stale"
        add(name, function).add_argument("--check", action="store_true", help=help_text)
    add("check", check_all)
    reporting = add("wandb", wandb_report)
    reporting.add_argument(
        "--project", default="rectifiers", help="the project of the runs (default: rectifiers)"
    )
    reporting.add_argument("--entity", help="whose project it is (default: the account's own)")
    reporting.add_argument(
        "--table", help="the group of one table or figure: table2, figure3 (default: all)"
    )
    reporting.add_argument(
        "--out", type=Path, help="write the document to this file, and send nothing"
    )
    return parser


def main() -> None:
    arguments = vars(options().parse_args())
    function, as_json = arguments.pop("function"), arguments.pop("json")
    with cli_errors():
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
