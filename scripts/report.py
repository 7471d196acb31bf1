"""Records to tables, figures and a page.

python scripts/report.py show [key=value ...]   print runs that fit, with their errors
python scripts/report.py diff A B               tell what differs between two runs: configuration, provenance, results
python scripts/report.py page                make results/report/index.html
python scripts/report.py collect             copy the records of runs/ to results/records and results/claims
python scripts/report.py tables [--check]    make results/TABLES.md, or say whether it is stale
python scripts/report.py claims [--check]    make results/CLAIMS.md, or say whether it is stale
python scripts/report.py cost <record.json>  draw error against cost over the protocols of a run
python scripts/report.py sync [record ...]   send to W&B what it does not have as it is recorded
python scripts/report.py wandb --project P   make or update the report of all tables (--table=table2: of one) in W&B
python scripts/report.py experiments         note what each experiment of conf/ is, for the tables to compare with

With --json each of them prints what it found or did as JSON.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from rectifiers.nn.networks.rows import depth, trace
from rectifiers.results import claim_records, tables
from rectifiers.results.claims import Answer, arm_hash, claim_exclusion_reason, claims
from rectifiers.results.claims import answer as answer_claim
from rectifiers.results.claims_table import FIGURES, render_markdown, with_figures
from rectifiers.results.claims_table import tables as claim_tables
from rectifiers.results.comparison import compare
from rectifiers.results.eligibility import CLAIM, described, exclusion_reason
from rectifiers.results.listing import Found, find, gather, select, usual_protocol
from rectifiers.results.numerical_floor import load_floor
from rectifiers.results.tables import document, load
from rectifiers.results.terminal import list_runs, print_comparison, summary
from rectifiers.runs import record as records
from rectifiers.runs.config import Model, RunConfig
from rectifiers.runs.identity import science
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, write_text

RESULTS = Path(__file__).parents[1] / "results"
ALL = "evaluation=calibration"  # every protocol
WIDE = 160  # characters, where no terminal says how many it has


def collect(runs: Path) -> dict[str, Any]:
    """Copy the records of experiments and claims from `runs` to results; say which are left out, and why."""
    if not runs.is_dir():
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")
    copied, left_out = [], {}
    of_claims = []
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
    return {"copied": copied, "claims": [record.run for record in of_claims], "left_out": left_out}


def write_tables(check: bool) -> dict[str, Any]:
    """Write results/TABLES.md, or say whether it is stale."""
    found = load(RESULTS / "records")
    path, text = RESULTS / "TABLES.md", tables.render_markdown(found, load_floor(RESULTS))
    if check and (not path.is_file() or path.read_text() != text):
        raise InputError(f"{path} is not what the records say; run make table")
    if not check:
        write_text(path, text)
    return {"path": str(path), "written": not check, "tables": [asdict(table) for table in document(found)]}


def answers(found: Sequence[TrainingRecord]) -> list[Answer]:
    """Return what the records of claims say of every claim."""
    return [answer_claim(claim, found, load_floor(RESULTS)) for claim in claims()]


def write_claims(check: bool) -> dict[str, Any]:
    """Write results/CLAIMS.md with a table and a figure per claim, or say which of them are stale."""
    from rectifiers.results import claim_figures  # here and not above: others do without matplotlib

    folder, path, figures = RESULTS / "claims", RESULTS / "CLAIMS.md", RESULTS / FIGURES
    found = claim_records.load(folder)
    judged = answers(found)
    text = render_markdown(judged, load_floor(RESULTS))
    stale = claim_records.stale_tables(folder, claims(), found)
    drawn = {figures / f"{each.claim.name}.svg": each for each in with_figures(judged)}
    if check:
        stale += [path] if not path.is_file() or path.read_text() != text else []
        stale += [figure for figure, each in drawn.items() if claim_figures.is_stale(each, figure)]
        stale += sorted(set(figures.glob("*.svg")) - drawn.keys())
        if stale:
            named = ", ".join(map(str, stale[:5])) + f" and {len(stale) - 5} more" * (len(stale) > 5)
            raise InputError(f"not what the records say: {named}; run make claims")
    else:
        claim_records.write_tables(folder, claims(), found)
        for figure, each in drawn.items():
            claim_figures.write(each, figure)
        write_text(path, text)
    verdicts = {each.claim.name: str(each.verdict) for each in judged}
    return {
        "path": str(path),
        "written": not check,
        "verdicts": verdicts,
        "tables": [asdict(table) for table in claim_tables(judged)],
    }


def draw_cost(source: Path) -> dict[str, Any]:
    """Write results/figures/cost-<run>.svg."""
    from rectifiers.results.figures import (
        write_error_against_cost,
    )  # here and not above: tables do without matplotlib

    record = records.load(source)
    path = RESULTS / "figures" / f"cost-{record.run}.svg"
    write_error_against_cost(record, path)
    points = {
        name: result.model_dump(include={"multiply_adds", "top1_error_pct", "num_images"})
        for name, result in record.protocols.items()
    }
    return {"path": str(path), "protocols": points}


def known_runs(runs: Path) -> list[Found]:
    """Return the collected runs and those of `runs`."""
    return gather(RESULTS / "records", runs)


def show(runs: Path, filters: list[str]) -> tuple[list[Found], str | None]:
    """Return the runs that fit, and the protocol by which to show them."""
    known = known_runs(runs)
    found = select(known, filters)
    asked = [text.partition("=")[2] for text in filters if text.startswith("protocol=")]
    return found, asked[-1].partition(",")[0] if asked else usual_protocol(found)


def write_page(runs: Path) -> dict[str, Any]:
    """Write results/report/index.html from the collected runs and those of `runs`."""
    from rectifiers.results.page.document import page  # here and not above: the rest does without Jinja

    path = RESULTS / "report" / "index.html"
    found = known_runs(runs)
    answered = answers(claim_records.load(RESULTS / "claims"))
    write_text(path, page(found, load(RESULTS / "records"), path, answered, load_floor(RESULTS)))
    return {"path": str(path), "runs": len(found), "bytes": path.stat().st_size}


def send(runs: Path, given: list[Path], project: str) -> dict[str, Any]:
    """Send the runs of `runs` that W&B does not have, or the records that are given; say each as it is done."""
    from rectifiers.tracking.sync import send_records, sync  # here and not above: tables do without W&B

    done, left = [], {}
    for run, why in send_records(given, project) if given else sync(runs):
        print(f"{run}: {why or 'sent'}", file=sys.stderr)
        if why is None:
            done.append(run)
        else:
            left[run] = why
    return {"sent": done, "not_sent": left}


def wandb_report(asked: argparse.Namespace) -> dict[str, Any]:
    """Save the W&B report of what is collected, or write its document to a file."""
    from rectifiers.tracking.report import build, save, specification  # here and not above: it takes seconds to import

    found = load(RESULTS / "records")
    if asked.out is None:
        kept = Path(".cache") / "wandb_reports.json"
        url = save(found, entity=asked.entity, project=asked.project, group=asked.table, kept=kept)
        return {"path": url}
    report = build(found, entity=asked.entity or "entity", project=asked.project, group=asked.table)
    write_text(asked.out, json.dumps(specification(report), indent=1) + "\n")
    return {"path": str(asked.out)}


def note_experiments() -> dict[str, Any]:
    """Write results/experiments.yaml from conf/."""
    from rectifiers.results.eligibility import PLACE

    noted = experiments()
    write_text(PLACE, yaml.safe_dump(noted, sort_keys=True))
    return {"path": str(PLACE), **noted}


def experiments() -> dict[str, Any]:
    """Return what experiments.yaml has to hold: hashes of every experiment, and every protocol's settings by data."""
    from rectifiers.cli.composition import composed

    place = CONF / "experiment"
    every = sorted(path.relative_to(place).with_suffix("").as_posix() for path in place.rglob("*.yaml"))
    names = [name for name in every if not name.startswith(CLAIM)]
    found = {name: composed([f"experiment={name}"]) for name in names}
    by_data = {path.stem: composed([f"data={path.stem}", ALL]) for path in (CONF / "data").glob("*.yaml")}
    arms = {
        claim.name: {a: composed([f"experiment={CLAIM}{claim.name}", *o]) for a, o in claim.arms.items()}
        for claim in claims()
    }
    sized = ("data=imagenet", "init.fc_std=null")  # stds are of three linear layers
    models = {p.stem: composed([*sized, f"model={p.stem}"]) for p in (CONF / "model").glob("*.yaml")}
    return {
        "experiments": {n: described(science(config)) for n, config in found.items()},
        "claims": {name: {a: arm_hash(science(c)) for a, c in own.items()} for name, own in arms.items() if own},
        "settings": {data: settings(config) for data, config in by_data.items()},
        "networks": {name: sizes(config.model) for name, config in models.items()},
    }


def settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings of each protocol by name."""
    return {name: protocol.as_dict() for name, protocol in config.evaluation.protocols.items()}


def sizes(model: Model) -> dict[str, int]:
    """Return what a model of conf/ is on an RGB image of 224 x 224, with 1,000 classes."""
    rows = model.layers(classes=1000)
    shapes = trace(rows, channels=3, input_px=224)
    return {
        "depth": depth(rows),
        "multiply_adds": sum(shape.multiply_adds for shape in shapes),
        "parameters": sum(shape.parameters for shape in shapes),
    }


def options() -> argparse.ArgumentParser:
    """Return what may be asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument("--json", action="store_true", help="print JSON")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, what: str, of_runs: bool = False) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what, parents=[every])
        if of_runs:
            command.add_argument("--runs", type=Path, default=Path("runs"), help="the folder of runs (default: runs)")
        return command

    add("collect", "copy records of experiments to results/records", of_runs=True)
    add("tables", "make results/TABLES.md").add_argument(
        "--check", action="store_true", help="only say whether it is stale"
    )
    add("claims", "make results/CLAIMS.md").add_argument(
        "--check", action="store_true", help="only say whether it is stale"
    )
    add("cost", "draw error against cost over all protocols of one run").add_argument(
        "record", type=Path, help="its record.json"
    )
    add("experiments", "note what each experiment of conf/ is")
    add("show", "print runs", of_runs=True).add_argument(
        "filters", nargs="*", metavar="key=value", help="activation=prelu,relu data=digits optim.lr=0.01 protocol=dense"
    )
    comparing = add("diff", "tell what differs between two runs", of_runs=True)
    for side in "AB":
        comparing.add_argument(side, help="a run's name, its beginning, or a record's path")
    sending = add("sync", "send to W&B what it does not have as it is recorded", of_runs=True)
    sending.add_argument("--project", default="rectifiers", help="for records that are given (default: rectifiers)")
    sending.add_argument("record", type=Path, nargs="*", help="records, from wherever they are; none: the runs")
    reporting = add("wandb", "make or update the report in W&B")
    reporting.add_argument("--project", default="rectifiers", help="the project of the runs (default: rectifiers)")
    reporting.add_argument("--entity", help="whose project it is (default: the account's own)")
    reporting.add_argument("--table", help="the group of one table or figure: table2, figure3 (default: all)")
    reporting.add_argument("--out", type=Path, help="write the document to this file, and send nothing")
    add("page", "make results/report/index.html", of_runs=True)
    return parser


def main() -> None:
    asked = options().parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    try:
        outcome, tell = answer(asked, console)
    except InputError as fault:
        sys.exit(f"error: {fault}")
    if asked.json:
        print(json.dumps(outcome, indent=1))
    else:
        tell()
    if isinstance(outcome, dict) and outcome.get("not_sent"):
        sys.exit(1)


def answer(asked: argparse.Namespace, console: Console) -> tuple[Any, Callable[[], None]]:
    """Do what is asked; return what came of it as plain data, and how to tell it in words."""
    if asked.command == "collect":
        done = collect(asked.runs)
        return done, lambda: [print(what) for what in (*done["copied"], *done["claims"])] and None
    if asked.command == "show":
        found, protocol = show(asked.runs, asked.filters)
        return [summary(each, protocol) for each in found], lambda: list_runs(found, protocol, console)
    if asked.command == "diff":
        known = known_runs(asked.runs)
        one, other = find(known, asked.A), find(known, asked.B)
        told = compare(one.record, other.record)
        if one.record.run == other.record.run:
            told["runs"] = [f"{each.record.run} ({each.origin})" for each in (one, other)]
        return told, lambda: print_comparison(told, console)
    if asked.command == "sync":
        done = send(asked.runs, asked.record, asked.project)
        return done, lambda: print(f"{len(done['sent'])} sent, {len(done['not_sent'])} not sent")
    if asked.command == "tables":
        done = write_tables(asked.check)
    elif asked.command == "claims":
        done = write_claims(asked.check)
    elif asked.command == "experiments":
        done = note_experiments()
    elif asked.command == "wandb":
        done = wandb_report(asked)
    elif asked.command == "page":
        done = write_page(asked.runs)
    else:
        done = draw_cost(asked.record)
    return done, lambda: print(done["path"]) if done.get("written", True) else None


if __name__ == "__main__":
    main()
