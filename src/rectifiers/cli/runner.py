"""Many runs: those that have no complete record yet are trained by a pool of processes.

    failures = run_all([("activation=relu", "seed=0"), ("activation=relu", "seed=1")], processes=2)

A run is a tuple of overrides as for train.py. A worker trains one run after the other, since many
runs are shorter than a start of Python. The same call goes on where it was interrupted.
"""

import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from rectifiers.cli.composition import Choices, compose_job
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import find, run_folder
from rectifiers.runtime import machine
from rectifiers.runtime.console import LineTimer, duration, say, without_progress
from rectifiers.runtime.distributed import end_with_parent
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.own_modules import find_modules, named_by
from rectifiers.runtime.stopping import Stopped, deferring_signals, stop_if_requested

Overrides = tuple[str, ...]
FollowUp = Callable[[Overrides], Sequence[Overrides]]  # the runs that the end of one asks for
KILLED = "its process was killed, maybe for want of memory; the same command continues"
POLL_S = 0.2


@dataclass(frozen=True)
class Job:
    """A run to be trained."""

    overrides: Overrides
    config: RunConfig
    choices: Choices


@dataclass
class Progress:
    """How far a list of runs is. trained: the number of jobs completed since the start, the last
    of them `trained_s` seconds after it. expected: the number of runs that will be asked for."""

    pending: list[Job] = field(default_factory=list)
    running: dict[Future[str | None], tuple[ProcessPoolExecutor, Job]] = field(default_factory=dict)
    failures: dict[Overrides, str] = field(default_factory=dict)
    complete: int = 0
    trained: int = 0
    trained_s: float = 0.0
    expected: int = 0

    @property
    def to_do(self) -> int:
        """How many runs are not done."""
        return len(self.pending) + len(self.running) + self.expected

    @property
    def done(self) -> str:
        """How many of how many runs are done, in words."""
        return f"{self.complete} of {self.to_do + self.complete + len(self.failures)} done"

    def line(self, seconds: float) -> str:
        """Return a line such as "3 of 12 done, 2 running, 1 failed, 0:12:00 left", `seconds`
        after the start."""
        line = f"{self.done}, {len(self.running)} running, {len(self.failures)} failed"
        if not self.trained:
            return line
        left_s = self.trained_s * self.to_do / self.trained - (seconds - self.trained_s)
        return f"{line}, {duration(left_s)} left"


def run_all(
    runs: Sequence[Overrides],
    processes: int | None = None,
    follow_up: FollowUp | None = None,
    expected: Callable[[], int] | None = None,
) -> dict[Overrides, str]:
    """Train the runs that have no complete record, seed by seed; return why others failed.

    A run that diverged is complete. The reasons, a line each, are printed at the end, too.

    processes: how many at a time; None: one per core, and one where any trains on a GPU.
    follow_up: returns the runs that a completed one of this call asks for.
    expected: returns how many runs `follow_up` has still to ask for, which the time left counts.

    Raises:
        InputError: for fewer than one process.
        Stopped: where a signal asked for it. Each run has written a checkpoint, from which the same
            call goes on.
    """
    if processes is not None and processes < 1:
        raise InputError(f"--jobs={processes} is not usable; give a whole number at least 1")

    progress = Progress()
    _plan(progress, runs)
    configs = [job.config for job in progress.pending]
    processes, threads = share_cores(configs, processes, may_grow=follow_up is not None)
    if progress.pending:
        progress.expected = expected() if expected else 0
        shares = f"at a time: {processes}, threads of each: {threads}"
        say(f"runs to do: {progress.to_do}, {shares}")

    with deferring_signals():
        _train_pending(progress, processes, threads, follow_up, expected)

    # a reason is shown beside what sets its run apart
    common = set.intersection(*map(set, runs)) if len(runs) > 1 else set()
    for overrides, reason in progress.failures.items():
        label = " ".join(override for override in overrides if override not in common)
        say(f"failed: {label}: {reason}")
    return progress.failures


def share_cores(
    configs: Sequence[RunConfig], processes: int | None, may_grow: bool = False
) -> tuple[int, int]:
    """Return (processes at a time, threads of each) for runs on this machine, which may ask for
    more runs.

    A run gets a core: two runs of one thread each finish sooner than one run of two threads after
    the other. On a GPU one run trains at a time. The load of the last minute may soon be over, so
    only threads, which wait for each other, are left out for it."""
    if processes is None:
        on_gpu = any(config.trainer.accelerator == "gpu" for config in configs)
        processes = 1 if on_gpu else machine.usable_cores()
    if not may_grow:
        processes = max(1, min(processes, len(configs)))
    return processes, max(1, machine.free_cores() // processes)


def _plan(progress: Progress, runs: Sequence[Overrides]) -> None:
    """Add the runs to train in their order, and the reasons of those that cannot be."""
    jobs: dict[object, Job] = {}
    for overrides in runs:
        try:
            config, choices = compose_job(overrides)
            existing = find(config)
            if existing is not None and existing.is_complete:
                progress.complete += 1
                continue
            jobs[run_folder(config) or overrides] = Job(overrides, config, choices)
        except InputError as error:
            progress.failures[overrides] = str(error)
    progress.pending += jobs.values()
    progress.pending.sort(key=lambda job: job.config.seed)


def _train_pending(
    progress: Progress,
    processes: int,
    threads: int,
    follow_up: FollowUp | None,
    expected: Callable[[], int] | None,
) -> None:
    """Train all that is pending, in pools of one worker: one that is killed breaks no other."""
    start = partial(
        ProcessPoolExecutor,
        max_workers=1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
        initargs=(threads, os.getpid()),
    )
    timer = LineTimer()
    idle = [start() for _ in range(processes)]
    workers = list(idle)
    try:
        while progress.pending or progress.running:
            while progress.pending and idle:
                worker, job = idle.pop(), progress.pending.pop(0)
                progress.running[worker.submit(_train, job)] = worker, job

            for future in wait(progress.running, POLL_S, FIRST_COMPLETED).done:
                worker, job = progress.running.pop(future)
                reason = KILLED if future.exception() else future.result()
                if reason is None:
                    progress.complete += 1
                    progress.trained += 1
                    progress.trained_s = time.monotonic() - timer.started
                    _plan(progress, follow_up(job.overrides) if follow_up else ())
                    progress.expected = expected() if expected else 0
                else:
                    progress.failures[job.overrides] = reason
                if reason is KILLED:  # its pool takes no more work
                    worker = start()
                    workers.append(worker)
                idle.append(worker)

            stop_if_requested(f"with its runs, {progress.done}")
            if timer.is_due():
                say(progress.line(time.monotonic() - timer.started))
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # it writes a checkpoint first
        raise
    finally:
        for worker in workers:
            worker.shutdown()


def _prepare_worker(threads: int, parent: int) -> None:
    """Make a new process a worker, before it imports torch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which sends SIGTERM
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    end_with_parent(parent, signal.SIGTERM)
    find_modules(named_by(sys.argv[1:]), os.getcwd())  # both are the parent's


def _train(job: Job) -> str | None:
    """Train a run in a worker; return why it failed, in a line, or None."""
    from rectifiers.training.train import train

    try:
        with without_progress(), warnings.catch_warnings(action="ignore"):
            train(job.config, job.choices, job.overrides)
    except InputError as error:
        return str(error)
    except Stopped:
        signal.raise_signal(signal.SIGTERM)  # ends the worker: its pool may be gone
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return None
