"""Make docs/results/performance.md from results/bench/*.json.

python scripts/performance.py           # write it
python scripts/performance.py --check   # exit with 1 where it is stale
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rectifiers.results.documents import markdown, write_or_check
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


def spread(ratio: Mapping[str, float]) -> str:
    """Return a ratio with its quartiles."""
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})"


def mib(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.2f}"


def prelu(numbers: Mapping[str, Any]) -> str:
    torchs, relus = "torch's PReLU, times ReLU's", "PReLU, times ReLU's"
    steps = [
        [
            name,
            f"{step['ms']['ReLU']:.1f}",
            spread(step["over_relu"]["PReLU, torch's"]),
            spread(step["over_relu"]["PReLU"]),
        ]
        for name, step in numbers["step"].items()
    ]
    operations = [
        [
            name,
            f"{operation['us']['ReLU']:.0f}",
            spread(operation["over_relu"]["PReLU, torch's"]),
            spread(operation["over_relu"]["PReLU"]),
            mib(operation["kept_bytes"]["PReLU, torch's"]),
            mib(operation["kept_bytes"]["PReLU"]),
        ]
        for name, operation in numbers["operation"].items()
    ]
    columns = ["shape", "ReLU, µs", torchs, relus, "torch's keeps", "ours keeps"]
    return (
        markdown(["a training step", "ReLU, ms", torchs, relus], steps)
        + f"\nForward and backward of the activation alone, batch {numbers['batch']}, and the MiB "
        "that it keeps for the backward pass beside its output:\n\n" + markdown(columns, operations)
    )


def step(numbers: Mapping[str, Any]) -> str:
    peaks, digits = numbers.get("peak_bytes"), ".1f"
    title = f"a step of {numbers['model']} with PReLU, batch {numbers['batch']}"
    columns = [title, "ms an image", "times as fast", "of the products' rate"]
    if peaks:  # of a GPU, which takes less than a millisecond
        columns, digits = [*columns, "GiB beside weights and gradients"], ".3g"
    rows = []
    for name, ratio in numbers["times_as_fast"].items():
        share = f"{100 * numbers['share_of_products'][name]:.0f} %"
        row = [name, f"{numbers['ms_an_image'][name]:{digits}}", spread(ratio), share]
        rows.append([*row, f"{peaks[name] / 2**30:.2f}"] if peaks else row)
    rates = [
        f"{rate:.3g} TFLOP/s in {precision}"
        for precision, rate in numbers["tflops_of_products"].items()
    ]
    text = (
        f"\nThe rate of square matrix products, measured in the same rounds, is "
        f"{' and '.join(rates)}."
    )
    if larger := numbers["larger"]:
        text += (
            " The optimiser's part does not grow with the batch: with "
            f"{larger['batch']} images the way of trainer=cpu is "
            f"{spread(larger['times_as_fast'])} times as fast."
        )
    return f"{markdown(columns, rows)}{text}\n"


def roof(numbers: Mapping[str, Any]) -> str:
    gflops = numbers["gflops"]
    names = next(iter(gflops.values()))
    rows = [[name, *(f"{rates[name]:.0f}" for rates in gflops.values())] for name in names]
    return markdown(["attempt", *(f"GFLOP/s in {precision}" for precision in gflops)], rows) + (
        "\nThe machine can do at least the largest of these.\n"
    )


def scaling(numbers: Mapping[str, Any]) -> str:
    title = f"a step of small14, batch {numbers['batch']} a process"
    rows = [
        [name, f"{numbers['seconds'][name]:.2f}", spread(ratio)]
        for name, ratio in numbers["times_alone"].items()
    ]
    where = numbers.get("where", "Two processes on two cores, gloo over the loopback")
    within, after = numbers["waiting"].values()
    return markdown([title, "s", "times one alone"], rows) + (
        f"\n{where}, wall clock. Weak scaling with DDP is {spread(numbers['efficiency'])}. "
        f"Of a step the wait for {numbers['gradient_bytes'] / 1e6:.0f} MB of gradients is "
        f"{100 * within:.0f} %, and {100 * after:.0f} % where they are reduced after the backward "
        "pass. What it means for more machines: [scale.md](scale.md).\n"
    )


def pipeline(numbers: Mapping[str, Any]) -> str:
    columns = ["µs an image", "times as fast as the first", "times the shards' time"]
    rows = [
        [
            name,
            f"{way['us_an_image']:.0f}",
            spread(way["reference_takes"]),
            spread(way["takes_of_ours"]),
        ]
        for name, way in numbers["one_core"].items()
    ]
    photos = numbers["photos"]
    return markdown(["JPEG files or shards to batches of 64", *columns], rows) + (
        f"\nTwo reading processes are {spread(numbers['two_workers_times_one'])} times as fast as "
        f"one. {photos['count']} photos of {photos['mean_bytes'] / 1e3:.0f} kB on average: "
        f"{photos['note']}.\n"
    )


SECTIONS = {  # title and text of each bench, in the order of the document
    "prelu": ("PReLU", prelu),
    "step": ("A training step", step),
    "roof": ("What the machine can do at most", roof),
    "scaling": ("Several processes", scaling),
    "pipeline": ("Reading images", pipeline),
}


def section(question: str, numbers: Mapping[str, Any]) -> str:
    """Return what the document says of one bench, from its numbers in
    results/bench/<machine>.json."""
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
        for question in SECTIONS:
            if question in questions:
                parts.append(section(question, questions[question]))
    return "\n".join(parts)


if __name__ == "__main__":
    with cli_errors():
        write_or_check(
            {OUT: document()}, sys.argv[1:] == ["--check"], "python scripts/performance.py"
        )
