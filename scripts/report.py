"""Records to tables and figures.

python scripts/report.py collect             copy the records of experiments from runs/ to results/records
python scripts/report.py tables [--check]    make results/TABLES.md, or say whether it is stale
python scripts/report.py cost <record.json>  draw error against cost over the protocols of a run
python scripts/report.py sync                send to W&B what it does not have yet
python scripts/report.py experiments         note what each experiment of conf/ is, for the tables to compare with
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from rectifiers.config import CONF, InputError, protocols
from rectifiers.models.spec import depth, expand, trace
from rectifiers.reporting.belonging import described, why_not
from rectifiers.reporting.tables import load, tables
from rectifiers.runs import record as records
from rectifiers.runs.identity import science

RESULTS = Path(__file__).parents[1] / "results"
ALL = "evaluation=calibration"  # every protocol


def collect(runs: Path) -> None:
    """Copy the records of experiments from `runs` to results/records; say which are left out, and why."""
    if not runs.is_dir():
        raise InputError(f"--runs={runs} is not a folder; give the one that holds the runs")
    for path in sorted(runs.glob("*/record.json")):
        try:
            record = records.load(path)
        except InputError as fault:  # the others are copied all the same
            print(f"left out {path}: {fault}", file=sys.stderr)
            continue
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


def send(runs: Path, given: list[Path], project: str) -> None:
    """Send the runs of `runs` that W&B does not have, or the records that are given."""
    from rectifiers.tracking.sync import send_records, sync  # here and not above: tables do without W&B

    left = send_records(given, project, print) if given else sync(runs, print)
    if left:
        sys.exit(f"error: {left} runs are not in W&B as they are recorded; the lines above say why")


def note_experiments() -> None:
    """Write reporting/experiments.yaml from conf/."""
    from rectifiers.reporting.belonging import PLACE

    records.write_text(PLACE, yaml.safe_dump(experiments(), sort_keys=True))
    print(PLACE)


def experiments() -> dict[str, Any]:
    """Return what experiments.yaml has to hold: hashes of every experiment, and every protocol's settings by data."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    def composed(*overrides: str) -> Any:
        return OmegaConf.to_container(compose("train", overrides=list(overrides)), resolve=True)

    place = CONF / "experiment"
    names = sorted(path.relative_to(place).with_suffix("").as_posix() for path in place.rglob("*.yaml"))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        found = {name: composed(f"experiment={name}") for name in names}
        by_data = {path.stem: composed(f"data={path.stem}", ALL) for path in (CONF / "data").glob("*.yaml")}
        models = {p.stem: composed("data=imagenet", f"model={p.stem}") for p in (CONF / "model").glob("*.yaml")}
    return {
        "experiments": {n: described(science(config)) for n, config in found.items()},
        "settings": {data: protocols(config) for data, config in by_data.items()},
        "networks": {name: sizes(config["model"]) for name, config in models.items()},
    }


def sizes(model: dict[str, Any]) -> dict[str, int]:
    """Return what a model of conf/ is on an RGB image of 224 x 224, with 1,000 classes."""
    rows = expand(model["rows"], width=1, classes=1000)
    shapes = trace(rows, channels=3, input_px=224)
    return {
        "depth": depth(rows),
        "multiply_adds": sum(shape.multiply_adds for shape in shapes),
        "parameters": sum(shape.parameters for shape in shapes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="copy records of experiments to results/records")
    collecting.add_argument("--runs", type=Path, default=Path("runs"), help="the folder of runs (default: runs)")
    tabulating = commands.add_parser("tables", help="make results/TABLES.md")
    tabulating.add_argument("--check", action="store_true", help="only say whether it is stale")
    drawing = commands.add_parser("cost", help="draw error against cost over all protocols of one run")
    drawing.add_argument("record", type=Path, help="its record.json")
    sending = commands.add_parser("sync", help="send to W&B what it does not have yet")
    sending.add_argument("--runs", type=Path, default=Path("runs"), help="the folder of runs (default: runs)")
    sending.add_argument("--project", default="rectifiers", help="for records that are given (default: rectifiers)")
    sending.add_argument("record", type=Path, nargs="*", help="records to send, from wherever they are; else runs")
    commands.add_parser("experiments", help="note what each experiment of conf/ is")
    asked = parser.parse_args()
    try:
        if asked.command == "collect":
            collect(asked.runs)
        elif asked.command == "tables":
            write_tables(asked.check)
        elif asked.command == "sync":
            send(asked.runs, asked.record, asked.project)
        elif asked.command == "experiments":
            note_experiments()
        else:
            draw_cost(asked.record)
    except InputError as fault:
        sys.exit(f"error: {fault}")


if __name__ == "__main__":
    main()
