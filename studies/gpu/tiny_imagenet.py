"""No activation, ReLU, a fixed slope and PReLU side by side on Tiny-ImageNet, for one GPU.

tiny_imagenet.yaml has the plan, and README.md the commands of each call. Each step continues where
it was interrupted, and adds its records to tiny_imagenet.jsonl.xz.

Examples:
  python studies/gpu/tiny_imagenet.py time data.root=data/tiny runs_dir=/dev/shm/runs
  python studies/gpu/tiny_imagenet.py judge --seed 1 data.root=data/tiny runs_dir=/dev/shm/runs
"""

import argparse
import json
import lzma
import math
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rectifiers.cli.composition import compose_job
from rectifiers.cli.runner import Overrides, run_all
from rectifiers.results.documents import estimate, markdown
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import cli_errors, say
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, load_yaml
from rectifiers.runtime.schema import JsonObject

HERE = Path(__file__).parent
PLAN: JsonObject = load_yaml((HERE / "tiny_imagenet.yaml").read_text())
RECORDS = HERE / "tiny_imagenet.jsonl.xz"
EVERY_S = 30  # between lines about the epochs that are done
VAL_ERROR = "val/top1_error_pct"
NONE = "identity"  # the arm without an activation


class Name(NamedTuple):
    """A run of a step: `time`, `search` or `judge`."""

    step: str
    arm: str
    rate: float
    seed: int

    def __str__(self) -> str:
        return f"{self.step}, {self.arm} at {self.rate:g}, seed {self.seed}"


Runs = dict[Name, Overrides]
Known = dict[str, TrainingRecord]  # by run id


# ---- the rules ----


def batch_of(record: TrainingRecord) -> int:
    return int(record.science["data"]["batch_size"])


def seconds_per_epoch(record: TrainingRecord) -> float:
    """Return what a whole epoch takes, by the last one of a record, which may be shortened: the
    training images at its rate, and its validation."""
    last, batch = record.history[-1], batch_of(record)
    steps = record.images.train // batch
    timed = min(steps, record.science.get("trainer", {}).get("limit_train_batches", steps))
    images_per_second, seconds = last["images_per_second"], last["seconds"]
    assert images_per_second
    assert seconds
    return seconds + (steps - timed) * batch / images_per_second


def seconds_of_tests(record: TrainingRecord) -> float:
    return sum(result.seconds for result in record.protocols.values())


def slowest_epoch_s(
    timed: Mapping[Name, TrainingRecord], searched: Mapping[Name, TrainingRecord]
) -> float:
    """Return what an epoch of the slowest arm takes: by its timed steps, or by its mean over the
    search, in which the processes have trained side by side for longer."""
    by_arm: dict[str, list[float]] = {}
    for name, record in searched.items():
        if record.status == "finished":
            by_arm.setdefault(name.arm, []).append(seconds_per_epoch(record))
    return max(*map(seconds_per_epoch, timed.values()), *map(fmean, by_arm.values()), 0.0)


def choose_epochs(epoch_s: float, tests_s: float, rule: JsonObject) -> int:
    """Return the number of epochs of all arms; see tiny_imagenet.yaml."""
    training_s = rule["share"] * (rule["call_s"] - rule["start_s"] - tests_s)
    epochs = min(rule["most"], math.floor(training_s / epoch_s))
    if epochs < rule["fewest"]:
        raise InputError(
            f"epochs.call_s={rule['call_s']} leaves time for {epochs} epochs; give a longer one, "
            "before any judged run"
        )
    return epochs


def choose_rates(
    errors: Mapping[tuple[str, float], Sequence[float | None]],
) -> dict[str, float]:
    """Return each arm's rate with the lowest mean validation error; a rate at which a seed diverged
    (None) is left out."""
    chosen: dict[str, tuple[float, float]] = {}
    for (arm, rate), of_seeds in errors.items():
        finite = [error for error in of_seeds if error is not None]
        if len(finite) == len(of_seeds) and finite:
            chosen[arm] = min(chosen.get(arm, (math.inf, rate)), (fmean(finite), rate))
    if lost := sorted({arm for arm, _ in errors} - chosen.keys()):
        raise InputError(f"{lost[0]} diverged at each rate; give search.rates lower ones")
    return {arm: rate for arm, (_, rate) in chosen.items()}


def is_end(rate: float, grid: Sequence[float]) -> bool:
    """Return whether a rate has no neighbour on one side."""
    return rate in (min(grid), max(grid))


# ---- runs and records ----


def runs_of(step: str, part: JsonObject, more: Sequence[str]) -> Runs:
    """Return the overrides of a step's runs by name, seed by seed.

    part: its seeds, its rates for all arms or by arm, and its overrides. more: those of the
    command line, which take precedence."""
    rates = part["rates"]
    return {
        Name(step, arm, rate, seed): (
            *(*PLAN["base"], *PLAN["machine"], *overrides, f"optim.lr={rate:g}", f"seed={seed}"),
            *(*part["overrides"], *more),
        )
        for seed in part["seeds"]
        for arm, overrides in PLAN["arms"].items()
        for rate in (rates[arm] if isinstance(rates, dict) else rates)
    }


def judged_part(more: Sequence[str], known: Known) -> JsonObject:
    """Return the judged seeds with the rates and the length that follow from the first part."""
    searched = found(runs_of("search", PLAN["search"], more), known)
    errors: dict[tuple[str, float], list[float | None]] = {}
    for name, record in searched.items():
        error = record.history[-1][VAL_ERROR] if record.status == "finished" else None
        errors.setdefault((name.arm, name.rate), []).append(error)

    timed = found(runs_of("time", PLAN["time"], more), known)
    tests_s = max(map(seconds_of_tests, timed.values()))
    epochs = choose_epochs(slowest_epoch_s(timed, searched), tests_s, PLAN["epochs"])
    drops = [math.floor(share * epochs) for share in PLAN["epochs"]["drops"]]
    return {
        "seeds": PLAN["judge"]["seeds"],
        "rates": {arm: [rate] for arm, rate in choose_rates(errors).items()},
        "overrides": [f"trainer.max_epochs={epochs}", f"scheduler.milestones={json.dumps(drops)}"],
    }


def id_of(overrides: Overrides) -> str:
    return run_id(science(compose_job(overrides)[0]))


def found(runs: Runs, known: Known) -> dict[Name, TrainingRecord]:
    """Return the records of runs, all of which must be there."""
    ids = {name: id_of(overrides) for name, overrides in runs.items()}
    if lacking := [name for name, run in ids.items() if run not in known]:
        raise InputError(f"{lacking[0]} has no record; call the step {lacking[0].step} first")
    return {name: known[run] for name, run in ids.items()}


def load(path: Path) -> Known:
    """Return the kept records by run id."""
    lines = lzma.decompress(path.read_bytes()).splitlines() if path.exists() else []
    read = map(records.parse, lines)
    return {record.run: record for record in read if isinstance(record, TrainingRecord)}


def prepare(overrides: Overrides) -> None:
    """Decode the photographs and fit the preprocessing once, before processes share both."""
    from rectifiers.training import build
    from rectifiers.training.targets import import_functions

    config = compose_job(overrides)[0].replaced({"trainer.accelerator": "cpu"})
    functions = import_functions(config)
    source = build.inspect_source(build.open_source(config, functions), config)
    build.build_preprocess(config, functions, build.build_data(config, source))


def folders_of(runs: Runs) -> dict[Name, Path]:
    return {
        name: compose_job(overrides)[0].runs_dir / id_of(overrides)
        for name, overrides in runs.items()
    }


def add_complete(known: Known, folders: Collection[Path]) -> bool:
    """Add the records in runs' folders to those that are known; return whether there were any."""
    new = [f for f in folders if f.name not in known and (f / "record.json").exists()]
    known |= {folder.name: records.load_training(folder / "record.json") for folder in new}
    return bool(new)


def save(known: Known, path: Path) -> None:
    lines = "".join(records.to_json(known[run]) + "\n" for run in sorted(known))
    with atomic_file(path) as file:
        file.write(lzma.compress(lines.encode()))


def watch(folders: Mapping[Name, Path], known: Known, kept: Path, is_over: threading.Event) -> None:
    """Print now and then how many epochs each run has done, and keep the records of those that are
    complete: a machine that is taken away takes the open runs alone."""
    while not is_over.wait(EVERY_S):
        if add_complete(known, folders.values()):
            save(known, kept)
        for name, folder in folders.items():
            with suppress(OSError):
                done = (folder / "metrics.csv").read_text().count("\n") - 1
                if not (folder / "record.json").exists():
                    say(f"{name}: {done} epochs")


def train_all(runs: Runs, known: Known, kept: Path) -> bool:
    """Train the runs that have no record, as many at a time as there are arms, and keep the records
    of those that are complete, also where the step is stopped; return whether all are."""
    folders = folders_of(runs)
    for folder in folders.values():
        if folder.name in known and not (folder / "record.json").exists():
            records.write(folder / "record.json", known[folder.name])

    is_over = threading.Event()
    watcher = threading.Thread(target=watch, args=(folders, known, kept, is_over), daemon=True)
    watcher.start()
    try:
        prepare(next(iter(runs.values())))
        return not run_all(list(runs.values()), processes=len(PLAN["arms"]))
    finally:
        is_over.set()
        watcher.join()
        add_complete(known, folders.values())
        save(known, kept)


# ---- what is printed ----


def timing(runs: Mapping[Name, TrainingRecord]) -> str:
    """Return how long each arm takes, and the number of epochs that follows from that alone."""
    rows = []
    for name, record in runs.items():
        steps_s = (record.history[-1]["images_per_second"] or 0) / batch_of(record)
        seconds = seconds_per_epoch(record), seconds_of_tests(record)
        rows.append((name.arm, *(f"{number:.1f}" for number in (steps_s, *seconds))))
    head = ("arm", "steps per second", "seconds per epoch", "seconds of tests")
    tests_s = max(map(seconds_of_tests, runs.values()))
    epochs = choose_epochs(slowest_epoch_s(runs, {}), tests_s, PLAN["epochs"])
    return f"{markdown(head, rows)}\nEpochs of each arm that fit, before the search: {epochs}"


def table(part: JsonObject, more: Sequence[str], known: Known) -> str:
    """Return the errors of the judged runs, which describe one length of training."""
    ids = {name: id_of(overrides) for name, overrides in runs_of("judge", part, more).items()}
    judged = {name: known[run] for name, run in ids.items() if run in known}
    finished = {name: record for name, record in judged.items() if record.status == "finished"}
    if not finished:
        raise InputError("no judged run has finished; call the step judge --seed first")
    tested = {(name.arm, name.seed): run.protocols["ten_view"] for name, run in finished.items()}

    rows = []
    for arm in PLAN["arms"]:
        (rate,) = part["rates"][arm]
        at_end = ", an end of the grid" if is_end(rate, PLAN["search"]["rates"]) else ""
        seeds = [seed for seed in part["seeds"] if (arm, seed) in tested]
        lost = sum(name.arm == arm for name in judged) - len(seeds)

        top1 = {seed: tested[arm, seed].top1_error_pct for seed in seeds}
        top5 = [tested[arm, seed].top5_error_pct or 0.0 for seed in seeds]
        pairs = [seed for seed in seeds if (NONE, seed) in tested]
        minus = [top1[seed] - tested[NONE, seed].top1_error_pct for seed in pairs]
        rows.append(
            (
                f"{arm} ({lost} diverged)" if lost else arm,
                f"{rate:g}{at_end}",
                estimate(list(top1.values())),
                estimate(top5),
                "-" if arm == NONE else estimate(minus, sign="+"),
            )
        )

    record = next(iter(finished.values()))
    steps = record.epochs * (record.images.train // batch_of(record))
    note = (
        f"Ten views of {record.images.test:,} test images after {record.epochs} epochs "
        f"({steps:,} steps); means with 95 % intervals over those of {len(part['seeds'])} seeds "
        "that have run. This describes one length of training and is no verdict on which error is "
        "lower. An arm whose difference from no activation is not below 0 by its whole interval "
        "gains nothing over no activation here."
    )
    head = ("arm", "learning rate", "top-1 error, %", "top-5 error, %", "top-1 minus no activation")
    return f"{note}\n\n{markdown(head, rows)}"


def run(step: str, more: Sequence[str], kept: Path, seed: int | None) -> bool:
    """Do a step; return whether all of its runs have records."""
    known = load(kept)
    for first in ("time", "search"):  # an earlier call may have left records that nobody copied
        add_complete(known, folders_of(runs_of(first, PLAN[first], more)).values())
    if step == "table":
        print(table(judged_part(more, known), more, known))
        return True

    part = PLAN[step] if seed is None else {**judged_part(more, known), "seeds": [seed]}
    runs = runs_of(step, part, more)
    is_complete = train_all(runs, known, kept)
    if is_complete and step == "time":
        print(timing(found(runs, known)))
    if is_complete and step == "search":
        part = judged_part(more, known)
        print(f"The judged runs follow: {' '.join(part['overrides'])}, rates {part['rates']}")
    return is_complete


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("step", choices=("time", "search", "judge", "table"))
    parser.add_argument("override", nargs="*", help="for every run, such as data.root=<folder>")
    parser.add_argument("--seed", type=int, choices=PLAN["judge"]["seeds"], help="of judge")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where records are kept")
    options = parser.parse_intermixed_args()
    if (options.step == "judge") != (options.seed is not None):
        parser.error("judge, and no other step, needs --seed")
    with cli_errors("interrupted; the same command continues"):
        sys.exit(not run(options.step, options.override, options.records, options.seed))


if __name__ == "__main__":
    main()
