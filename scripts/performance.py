"""Make docs/performance.md from results/bench/*.json, or say with --check whether it is stale.

python scripts/performance.py [--check]
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, OUT = ROOT / "results" / "bench", ROOT / "docs" / "performance.md"
HEAD = """# Performance

Made by `make bench` from `results/bench/`; do not edit. Every pair was timed in one run, interleaved in random order;
times are CPU time of one thread unless the text says otherwise; a ratio is the median over rounds, with its quartiles.
Trust ratios: seconds are those of the machine named, which had other work.
"""
Numbers = dict[str, Any]


def table(first: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first hold numbers."""
    lines = [(first, *columns), ("---", *["---:"] * len(columns)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ratio_table(first: str, unit: str, ratio: str, values: Numbers, ratios: Numbers, digits: int) -> str:
    """Return a table of a number and a ratio per way."""
    return table(first, (unit, ratio), [(way, f"{values[way]:.{digits}f}", spread(ratios[way])) for way in ratios])


def spread(ratio: dict[str, float]) -> str:
    """Return a ratio with its quartiles."""
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})"


def percent(shares: Sequence[float]) -> str:
    """Return the median of shares with their range and number."""
    least, middle, most = (100 * f(shares) for f in (min, statistics.median, max))
    return f"{middle:.2f} % ({least:.2f} to {most:.2f} %, n = {len(shares)})"


def pipeline(n: Numbers) -> list[str]:
    rows = [
        (name, f"{way['us_an_image']:.0f}", spread(way["reference_takes"]), spread(way["takes_of_ours"]))
        for name, way in n["one_core"].items()
    ]
    columns = ("µs an image", "times as fast as the first", "times the shards' time")
    photos = n["photos"]
    return [
        table("JPEG files or shards to batches of 64", columns, rows),
        f"Two reading processes are {spread(n['two_workers_times_one'])} times as fast as one. "
        f"{sum(n['differing_bytes'].values())} bytes of our own ways differ from Pillow's. {photos['count']} photos of "
        f"{photos['mean_bytes']['plain'] / 1e3:.0f} kB on average: {photos['note']}.",
    ]


def prelu(n: Numbers) -> list[str]:
    kinds = list(next(iter(n["operation"].values())))
    operation = [(shape, *(spread(ratios[kind]) for kind in kinds)) for shape, ratios in n["operation"].items()]
    step = f"a step of small14, batch {n['batch']}"
    memory = [(name, f"{count / 2**20:.2f}") for name, count in n["kept_bytes_an_image"].items()]
    return [
        "Forward and backward of the activation alone, times ReLU's:",
        table("", kinds, operation),
        ratio_table(step, "ms an image", "times ReLU's of that layout", n["step_ms_an_image"], n["step"], 1),
        table("small14 at 224 px keeps for the backward pass", ["MiB an image"], memory),
    ]


def step(n: Numbers) -> list[str]:
    rows = [
        (name, f"{n['ms_an_image'][name]:.1f}", spread(ratio), f"{100 * n['share_of_products'][name]:.0f} %")
        for name, ratio in n["times_as_fast"].items()
    ]
    title = f"a step of {n['model']} with PReLU, batch {n['batch']}"
    rates = " and ".join(f"{rate:.3g} TFLOP/s in {name}" for name, rate in n["tflops_of_products"].items())
    text = f"The rate of square matrix products, measured in the same rounds, is {rates}."
    if n["larger"]:
        text += (
            f" The optimiser's part does not grow with the batch: with {n['larger']['batch']} images the way of "
            f"compute=cpu is {spread(n['larger']['times_as_fast'])} times as fast."
        )
    return [table(title, ("ms an image", "times as fast", "of the products' rate"), rows), text]


def memory(n: Numbers) -> list[str]:
    columns = list(next(iter(n["bytes"].values())))
    rows = [(model, *(f"{peaks[name] / 2**30:.2f}" for name in columns)) for model, peaks in n["bytes"].items()]
    return [
        table(f"GiB at most in a step of batch {n['batch']}, float32", columns, rows),
        "Weights, gradients, momentum and maps, as torch's tracker counts them on tensors without numbers; what the "
        "library of convolutions needs meanwhile is not in it. A step of small14 with real numbers and PReLU holds "
        f"{n['real_prelu_of_relu']:.4f} times what ReLU's does. Maps are computed again by "
        "`compute.activation_checkpointing=true`.",
    ]


def frameworks(n: Numbers) -> list[str]:
    step = f"a step of VGG-19 with PReLU, batch {n['batch']}, float32"
    versions = ", ".join(f"{name} {version}" for name, version in n["libraries"].items())
    return [
        ratio_table(step, "ms an image", "times ours", n["ms_an_image"], n["times_ours"], 0),
        f"{versions}. The optimiser's part is large at this batch. What those libraries do better is not in a step: "
        "timm's networks with weights, torchvision's recipes, Keras' backends.",
    ]


def overhead(n: Numbers) -> list[str]:
    rows = [(part, f"{ms:.1f}") for part, ms in n["ms_a_step"].items()]
    ends = ", ".join(f"{part} {ms:.0f} ms" for part, ms in n["ms_an_epoch"].items())
    return [
        table("a step of small14, batch 8", ["ms"], rows),
        f"The last line is {percent(n['shares'])} of forward, backward and optimiser. Once an epoch: {ends}. "
        f"`{' '.join(n['run'])}`.",
    ]


def scaling(n: Numbers) -> list[str]:
    step = f"a step of small14, batch {n['batch']} a process"
    within, after = (f"{100 * share:.0f} %" for share in n["waiting"].values())
    return [
        ratio_table(step, "s", "times one alone", n["seconds"], n["times_alone"], 2),
        "Two processes on two cores, gloo over the loopback, wall clock. Weak scaling with DDP is "
        f"{spread(n['efficiency'])}. Of a step the wait for {n['gradient_bytes'] / 1e6:.0f} MB of gradients is "
        f"{within}, and {after} where they are reduced after the backward pass. What it means for more machines: "
        "[scale.md](scale.md).",
    ]


def responses(n: Numbers) -> list[str]:
    return [
        f"Listening to every layer's responses takes {percent(n['shares'])} of the CPU time of `{' '.join(n['run'])}`; "
        f"whole runs that listen take {spread(n['ratio'])} times as long as those that do not."
    ]


def windows(n: Numbers) -> list[str]:
    title = f"{2 * sum(n['windows'])} windows at three scales, mirrored too"
    return [
        ratio_table(title, "CPU s an image", "times dense testing's", n["seconds"], n["times_dense"], 2),
        f"Mean scores differ by {n['difference']:.1e} at most.",
    ]


def startup(n: Numbers) -> list[str]:
    rows = [
        (name, f"{s['wall_s']:.2f} ({s['wall_range_s'][0]:.2f} to {s['wall_range_s'][1]:.2f})", f"{s['cpu_s']:.2f}")
        for name, s in n["seconds"].items()
    ]
    return [
        table("train.py, whole processes", ("wall s, median (least to most)", "CPU s"), rows),
        "A run of one epoch of a small perceptron is start-up and little else; W&B is offline. The second run of a "
        f"sweep takes {statistics.median(n['second_run_s']):.2f} s from its start to its end.",
    ]


SECTIONS: dict[str, tuple[str, Callable[[Numbers], list[str]]]] = {
    "prelu": ("PReLU", prelu),
    "step": ("A training step", step),
    "memory": ("Memory", memory),
    "overhead": ("What stands around a step", overhead),
    "frameworks": ("Other libraries", frameworks),
    "scaling": ("Two processes", scaling),
    "windows": ("Dense testing", windows),
    "pipeline": ("Reading images", pipeline),
    "responses": ("Listening to responses", responses),
    "startup": ("Start-up", startup),
}


def section(question: str, numbers: Numbers) -> str:
    """Return what the document says of one bench, from its numbers in results/bench/<machine>.json."""
    title, paragraphs = SECTIONS[question]
    rounds = f", {numbers['rounds']} rounds" if "rounds" in numbers else ""
    about = (
        f"`python scripts/bench/{question}.py`; torch {numbers['versions']['torch']}, code {numbers['code']}{rounds}."
    )
    return "\n\n".join([f"### {title}", *paragraphs(numbers), about]) + "\n"


def document() -> str:
    """Return the whole document; what has not been measured on a machine is left out."""
    parts = [HEAD]
    for path in sorted(RESULTS.glob("*.json")):
        kept = json.loads(path.read_text())
        machine, questions = kept["machine"], kept["questions"]
        device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
        parts.append(f"## {device}{machine['cores']} cores of {machine['cpu']}\n")
        parts += [section(question, questions[question]) for question in SECTIONS if question in questions]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where it is stale")
    text = document()
    if parser.parse_args().check:
        if not OUT.is_file() or OUT.read_text() != text:
            sys.exit(f"error: {OUT} is not what results/bench says; call python scripts/performance.py")
        return
    OUT.write_text(text)
    print(OUT)


if __name__ == "__main__":
    main()
