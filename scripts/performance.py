"""Make docs/results/performance.md from results/bench/*.json; with --check exit with 1 where it is
stale."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rectifiers.results.generated import write_or_check
from rectifiers.results.layout import markdown
from rectifiers.runtime.programs import cli_errors

ROOT = Path(__file__).parents[1]
RESULTS, OUT = ROOT / "results" / "bench", ROOT / "docs" / "results" / "performance.md"
HEAD = """\
# Performance

Made by `make bench` from `results/bench/`; do not edit. Every pair was timed in one run,
interleaved in random order; times are CPU time of one thread unless the text says otherwise; a
ratio is the median over rounds, with its quartiles. Trust ratios: seconds are those of the machine
named, which had other work. [Where the time goes](../explanation/speed.md) explains the numbers and
lists what was measured once.
"""


def table(title: str, columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of numbers and ratios: each column's head, and its values by row."""
    names = next(iter(columns.values()))
    rows = [[name, *(cell(values[name]) for values in columns.values())] for name in names]
    return markdown([title, *columns], rows)


def cell(value: Any) -> str:
    """Return a number, or a ratio with its quartiles."""
    if isinstance(value, Mapping):
        return f"{value['median']:.2f} ({value['q25']:.2f} to {value['q75']:.2f})"
    if 0.01 <= value < 1000:
        return f"{value:.3g}"
    return f"{value:.0f}" if value >= 1000 else f"{value:.2f}"


def prelu(numbers: Mapping[str, Any]) -> str:
    alone = (
        f"activation alone, batch {numbers['batch']}; MiB kept for the backward pass beside the "
        "output"
    )
    tables = []
    for part, key, unit, title in (
        ("step", "ms", "ms", "a training step"),
        ("operation", "us", "µs", alone),
    ):
        rows = numbers[part]
        columns = {f"ReLU, {unit}": {name: row[key]["ReLU"] for name, row in rows.items()}}
        for label, kind in (("torch's PReLU", "PReLU, torch's"), ("PReLU", "PReLU")):
            times = {name: row["over_relu"][kind] for name, row in rows.items()}
            columns[f"{label}, times ReLU's"] = times
            if part == "operation":
                kept = {name: row["kept_bytes"][kind] / 2**20 for name, row in rows.items()}
                columns[f"{label}, MiB"] = kept
        tables.append(table(title, columns))
    return "\n".join(tables)


def step(numbers: Mapping[str, Any]) -> str:
    columns = {
        "ms an image": numbers["ms_an_image"],
        "times as fast": numbers["times_as_fast"],
        "share of the products' rate": numbers["share_of_products"],
    }
    if peaks := numbers.get("peak_bytes"):
        columns["GiB beside weights and gradients"] = {k: v / 2**30 for k, v in peaks.items()}
    rates = (
        f"{rate:.3g} TFLOP/s in {kind}" for kind, rate in numbers["tflops_of_products"].items()
    )
    text = f"Square matrix products, measured in the same rounds: {' and '.join(rates)}."
    if larger := numbers["larger"]:
        ratio = cell(larger["times_as_fast"])
        text += f" With {larger['batch']} images trainer=cpu is {ratio} times as fast."
    title = f"a step of {numbers['model']} with PReLU, batch {numbers['batch']}"
    return f"{table(title, columns)}\n{text}\n"


def roof(numbers: Mapping[str, Any]) -> str:
    return table(
        "attempt", {f"GFLOP/s in {kind}": rates for kind, rates in numbers["gflops"].items()}
    )


def scaling(numbers: Mapping[str, Any]) -> str:
    title = f"a step of small14, batch {numbers['batch']} a process"
    columns = {"s": numbers["seconds"], "times one alone": numbers["times_alone"]}
    where = numbers.get("where", "Two processes on two cores, gloo over the loopback")
    within, after = numbers["waiting"].values()
    return (
        f"{table(title, columns)}\n{where}, wall clock. Weak scaling with DDP is "
        f"{cell(numbers['efficiency'])}. Of a step the wait for "
        f"{numbers['gradient_bytes'] / 1e6:.0f} MB of gradients is {100 * within:.0f} %, and "
        f"{100 * after:.0f} % where they are reduced after the backward pass. What it means for "
        "more machines: [scale.md](scale.md).\n"
    )


def pipeline(numbers: Mapping[str, Any]) -> str:
    heads = {
        "µs an image": "us_an_image",
        "times as fast as the first": "reference_takes",
        "times the shards' time": "takes_of_ours",
    }
    ways, photos = numbers["one_core"], numbers["photos"]
    columns = {head: {name: way[key] for name, way in ways.items()} for head, key in heads.items()}
    return (
        f"{table('JPEG files or shards to batches of 64', columns)}\nTwo reading processes are "
        f"{cell(numbers['two_workers_times_one'])} times as fast as one. {photos['count']} photos "
        f"of {photos['mean_bytes'] / 1e3:.0f} kB on average: {photos['note']}.\n"
    )


SECTIONS = {  # title and text of each bench, in the order of the document
    "prelu": ("PReLU", prelu),
    "step": ("A training step", step),
    "roof": ("What the machine can do at most", roof),
    "scaling": ("Several processes", scaling),
    "pipeline": ("Reading images", pipeline),
}


def section(question: str, numbers: Mapping[str, Any]) -> str:
    """Return what the document says of one bench, from its numbers."""
    title, text = SECTIONS[question]
    origin = f"torch {numbers['versions']['torch']}, code {numbers['code']}"
    command = f"`python scripts/bench/{question}.py`; {origin}, {numbers['rounds']} rounds."
    return f"### {title}\n\n{text(numbers)}\n{command}\n"


def document() -> str:
    """Return the whole document; what has not been measured on a machine is left out."""
    parts = [HEAD]
    for path in sorted(RESULTS.glob("*.json")):
        results = json.loads(path.read_text())
        machine, questions = results["machine"], results["questions"]
        device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
        parts.append(
            f"## {device}{machine['cores']} cores of {machine['cpu']}, {machine['instructions']}\n"
        )
        parts += [section(name, questions[name]) for name in SECTIONS if name in questions]
    return "\n".join(parts)


if __name__ == "__main__":
    with cli_errors():
        check = sys.argv[1:] == ["--check"]
        write_or_check({OUT: document()}, check, "python scripts/performance.py")
