"""How far one result moves under changes that a run's name leaves out:
`results/numerical_floor.csv`.

For each data set that results are claimed on, the runs of a few seeds in 24 variants each: SGD
fused or not, maps channels last or first, one or two threads, and the instructions of older
processors in place of this one's. Each is a process `train.py` with a folder of its own, `--jobs`
at a time; what is finished is not run again, so an interrupted measurement continues. The table
takes what is finished, for a spread of fewer is as good an estimate, if a wider one; of variants
that round alike it takes one, and of other data it keeps what it has.

python scripts/numerical_floor.py digits8
python scripts/numerical_floor.py cifar10 --root data/cifar10 --jobs 2
python scripts/numerical_floor.py cifar10 --finished     tabulate what is finished, and run nothing
"""

import argparse
import csv
import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path

from rectifiers.results.frame import code_of, machine_of
from rectifiers.results.numerical_floor import DIVERGED, FILE, SUFFIX, rounding_table
from rectifiers.runs import record as records
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.files import write_text

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / FILE
ERRORS = ("center", "ten_view")
RUNS = {  # by data: PReLU's runs in what is claimed on them
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
Variant = tuple[str, int, bool, bool]
# instructions, threads, channels last, fused
VARIANTS: tuple[Variant, ...] = tuple(product(INSTRUCTIONS, (1, 2), (True, False), (True, False)))


def name_of(variant: Variant) -> str:
    """Return what tells a variant from the others, as it stands in the table."""
    instructions, threads, channels_last, fused = variant
    maps = "channels-last" if channels_last else "channels-first"
    return (
        f"{instructions}, {threads} thread{'s'[: threads - 1]}, {maps}, "
        f"{'fused' if fused else 'foreach'}"
    )


def train(data: str, seed: int, variant: Variant, runs: Path, root: Path | None) -> None:
    """Run a variant of a seed in a process of its own, unless its record is there."""
    if any(record.seed == seed for record in records_of(data, variant, runs)):
        return
    print(f"{data}, seed {seed}: {name_of(variant)}", file=sys.stderr, flush=True)
    instructions, threads, channels_last, fused = variant
    overrides = [
        *RUNS[data],
        f"seed={seed}",
        "logger=none",
        f"runs_dir='{folder_of(data, variant, runs)}'",
    ]
    overrides += f"threads={threads} channels_last={channels_last} optim.fused={fused}".split()
    overrides += [] if root is None else [f"data.root='{root.absolute()}'"]
    environment = {**os.environ, **INSTRUCTIONS[instructions], "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, str(ROOT / "train.py"), *overrides]
    ended = subprocess.run(command, env=environment, cwd=ROOT, stdout=sys.stderr)
    if not any(
        record.seed == seed for record in records_of(data, variant, runs)
    ):  # one that diverged has a record
        raise subprocess.CalledProcessError(ended.returncode, command)


def train_all(data: str, runs: Path, root: Path | None, jobs: int) -> None:
    """Run every variant of every seed; where one fails, those that have not begun are not begun."""
    pool = ThreadPoolExecutor(jobs)
    wanted = product(VARIANTS, SEEDS)
    try:
        for done in as_completed(
            [pool.submit(train, data, seed, variant, runs, root) for variant, seed in wanted]
        ):
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def folder_of(data: str, variant: Variant, runs: Path) -> Path:
    return runs / data / name_of(variant).replace(", ", "_").replace(" ", "_")


def records_of(data: str, variant: Variant, runs: Path) -> list[TrainingRecord]:
    """Return the finished runs of a variant, in the order of their seeds."""
    found = (
        records.load_training(path) for path in folder_of(data, variant, runs).glob("*/record.json")
    )
    return sorted(found, key=lambda record: record.seed)


def rows(data: str, runs: Path) -> list[dict[str, str]]:
    """Return a row per finished variant: its run and origin, errors in percent, and the last
    epoch's training loss.

    Variants of a seed with the loss of an earlier one went its way, as one thread and two do in
    small networks. One that diverged has no errors, and no loss that could be that of another."""
    found = [
        {
            "data": data,
            "seed": str(record.seed),
            "variant": name_of(variant),
            "run": record.run,
            "code": code_of(record),
            "machine": machine_of(record),
            **{
                f"{name}{SUFFIX}": str(record.protocols[name].top1_error_pct)
                if name in record.protocols
                else ""
                for name in ERRORS
            },
            "train_loss": str(record.history[-1]["train_loss"])
            if record.status == "finished"
            else DIVERGED,
        }
        for variant in VARIANTS
        for record in records_of(data, variant, runs)
    ]
    first = {
        (row["seed"], row["variant"] if row["train_loss"] == DIVERGED else row["train_loss"]): row
        for row in reversed(found)
    }
    return sorted(first.values(), key=lambda row: (int(row["seed"]), found.index(row)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=RUNS, help="the data to measure it on")
    parser.add_argument("--root", type=Path, help="data.root of the runs")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs") / "numerical_floor", help="the folder of its runs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument(
        "--finished", action="store_true", help="tabulate what is finished, and run nothing"
    )
    asked = parser.parse_args()
    if asked.jobs < 1:
        parser.error(f"--jobs {asked.jobs} runs nothing; give 1 or more")
    runs = asked.runs.absolute()
    if not asked.finished:
        train_all(asked.data, runs, asked.root, asked.jobs)
    found = rows(asked.data, runs)
    if not found:
        sys.exit(f"nothing of {asked.data} is finished in {runs}; run it without --finished")
    with TABLE.open(newline="") as file:
        kept = [row for row in csv.DictReader(file) if row["data"] != asked.data]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted([*kept, *found], key=lambda row: list(RUNS).index(row["data"])))
    write_text(TABLE, text.getvalue())
    print(rounding_table(TABLE.parent), end="")


if __name__ == "__main__":
    main()
