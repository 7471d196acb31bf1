"""How far one result moves under changes that a run's name leaves out: `results/numerical_floor.csv`.

The same run in 16 variants: SGD fused or not, maps channels last or first, one or two threads, and the instructions of
older processors in place of this one's. Each is a process `train.py` with a folder of its own, one after the other
(about two minutes each); what is finished is not run again, so an interrupted measurement continues. The committed
table has the first 13 that were finished; without the others its spread is as good an estimate.

python scripts/numerical_floor.py
python scripts/numerical_floor.py --finished     tabulate what is finished, and run nothing
"""

import argparse
import csv
import io
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from rectifiers.results.numerical_floor import FILE, SUFFIX
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import spread_of
from rectifiers.runs import record as records
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.files import write_text

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / FILE
RUN = ("activation=prelu", "init=he", "data=digits", "data.protocol=paper", "logger=none")
INSTRUCTIONS = {  # of torch's own kernels, oneDNN and MKL
    "native": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
# instructions, threads, channels last, fused; after one epoch no two of them have the same weights
VARIANTS = (
    *product(["native"], [1], [True, False], [True, False]),
    *product(["avx2"], [1, 2], [True, False], [True]),
    *product(["native"], [2], [True, False], [True, False]),
    *product(["sse4"], [1, 2], [True, False], [True]),
)


def name_of(instructions: str, threads: int, channels_last: bool, fused: bool) -> str:
    """Return what tells a variant from the others, as it stands in the table."""
    maps = "channels-last" if channels_last else "channels-first"
    return f"{instructions}, {threads} thread{'s'[: threads - 1]}, {maps}, {'fused' if fused else 'foreach'}"


def train(runs: Path, variant: tuple[str, int, bool, bool]) -> None:
    """Run a variant in a process of its own, unless its record is there."""
    if records_of(runs, variant):
        return
    print(name_of(*variant), file=sys.stderr)
    instructions, threads, channels_last, fused = variant
    compute = f"compute.threads={threads} compute.channels_last={channels_last} compute.fused={fused}".split()
    command = [sys.executable, str(ROOT / "train.py"), *RUN, *compute, f"runs_dir={folder_of(runs, variant)}"]
    environment = {**os.environ, **INSTRUCTIONS[instructions], "OMP_WAIT_POLICY": "PASSIVE"}
    subprocess.run(command, env=environment, cwd=ROOT, stdout=sys.stderr, check=True)


def folder_of(runs: Path, variant: tuple[str, int, bool, bool]) -> Path:
    return runs / name_of(*variant).replace(", ", "_").replace(" ", "_")


def records_of(runs: Path, variant: tuple[str, int, bool, bool]) -> list[TrainingRecord]:
    return [records.load_training(path) for path in folder_of(runs, variant).glob("*/record.json")]


def rows(runs: Path) -> list[dict[str, Any]]:
    """Return a row per finished variant: its run and origin, errors in percent, and the last epoch's training loss."""
    return [
        {
            "variant": name_of(*variant),
            "run": record.run,
            "code": code_of(record),
            "machine": machine_of(record),
            **{f"{name}{SUFFIX}": result.top1_error_pct for name, result in sorted(record.protocols.items())},
            "train_loss": record.history[-1]["train_loss"],
        }
        for variant in VARIANTS
        for record in records_of(runs, variant)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs") / "numerical_floor", help="the folder of its runs")
    parser.add_argument("--finished", action="store_true", help="tabulate what is finished, and run nothing")
    asked = parser.parse_args()
    for variant in () if asked.finished else VARIANTS:
        train(asked.runs.absolute(), variant)
    table = rows(asked.runs)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_text(TABLE, text.getvalue())
    for measure in list(table[0])[4:]:
        spread = spread_of([float(row[measure]) for row in table])
        print(f"{measure}: n {spread.n}, {spread.low:.4g} to {spread.high:.4g}, sd {spread.sd:.3g}")


if __name__ == "__main__":
    main()
