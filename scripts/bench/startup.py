"""What starting costs: `--help`, a run that is finished already, and a short run without logger, with csv, with W&B.

`python scripts/bench/startup.py [rounds]` prints a table and writes results/bench/<machine>.json. Wall clock and CPU
time of whole processes with all their children, interleaved; W&B is offline, and files are in the page cache.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from pairs import keep, show

ROOT = Path(__file__).parents[2]
TINY = (
    "model=mlp", "model.depth=2", "model.hidden=32", "data=digits8", "optim=plain", "optim.epochs=1",
    "evaluation=[center]",
)  # fmt: skip
SWEEP, TWICE = "--multirun of one run", "--multirun of two runs"


def command(*arguments: str) -> tuple[float, float]:
    """Run train.py; return its (wall, CPU) seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "train.py", *arguments], cwd=ROOT, check=True, capture_output=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        there = (*TINY, f"runs_dir={place}/runs", f"cache_dir={place}/cache")
        command(*there, "logger=none")
        ways = {"--help": partial(command, "--help"), "a run that is finished": partial(command, *there, "logger=none")}
        for logger in ("none", "csv", "wandb"):
            given = (*there, f"runs_dir={place}/{logger}", "rerun=true", f"logger={logger}")
            ways[f"a run of one epoch, logger={logger}"] = partial(
                command, *given, *(["logger.mode=offline"] if logger == "wandb" else [])
            )
        one, two = (("--multirun", *there, "logger=none", f"seed={seeds}", "rerun=true") for seeds in ("0", "0,1"))
        ways |= {SWEEP: partial(command, *one), TWICE: partial(command, *two)}
        first = (f"runs_dir={place}/first", f"cache_dir={place}/cache", "optim.epochs=1", "evaluation=center")
        ways["make train's run, its first epoch of 75"] = partial(command, *first, "rerun=true", "logger=none")
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for n in range(rounds + 1):  # the first warms up
            for name, way in ways.items():
                found = way()
                if n:
                    taken[name].append(found)
    seconds = {
        name: {
            "wall_s": statistics.median(wall for wall, _ in kept),
            "wall_range_s": [min(wall for wall, _ in kept), max(wall for wall, _ in kept)],
            "cpu_s": statistics.median(cpu for _, cpu in kept),
        }
        for name, kept in taken.items()
    }
    rows = [(name, f"{s['wall_s']:.2f}", f"{s['cpu_s']:.2f}") for name, s in seconds.items()]
    show(f"medians of {rounds} rounds", rows, ("train.py", "wall s", "CPU s"))
    second = [two - one for (one, _), (two, _) in zip(taken[SWEEP], taken[TWICE], strict=True)]
    print(f"a second run of a sweep, from its start to its end: {statistics.median(second):.2f} s")
    keep("startup", {"rounds": rounds, "seconds": seconds, "second_run_s": second})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
