"""What starting costs: `--help`, a run that is finished already, and a short run without logger,
with csv, with W&B.

`python scripts/bench/startup.py [rounds]` prints a table and writes results/bench/<machine>.json.
Wall clock and CPU time of whole processes with all their children, interleaved; a first round warms
up. W&B is offline, and files are in the page cache."""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import measure

ROOT = Path(__file__).parents[2]
TINY = (
    "model=mlp",
    "model.depth=2",
    "model.hidden=32",
    "data=digits8",
    "optim=plain",
    "trainer.max_epochs=1",
    "evaluation=[center]",
)
SWEEP, TWICE = "--multirun of one run", "--multirun of two runs"


def time_of(*arguments: str) -> tuple[float, float]:
    """Run train.py; return its (wall, CPU) seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "train.py", *arguments], cwd=ROOT, check=True, capture_output=True
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        cache = f"cache_dir={place}/cache"
        tiny = (*TINY, f"runs_dir={place}/runs", cache)
        short = (
            "trainer.max_epochs=1",
            "evaluation=center",
            f"runs_dir={place}/first",
            cache,
            "rerun=true",
            "logger=none",
        )
        ways: dict[str, tuple[str, ...]] = {
            "--help": ("--help",),
            "a run that is finished": (*tiny, "logger=none"),
        }
        for logger in ("none", "csv", "wandb"):
            offline = ("logger.mode=offline",) if logger == "wandb" else ()
            own = (
                *TINY,
                f"runs_dir={place}/{logger}",
                cache,
                "rerun=true",
                f"logger={logger}",
                *offline,
            )
            ways[f"a run of one epoch, logger={logger}"] = own
        for name, seeds in ((SWEEP, "0"), (TWICE, "0,1")):
            ways[name] = ("--multirun", *tiny, "logger=none", f"seed={seeds}", "rerun=true")
        ways["make train's run, its first epoch of 75"] = short
        time_of(*tiny, "logger=none")  # the run that is finished
        rounds_of = [
            {name: time_of(*arguments) for name, arguments in ways.items()}
            for _ in range(rounds + 1)
        ][1:]
    seconds = {}
    for name in ways:
        walls, cpus = zip(*(times[name] for times in rounds_of), strict=True)
        seconds[name] = {
            "wall_s": statistics.median(walls),
            "wall_range_s": [min(walls), max(walls)],
            "cpu_s": statistics.median(cpus),
        }
    second = [times[TWICE][0] - times[SWEEP][0] for times in rounds_of]
    return {"seconds": seconds, "second_run_s": second}


if __name__ == "__main__":
    measure(main, __doc__, rounds=7)
