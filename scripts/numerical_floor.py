"""Measure how far rounding moves one result: `results/numerical_floor.csv`.

The runs of four seeds are trained in 24 variants each: SGD fused or not, maps channels last or
first, one or two threads, and the instruction sets of older processors. Each variant has a folder
of runs of its own. What is finished is not run again, so an interrupted measurement continues.

Examples:
  python scripts/numerical_floor.py digits8
  python scripts/numerical_floor.py cifar10 --root data/cifar10
"""

import argparse
import csv
import io
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

from rectifiers.results.frame import code_of, machine_of
from rectifiers.results.numerical_floor import DIVERGED, FILE, SUFFIX, rounding_table
from rectifiers.runs import record as records
from rectifiers.runtime.files import write_text

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / FILE
ERRORS = ("center", "ten_view")
RUNS = {  # by data: PReLU's runs of a claim or a table
    "digits8": ("experiment=claim/learned_slope", "activation=prelu"),
    "digits": ("experiment=table2/prelu", "data=digits"),
    "cifar10": ("experiment=claim/cifar_table2", "activation=prelu", "optim.lr=0.02"),
}
SEEDS = (0, 1, 2, 3)
INSTRUCTIONS = {  # of torch's own kernels, oneDNN and MKL
    "native": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "sse4": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}
Variant = tuple[str, int, bool, bool]  # instructions, threads, channels last, fused
VARIANTS: tuple[Variant, ...] = tuple(product(INSTRUCTIONS, (1, 2), (True, False), (True, False)))


def name_of(variant: Variant) -> str:
    """Return the variant as it stands in the table."""
    instructions, threads, channels_last, fused = variant
    maps = "channels-last" if channels_last else "channels-first"
    count = f"{threads} thread{'s'[: threads - 1]}"
    return f"{instructions}, {count}, {maps}, {'fused' if fused else 'foreach'}"


def folder_of(data: str, variant: Variant, runs: Path) -> Path:
    return runs / data / name_of(variant).replace(", ", "_").replace(" ", "_")


def train(data: str, seed: int, variant: Variant, runs: Path, root: Path | None) -> None:
    """Run a variant of a seed in a process of its own; a run with a record ends at once."""
    instructions, threads, channels_last, fused = variant
    overrides = [*RUNS[data], f"seed={seed}", "logger=none", f"threads={threads}"]
    overrides += [f"channels_last={channels_last}", f"optim.fused={fused}"]
    overrides += [f"runs_dir='{folder_of(data, variant, runs)}'"]
    overrides += [] if root is None else [f"data.root='{root.absolute()}'"]
    environment = {**os.environ, **INSTRUCTIONS[instructions], "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, str(ROOT / "train.py"), *overrides]
    subprocess.run(command, env=environment, cwd=ROOT, stdout=sys.stderr)


def rows(data: str, runs: Path) -> list[dict[str, str]]:
    """Return a row per finished run: its variant, origin, errors in percent and last training loss.

    Of a seed's variants with one loss, which round alike, the first one is kept."""
    table: dict[tuple[str, str], dict[str, str]] = {}  # by seed, and loss or variant
    for variant in VARIANTS:
        for path in folder_of(data, variant, runs).glob("*/record.json"):
            record = records.load_training(path)
            row = {"data": data, "seed": str(record.seed), "variant": name_of(variant)}
            row |= {"run": record.run, "code": code_of(record), "machine": machine_of(record)}
            for name in ERRORS:
                result = record.protocols.get(name)
                row[f"{name}{SUFFIX}"] = str(result.top1_error_pct) if result else ""
            is_finished = record.status == "finished"
            row["train_loss"] = str(record.history[-1]["train_loss"]) if is_finished else DIVERGED
            key = row["train_loss"] if is_finished else row["variant"]
            table.setdefault((row["seed"], key), row)
    return sorted(table.values(), key=lambda row: int(row["seed"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=RUNS, help="the data to measure it on")
    parser.add_argument("--root", type=Path, help="data.root of the runs")
    folder = Path("runs") / "numerical_floor"
    parser.add_argument("--runs", type=Path, default=folder, help="the folder of its runs")
    options = parser.parse_args()
    runs = options.runs.absolute()
    for variant, seed in product(VARIANTS, SEEDS):
        train(options.data, seed, variant, runs, options.root)
    measured = rows(options.data, runs)
    if not measured:
        sys.exit(f"error: no run of {options.data} finished in {runs}; see the messages above")
    with TABLE.open(newline="") as file:
        measured += [row for row in csv.DictReader(file) if row["data"] != options.data]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(measured[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(measured, key=lambda row: list(RUNS).index(row["data"])))
    write_text(TABLE, text.getvalue())
    print(rounding_table(TABLE.parent), end="")


if __name__ == "__main__":
    main()
