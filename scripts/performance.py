"""Make docs/performance.md from results/bench/*.json, or say with --check whether it is stale.

python scripts/performance.py [--check]
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, OUT = ROOT / "results" / "bench", ROOT / "docs" / "performance.md"
HEAD = """# Performance

Made by `make bench` from `results/bench/`; do not edit. Every pair was timed in one run, interleaved in random order,
in CPU time of one thread where nothing else is said; a ratio is the median over rounds, with its quartiles. Trust
ratios: seconds are of the machine named, which had other work.
"""


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})"


def pipeline(kept: dict[str, Any]) -> str:
    rows = [
        (name, f"{way['us_an_image']:.0f}", spread(way["reference_takes"]), spread(way["takes_of_ours"]))
        for name, way in kept["one_core"].items()
    ]
    head = (
        "JPEG files or shards to batches of 64",
        "µs an image",
        "times as fast as the first",
        "times the shards' time",
    )
    bytes_differing = sum(kept["differing_bytes"].values())
    return (
        f"{table(head, rows)}\nTwo reading processes are {spread(kept['two_workers_times_one'])} times as fast as one. "
        f"{bytes_differing} bytes of our own ways differ from Pillow's. {kept['photos']['count']} photos of "
        f"{kept['photos']['mean_bytes']['plain'] / 1e3:.0f} kB on average: {kept['photos']['note']}.\n"
    )


def prelu(kept: dict[str, Any]) -> str:
    kinds = list(next(iter(kept["operation"].values())))
    operation = [(shape, *[spread(ratios[kind]) for kind in kinds]) for shape, ratios in kept["operation"].items()]
    step = [(n, f"{kept['step_ms_an_image'][n]:.1f}", spread(ratio)) for n, ratio in kept["step"].items()]
    memory = [(name, f"{count / 2**20:.2f}") for name, count in kept["kept_bytes_an_image"].items()]
    size = f"a step of small14, batch {kept['batch']}"
    return "\n".join(
        [
            "Forward and backward of the activation alone, times ReLU's:\n",
            table(("", *kinds), operation),
            table((size, "ms an image", "times ReLU's of that layout"), step),
            table(("small14 at 224 px keeps for the backward pass", "MiB an image"), memory),
        ]
    )


def step(kept: dict[str, Any]) -> str:
    rows = [
        (n, f"{kept['ms_an_image'][n]:.1f}", spread(ratio), f"{100 * kept['share_of_products'][n]:.0f} %")
        for n, ratio in kept["times_as_fast"].items()
    ]
    step_of = f"a step of {kept['model']} with PReLU, batch {kept['batch']}"
    head = (step_of, "ms an image", "times as fast", "of the products' rate")
    larger = kept["larger"]
    more = (
        f" The optimiser's part does not grow with the batch: with {larger['batch']} images the way of compute=cpu "
        f"is {spread(larger['times_as_fast'])} times as fast."
        if larger
        else ""
    )
    rates = " and ".join(f"{rate:.3g} TFLOP/s in {name}" for name, rate in kept["tflops_of_products"].items())
    return f"{table(head, rows)}\nThe rate of square matrix products, measured in the same rounds, is {rates}.{more}\n"


def memory(kept: dict[str, Any]) -> str:
    columns = list(next(iter(kept["bytes"].values())))
    rows = [(model, *[f"{found[name] / 2**30:.2f}" for name in columns]) for model, found in kept["bytes"].items()]
    head = (f"GiB at most in a step of batch {kept['batch']}, float32", *columns)
    return (
        f"{table(head, rows)}\nWeights, gradients, momentum and maps, as torch's tracker counts them on tensors "
        "without numbers; what the library of convolutions needs meanwhile is not in it. A step of small14 with real "
        f"numbers and PReLU holds {kept['real_prelu_of_relu']:.4f} times what ReLU's does. Maps are computed again by "
        "`compute.activation_checkpointing=true`.\n"
    )


def frameworks(kept: dict[str, Any]) -> str:
    rows = [(n, f"{kept['ms_an_image'][n]:.0f}", spread(ratio)) for n, ratio in kept["times_ours"].items()]
    versions = ", ".join(f"{name} {version}" for name, version in kept["libraries"].items())
    head = (f"a step of VGG-19 with PReLU, batch {kept['batch']}, float32", "ms an image", "times ours")
    return (
        f"{table(head, rows)}\n{versions}. The optimiser's part is large at this batch. What they do better is not in "
        "a step: timm's networks with weights, torchvision's recipes, Keras' backends.\n"
    )


def overhead(kept: dict[str, Any]) -> str:
    shares = [100 * share for share in kept["shares"]]
    rows = [(part, f"{ms:.1f}") for part, ms in kept["ms_a_step"].items()]
    ends = ", ".join(f"{part} {ms:.0f} ms" for part, ms in kept["ms_an_epoch"].items())
    spent = f"{statistics.median(shares):.2f} % ({min(shares):.2f} to {max(shares):.2f} %, n = {len(shares)})"
    return (
        f"{table(('a step of small14, batch 8', 'ms'), rows)}\nThe last line is {spent} of forward, backward and "
        f"optimiser. Once an epoch: {ends}. "
        f"`{' '.join(kept['run'])}`.\n"
    )


def scaling(kept: dict[str, Any]) -> str:
    rows = [(n, f"{kept['seconds'][n]:.2f}", spread(ratio)) for n, ratio in kept["times_alone"].items()]
    head = (f"a step of small14, batch {kept['batch']} a process", "s", "times one alone")
    within, after = (f"{100 * share:.0f} %" for share in kept["waiting"].values())
    return (
        f"{table(head, rows)}\nTwo processes on two cores, gloo over the loopback, wall clock. Weak scaling with DDP "
        f"is {spread(kept['efficiency'])}. Of a step the wait for {kept['gradient_bytes'] / 1e6:.0f} MB of gradients "
        f"is {within}, and {after} where they are reduced "
        "after the backward pass. What it means for more machines: [scale.md](scale.md).\n"
    )


def responses(kept: dict[str, Any]) -> str:
    shares = [100 * share for share in kept["shares"]]
    return (
        f"Listening to every layer's responses takes {100 * kept['share']:.2f} % ({min(shares):.2f} to "
        f"{max(shares):.2f} %, n = {len(shares)}) of the CPU time of `{' '.join(kept['run'])}`.\n"
    )


def windows(kept: dict[str, Any]) -> str:
    rows = [(n, f"{kept['seconds'][n]:.2f}", spread(ratio)) for n, ratio in kept["times_dense"].items()]
    head = (
        f"{2 * sum(kept['windows'])} windows at three scales, mirrored too",
        "CPU s an image",
        "times dense testing's",
    )
    return f"{table(head, rows)}\nMean scores differ by {kept['difference']:.1e} at most.\n"


def startup(kept: dict[str, Any]) -> str:
    rows = [
        (name, f"{s['wall_s']:.2f} ({s['wall_range_s'][0]:.2f} to {s['wall_range_s'][1]:.2f})", f"{s['cpu_s']:.2f}")
        for name, s in kept["seconds"].items()
    ]
    return (
        f"{table(('train.py, whole processes', 'wall s, median (least to most)', 'CPU s'), rows)}\n"
        "A run of one epoch of a small perceptron is start-up and little else; W&B is offline. The second run of a "
        f"sweep takes {statistics.median(kept['second_run_s']):.2f} s from its start to its end.\n"
    )


SECTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
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


def document() -> str:
    """Return the whole document; what has not been measured on a machine is left out."""
    parts = [HEAD]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text())
        machine = found["machine"]
        device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
        parts.append(f"## {device}{machine['cores']} cores of {machine['cpu']}\n")
        for name, (title, told) in SECTIONS.items():
            if name in found["questions"]:
                kept = found["questions"][name]
                rounds = f", {kept['rounds']} rounds" if "rounds" in kept else ""
                about = f"torch {kept['versions']['torch']}, code {kept['code']}{rounds}"
                parts += [f"### {title}\n", told(kept), f"`python scripts/bench/{name}.py`; {about}.\n"]
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
