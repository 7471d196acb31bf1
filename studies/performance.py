"""Write docs/results/performance.md from results/bench/*.json."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rectifiers.results.documents import markdown, render, write_or_check
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.schema import value_at

ROOT = Path(__file__).parents[1]
RESULTS, OUT = ROOT / "results" / "bench", ROOT / "docs" / "results" / "performance.md"
# Of each bench its title; its tables by what their rows are, with the place of each column in the
# numbers, where * stands for the row; and a text.
SECTIONS: dict[str, tuple[str, dict[str, dict[str, str]], str]] = {
    "prelu": (
        "PReLU",
        {
            "the activation alone": {
                "ReLU, µs": "operation/*/us/ReLU",
                "torch's PReLU, times ReLU's": "operation/*/over_relu/PReLU, torch's",
                "PReLU, times ReLU's": "operation/*/over_relu/PReLU",
                "bytes that torch's keeps": "operation/*/kept_bytes/PReLU, torch's",
                "ours keeps": "operation/*/kept_bytes/PReLU",
            },
        },
        "Batch {batch}, two measurements per round. Bytes are those kept for the backward pass, "
        "without the output.",
    ),
    "networks": (
        "PReLU in whole networks",
        {
            "a training step": {
                "torch's PReLU, ms": "step/*/ms/torch's PReLU",
                "after swap_prelu, times torch's": "step/*/over_before/after swap_prelu",
                "ReLU, times torch's PReLU": "step/*/over_before/ReLU",
                "kept with torch's PReLU": "step/*/kept_bytes/torch's PReLU",
                "kept after swap_prelu": "step/*/kept_bytes/after swap_prelu",
                "kept with ReLU": "step/*/kept_bytes/ReLU",
            }
        },
        "Batch {batch}, float32. Bytes are those kept for the backward pass, without output and "
        "weights.",
    ),
    "step": (
        "A training step",
        {
            "a step with PReLU": {
                "ms per image": "ms_an_image/*",
                "times as fast": "times_as_fast/*",
                "share of the rate of matrix products": "share_of_products/*",
                "bytes, without weights and gradients": "peak_bytes/*",
            },
            "square matrix products": {"TFLOP/s": "tflops_of_products/*"},
        },
        "{model}, batch {batch}. The matrix products were measured in the same rounds.",
    ),
    "roof": (
        "The machine's limit",
        {"attempt": {f"GFLOP/s in {kind}": f"gflops/{kind}/*" for kind in ("float32", "bfloat16")}},
        "The limit is at least the largest of these rates.",
    ),
    "scaling": (
        "Several processes",
        {
            "a step of small14": {
                "s": "seconds/*",
                "ratio to one process alone": "times_alone/*",
                "share spent waiting for gradients": "waiting/*",
            }
        },
        "Two processes on two cores with gloo, or one process per GPU with NCCL; batch {batch} per "
        "process, wall clock. The efficiency of weak scaling with DDP is {efficiency}, with "
        "gradients of {gradient_bytes}. [Scale](scale.md) says what this means for more machines.",
    ),
    "pipeline": (
        "Reading images",
        {
            "JPEG files or shards to batches of 64": {
                "µs per image": "one_core/*/us_an_image",
                "speed relative to the first": "one_core/*/reference_takes",
                "time relative to the shards": "one_core/*/takes_of_ours",
            }
        },
        "Two reading processes are {two_workers_times_one} times as fast as one. Measured on "
        "{photos[count]} photos of {photos[mean_bytes]:.0f} bytes on average: {photos[note]}.",
    ),
}


def cell(value: Any, place: str) -> str:
    """Return the value at a place: a number, bytes from 100,000 on in MiB, or a ratio with its
    quartiles."""
    if isinstance(value, Mapping) and "median" in value:
        return f"{value['median']:.2f} ({value['q25']:.2f} to {value['q75']:.2f})"
    if not isinstance(value, int | float):
        return "-" if value is None else str(value)
    unit = ""
    if "bytes" in place:
        value, unit = (value / 2**20, " MiB") if value >= 1e5 else (value, " B")
    return (f"{value:.0f}" if value >= 1000 else f"{value:.3g}") + unit


def section(question: str, numbers: Mapping[str, Any]) -> str:
    """Return what the document says of one bench, from its numbers."""
    title, tables, text = SECTIONS[question]
    parts = [f"### {title}\n"]
    for head, columns in tables.items():
        first = next(iter(columns.values())).partition("/*")[0]
        names = list(value_at(numbers, first, "/"))
        # a bench measures some columns on a GPU alone
        known = {
            key: at for key, at in columns.items() if value_at(numbers, at.partition("/*")[0], "/")
        }

        rows = []
        for name in names:
            places = (at.replace("*", name) for at in known.values())
            rows.append([name, *(cell(value_at(numbers, place, "/"), place) for place in places)])
        parts.append(markdown([head, *known], rows))

    values = {k: v if k == "photos" else cell(v, k) for k, v in numbers.items()}
    origin = f"torch {numbers['versions']['torch']}, code {numbers['code']}"
    command = f"`python studies/bench/{question}.py`; {origin}, {numbers['rounds']} rounds."
    return "\n".join([*parts, f"{text.format_map(values)}\n", f"{command}\n"])


def document() -> str:
    """Return the whole document; what has not been measured on a machine is left out."""
    machines = []
    for path in sorted(RESULTS.glob("*.json")):
        results = json.loads(path.read_text())
        machine, questions = results["machine"], results["questions"]
        device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
        family, _, model = machine.get("generation", "").partition("-")
        processor = machine["cpu"] + (f" (family {family}, model {model})" if model else "")
        name = f"{device}{machine['cores']} cores of {processor}, {machine['instructions']}"
        sections = [section(name, questions[name]) for name in SECTIONS if name in questions]
        machines.append({"name": name, "sections": sections})
    return render("performance", machines=machines)


if __name__ == "__main__":
    with cli_errors():
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--check", action="store_true", help="exit with 1 if the page is stale")
        write_or_check(
            {OUT: document()}, parser.parse_args().check, "python studies/performance.py"
        )
