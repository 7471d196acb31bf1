"""Records to tables and figures: `python scripts/report.py collect`, `... tables [--check]`, `... cost <record>`."""

import argparse
import sys
from pathlib import Path

from rectifiers.config import InputError
from rectifiers.reporting.tables import load, tables, why_not
from rectifiers.runs import record as records

RESULTS = Path(__file__).parents[1] / "results"


def collect(runs: Path) -> None:
    """Copy the records of experiments from `runs` to results/records; say which are left out, and why."""
    if not runs.is_dir():
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")
    for path in sorted(runs.glob("*/record.json")):
        record = records.load(path)
        reason = why_not(record)
        if reason:
            print(f"left out {path}: {reason}", file=sys.stderr)
        else:
            records.write(RESULTS / "records" / f"{record['run']}.json", record)
            print(RESULTS / "records" / f"{record['run']}.json")


def write_tables(check: bool) -> None:
    """Write results/TABLES.md, or say whether it is stale."""
    path, text = RESULTS / "TABLES.md", tables(load(RESULTS / "records"))
    if check and (not path.is_file() or path.read_text() != text):
        raise InputError(f"{path} is not what the records say; run make table")
    if not check:
        records.write_text(path, text)
        print(path)


def draw_cost(source: Path) -> None:
    """Write results/figures/cost-<run>.svg."""
    from rectifiers.reporting.figures import (
        write_error_against_cost,
    )  # here and not above: tables do without matplotlib

    record = records.load(source)
    path = RESULTS / "figures" / f"cost-{record['run']}.svg"
    write_error_against_cost(record, path)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="copy records of experiments to results/records")
    collecting.add_argument("--runs", type=Path, default=Path("runs"), help="the folder of runs (default: runs)")
    tabulating = commands.add_parser("tables", help="make results/TABLES.md")
    tabulating.add_argument("--check", action="store_true", help="only say whether it is stale")
    drawing = commands.add_parser("cost", help="draw error against cost over all protocols of one run")
    drawing.add_argument("record", type=Path, help="its record.json")
    asked = parser.parse_args()
    try:
        if asked.command == "collect":
            collect(asked.runs)
        elif asked.command == "tables":
            write_tables(asked.check)
        else:
            draw_cost(asked.record)
    except InputError as fault:
        sys.exit(f"error: {fault}")


if __name__ == "__main__":
    main()
