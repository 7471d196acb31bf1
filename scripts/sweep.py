"""Many runs as one: planned on disk, started as far as they are missing, tabulated at any moment.

python scripts/sweep.py plan sweeps/slopes experiment=table2/relu,table2/prelu seed=0,1,2,3,4 data=digits
python scripts/sweep.py launch sweeps/slopes --jobs 2
python scripts/sweep.py status sweeps/slopes
python scripts/sweep.py collect sweeps/slopes
"""

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from rectifiers.results.statistics import mean_of
from rectifiers.runs.config import check
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.sweep import (
    Cell,
    State,
    last_words,
    load,
    load_cell,
    log_path,
    note_end,
    note_job,
    note_start,
    state,
    write,
)
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF
from rectifiers.runtime.signals import INTERRUPTED, deferring_signals, stop_if_requested

TO_START = (State.MISSING, State.FAILED, State.PRINTED)


def plan(sweep: Path, overrides: list[str]) -> None:
    """Write one cell for every combination of the choices that commas separate, as `--multirun` has them."""
    from rectifiers.training.cells import plan_cell

    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
        (combinations,) = BasicSweeper.split_arguments(parsed, None)
        cells = []
        with initialize_config_dir(str(CONF), version_base="1.3"):
            for typed in combinations:
                composed = compose("train", overrides=list(typed), return_hydra_config=True)
                choices = {g: o for g, o in composed.hydra.runtime.choices.items() if "hydra" not in g}
                with open_dict(composed):
                    del composed["hydra"]
                config: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
                check(config)
                cells.append(plan_cell(list(typed), config, choices))
    except (HydraException, OmegaConfBaseException) as fault:
        raise InputError(" ".join(str(fault).split())) from fault
    if len({cell.name for cell in cells}) < len(cells):
        name = Counter(cell.name for cell in cells).most_common(1)[0][0]
        same = " and ".join(" ".join(cell.overrides) for cell in cells if cell.name == name)
        raise InputError(f"{same} are the same run; leave one out")
    write(sweep, cells)
    print(f"{len(cells)} runs in {sweep}; start them with: python scripts/sweep.py launch {sweep}")


def command(sweep: Path, cell: Cell) -> list[str]:
    return [sys.executable, __file__, "run", str(sweep.absolute() / "cells" / f"{cell.name}.yaml")]


def launch(sweep: Path, asked: argparse.Namespace) -> None:
    """Start what is missing or failed; what runs or is queued, is done or diverged stays as it is."""
    if asked.jobs < 1:
        raise InputError(f"--jobs={asked.jobs} is not usable; give a whole number at least 1")
    cells = load(sweep)
    tell_of_other_source(cells)
    if not asked.print and not asked.cluster:
        (run_together if asked.together else run_local)(sweep, cells, asked.jobs)
        return
    states = [state(sweep, cell) for cell in cells]
    missing = [cell for cell, stands in zip(cells, states, strict=True) if stands in TO_START]
    if asked.print:
        for cell in missing:
            print(shlex.join(command(sweep, cell)))
            note_job(sweep, cell, "printed")
    else:
        submit(sweep, missing, asked.cluster, asked.set)
    waiting = states.count(State.WAITING)
    if waiting:
        print(f"{waiting} wait for other runs; launch again when those are done", file=sys.stderr)


def tell_of_other_source(cells: list[Cell]) -> None:
    """Say where a cell was planned with other source than there is now."""
    planned, now = {cell.code for cell in cells}, code_fingerprint()
    if planned != {now}:
        print(f"the source has changed since this was planned ({', '.join(planned)}; now {now})", file=sys.stderr)


def submit(sweep: Path, cells: list[Cell], cluster: str, settings: list[str]) -> None:
    """Hand the cells to submitit, an array of jobs."""
    import submitit

    from rectifiers.training.cells import Job

    if not cells:
        return
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise InputError(
            "--cluster=slurm needs sbatch, which is not here; call it where jobs are submitted, or --print"
        )
    executor = submitit.AutoExecutor(folder=sweep.absolute() / "submitit", cluster=cluster)
    try:
        executor.update_parameters(**{key: json.loads(value) for key, _, value in (s.partition("=") for s in settings)})
    except (ValueError, NameError, TypeError) as fault:
        raise InputError(f"--set={' --set='.join(settings)} is not usable ({fault}); give KEY=<JSON>") from fault
    with executor.batch():
        jobs = [executor.submit(Job(sweep.absolute(), cell)) for cell in cells]
    for job, cell in zip(jobs, cells, strict=True):
        note_job(sweep, cell, f"{cluster} {job.job_id}")
        print(f"{job.job_id} {cell.name} {' '.join(cell.overrides)}")
    if cluster == "local":  # submitit's local jobs end with the process that started them
        for job in jobs:
            job.wait()
        tell_of_lost(sweep, cells)


def run_together(sweep: Path, cells: list[Cell], jobs: int) -> None:
    """Run all that is missing in `jobs` processes, each one run after the other: for runs shorter than a start.

    Each process goes through all cells and leaves what another one has; what a run prints goes to its process' log.
    """
    paths = [command(sweep, cell)[-1] for cell in cells if state(sweep, cell) in TO_START]
    running = []
    (sweep / "logs").mkdir(exist_ok=True)
    try:
        with deferring_signals():
            for job in range(jobs if paths else 0):
                with open(sweep / "logs" / f"process-{job + 1}.log", "w") as log:
                    several = [sys.executable, __file__, "run", *paths]
                    running.append(subprocess.Popen(several, stderr=log, start_new_session=True))
            while any(process.poll() is None for process in running):
                time.sleep(0.2)
                stop_if_requested("with its runs")
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait()
    tell_of_lost(sweep, cells)


def run_cells(paths: list[Path]) -> None:
    """Train cells one after the other; what fails is told, and the next one begun."""
    from rectifiers.training.cells import run_cell

    for path in paths:
        sweep, cell = path.absolute().parent.parent, load_cell(path)
        tell_of_other_source([cell])
        if len(paths) > 1 and state(sweep, cell) not in TO_START:
            continue
        began = time.process_time()
        try:
            outcome = run_cell(sweep, cell)
        except Exception as fault:
            if len(paths) == 1:
                raise
            if not isinstance(fault, InputError):  # one of ours: the rest shall not wait for its repair
                traceback.print_exc()
            if state(sweep, cell) is not State.RUNNING:  # by another process, which was faster
                print(f"failed: {cell.name} {' '.join(cell.overrides)}: {fault}", flush=True)
            continue
        if len(paths) > 1 and not outcome.fresh:
            continue  # finished by another process a moment ago
        took = f" ({time.process_time() - began:.1f} s of CPU)" if len(paths) > 1 else ""
        print(f"{outcome.path}{took} {' '.join(cell.overrides) if took else ''}".strip(), flush=True)


def run_local(sweep: Path, cells: list[Cell], jobs: int) -> None:
    """Run at most `jobs` at a time, each in a process of its own; those that wait for another run come after it.

    The processes are in sessions of their own: a signal to this one, also the terminal's, reaches them once, from here.
    """
    running: dict[str, subprocess.Popen] = {}
    tried: set[str] = set()
    by_name = {cell.name: cell for cell in cells}
    try:
        with deferring_signals():
            while True:
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        cell, words = by_name[name], last_words(sweep, by_name[name])
                        note_end(sweep, cell, process.returncode, words if process.returncode else "")
                        print(f"{state(sweep, cell)}: {name} {' '.join(cell.overrides)}", flush=True)
                ready = [c for c in cells if c.name not in tried and state(sweep, c) in TO_START]
                for cell in ready[: jobs - len(running)]:
                    note_start(sweep, cell)
                    path = log_path(sweep, cell)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with open(path, "w") as log:
                        running[cell.name] = subprocess.Popen(
                            command(sweep, cell), stdout=log, stderr=log, start_new_session=True
                        )
                    tried.add(cell.name)
                if not running:
                    break
                time.sleep(0.2)
                stop_if_requested("with its runs")
    finally:
        try:
            for process in running.values():
                process.send_signal(signal.SIGTERM)
            for process in running.values():
                process.wait()
        except KeyboardInterrupt:  # asked again, it does not wait for them
            for process in running.values():
                process.kill()
            raise
    tell_of_lost(sweep, cells)


def tell_of_lost(sweep: Path, cells: list[Cell]) -> None:
    """Name what was to be run and is not done, with its last words, and leave with status 1 where there is any."""
    lost = [cell for cell in cells if state(sweep, cell) not in (State.DONE, State.DIVERGED)]
    for cell in lost:
        said = f"{cell.name} {' '.join(cell.overrides)}: {last_words(sweep, cell)}"
        print(f"{state(sweep, cell)}: {said}", file=sys.stderr)
    if lost:
        sys.exit(1)


def status(sweep: Path, as_json: bool) -> None:
    """Print what has become of every cell."""
    found = [(cell, state(sweep, cell)) for cell in load(sweep)]
    if as_json:
        print(json.dumps([{"run": c.name, "state": s, "cost": c.cost, "overrides": c.overrides} for c, s in found]))
        return
    table = Table("run", "state", "cost", "overrides")
    for cell, stands in found:
        table.add_row(cell.name, str(stands), f"{cell.cost:.2g}", " ".join(cell.overrides))
    counts = Counter(str(stands) for _, stands in found)
    Console().print(table, ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))


def collect(sweep: Path, as_json: bool) -> None:
    """Print the mean error over seeds of every setting and protocol, from the runs that are done."""
    groups: dict[tuple[str, str], list[float]] = {}
    planned: Counter[str] = Counter()
    for cell in load(sweep):
        setting = " ".join(o for o in cell.overrides if o.partition("=")[0] != "seed")
        planned[setting] += 1
        record = cell.record()
        for name, result in (record or {"protocols": {}})["protocols"].items():
            groups.setdefault((setting, name), []).append(result["top1_error_pct"])
    means = [(setting, name, mean_of(errors)) for (setting, name), errors in sorted(groups.items())]
    if as_json:
        rows = [{"setting": s, "protocol": n, "planned": planned[s], **vars(m)} for s, n, m in means]
        print(json.dumps(rows))
        return
    table = Table("setting", "protocol", "top-1 error %", "95 % interval", "n of planned")
    for setting, name, mean in means:
        interval = "-" if mean.low is None else f"{mean.low:.2f} to {mean.high:.2f}"
        table.add_row(setting, name, f"{mean.mean:.2f}", interval, f"{mean.n} of {planned[setting]}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    planning = commands.add_parser("plan", help="freeze every combination as a cell")
    planning.add_argument("sweep", type=Path)
    planning.add_argument("overrides", nargs="+", help="as for train.py --multirun")
    launching = commands.add_parser("launch", help="start what is missing, the cheapest first")
    launching.add_argument("sweep", type=Path)
    launching.add_argument("--jobs", type=int, default=1, help="processes at a time on this machine (default: 1)")
    launching.add_argument(
        "--together", action="store_true", help="many runs a process, for those that are shorter than its start"
    )
    launching.add_argument("--print", action="store_true", help="only print the commands, for any other scheduler")
    launching.add_argument("--cluster", choices=("slurm", "local"), help="hand the runs to submitit")
    launching.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="submitit's, such as slurm_partition='\"gpu\"'"
    )
    for name, text in (("status", "what has become of each"), ("collect", "means over seeds, of what is done")):
        telling = commands.add_parser(name, help=text)
        telling.add_argument("sweep", type=Path)
        telling.add_argument("--json", action="store_true")
    running = commands.add_parser("run", help="train a cell, or several one after the other")
    running.add_argument("cell", type=Path, nargs="+")
    asked = parser.parse_args()
    try:
        if asked.command == "plan":
            plan(asked.sweep, asked.overrides)
        elif asked.command == "launch":
            launch(asked.sweep, asked)
        elif asked.command == "run":
            run_cells(asked.cell)
        else:
            (status if asked.command == "status" else collect)(asked.sweep, asked.json)
    except InputError as fault:
        sys.exit(f"error: {fault}")
    except KeyboardInterrupt:  # a second one
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
