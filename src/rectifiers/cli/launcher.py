"""The jobs of a sweep as processes: started as far as they are missing, on this machine or by a
scheduler."""

import json
import os
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

from rectifiers.cli.sweep import TO_START, Job, State, compose_job, load_to_run
from rectifiers.runs.folder import lock_for_child, run_lock
from rectifiers.runtime import processor
from rectifiers.runtime.console import LineTimer, duration
from rectifiers.runtime.distributed import start_in_own_session
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import (
    INTERRUPTED,
    TRY_AGAIN,
    Stopped,
    deferring_signals,
    stop_if_requested,
)

OF_ANY_RUN = (
    50_000_000_000  # multiply-adds in the two seconds or so that a run takes beside its training
)
DONE = (State.DONE, State.DIVERGED)
NO_FAILURE = (0, TRY_AGAIN, INTERRUPTED)  # exit statuses


def launch(folder: Path, processes: int | None, trust: Sequence[str] = ()) -> None:
    """Run what is missing or failed, each job in a process; those that wait for another run come
    after it.

    processes: how many at a time; None: as `share_cores` chooses. A process has the lock of its job
    as its standard input, from its first moment: no other launch starts that job."""
    jobs, running = load_to_run(folder, trust), dict[Popen, Job]()
    pending, tried = list(jobs), {job.name: job.last_try() for job in jobs}

    def is_left(job: Job) -> bool:
        """Whether it is to be started here: where it failed, another launch may just have tried
        it."""
        state = job.state()
        return state in TO_START and (
            state is not State.FAILED or job.last_try() == tried[job.name]
        )

    timer, done_before = LineTimer(), _done(jobs)
    processes, threads = share_cores(
        [job for job in jobs if job.name not in done_before], processes
    )
    with _ended_together(running):
        while True:
            if timer.is_due():
                print(progress(jobs, done_before, timer.clock() - timer.started), flush=True)
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                if process.returncode not in NO_FAILURE and job.state() is State.MISSING:
                    job.note(f"error: exit status {process.returncode} after: {job.last_words()}")
                print(f"{job.state()}: {job}", flush=True)
            for job in list(pending) if len(running) < processes else []:
                if is_left(job) and (lock := _lock_to_start(job)) is not None:
                    pending.remove(job)
                    job.note("")
                    typed = _command(folder, trust, job.name)
                    with open(lock) as stdin, _log(job.file(".log")) as log:
                        process = _start(typed, threads, stdin=stdin, stdout=log, stderr=log)
                    running[process] = job
                    print(f"started: {job}", flush=True)
                    if len(running) == processes:
                        break
            if not running and not any(map(is_left, pending)):
                break
            time.sleep(0.2)
            stop_if_requested("with its runs")
    _report_lost(jobs)


def launch_together(folder: Path, processes: int | None, trust: Sequence[str] = ()) -> None:
    """Run what is missing or failed, many runs per process: for runs that are shorter than the
    start of a process.

    Each process goes through all jobs and leaves those that another one has. Its log has what its
    runs print."""
    jobs = load_to_run(folder, trust)
    ready = [job for job in jobs if job.state() in TO_START]
    for job in ready:
        job.note("")
    processes, threads = share_cores(ready, processes)
    running: list[Popen] = []
    timer, done_before = LineTimer(), _done(jobs)
    with _ended_together(running):
        for number in range(min(processes, len(ready))):
            with _log(folder / "logs" / f"process-{number + 1}.log") as log:
                running.append(_start(_command(folder, trust), threads, stderr=log))
        while any(process.poll() is None for process in running):
            if timer.is_due():
                print(progress(jobs, done_before, timer.clock() - timer.started), flush=True)
            time.sleep(0.2)
            stop_if_requested("with its runs")
    _report_lost(jobs)


def share_cores(jobs: Sequence[Job], processes: int | None) -> tuple[int, int]:
    """Return (processes at a time, torch threads of each) for `jobs` on this machine, and print
    them.

    Unless `processes` is given, a job gets a core of those that are free, since two runs of one
    thread finish sooner than one run of two after the other; but one job at a time where any trains
    on a GPU, which they would share."""
    cores = processor.free_cores()
    if processes is None:
        on_gpu = any(compose_job(job.overrides)[0].trainer.accelerator == "gpu" for job in jobs)
        processes = 1 if on_gpu else max(1, min(cores, len(jobs)))
    threads = max(1, cores // processes)
    if jobs:
        print(
            f"at a time: {processes}; threads of each: {threads}, unless threads says so",
            flush=True,
        )
    return processes, threads


def _done(jobs: Sequence[Job]) -> set[str]:
    """Return the names of the jobs whose runs are there."""
    return {job.name for job in jobs if job.state() in DONE}


def progress(jobs: Sequence[Job], done_before: Collection[str], seconds: float) -> str:
    """Return a line such as "3 of 12 done, 2 running, 1 failed, 12 min left".

    done_before: the jobs that were done when the sweep was launched, `seconds` ago. The time left
    follows from what has been done since, by cost and a constant for each job."""
    states = [(job, job.state()) for job in jobs]
    done = [job for job, state in states if state in DONE]
    cost = sum(job.cost + OF_ANY_RUN for job in done if job.name not in done_before)
    to_do = sum(
        job.cost + OF_ANY_RUN for job, state in states if state not in (State.FAILED, *DONE)
    )
    running = sum(state in (State.RUNNING, State.STARTING) for _, state in states)
    failed = sum(state is State.FAILED for _, state in states)
    line = f"{len(done)} of {len(jobs)} done, {running} running, {failed} failed"
    return f"{line}, {duration(seconds * to_do / cost)} left" if cost else line


def _lock_to_start(job: Job) -> int | None:
    """Return the lock of a job that nobody has begun or ended since its state was read, or None."""
    lock = lock_for_child(job.file())
    if lock is not None and job.state() is not State.STARTING:
        os.close(lock)
        return None
    return lock


def _command(folder: Path, trust: Sequence[str], *job: str) -> list[str]:
    trusted = [f"trust=[{','.join(trust)}]"] if trust else []
    return [
        sys.executable,
        str(Path(sys.argv[0]).absolute()),
        "run",
        str(folder.absolute()),
        *job,
        *trusted,
    ]


def _start(command: Sequence[str], threads: int, **streams: Any) -> Popen:
    """Start a process in a session of its own.

    threads: what torch takes where neither its configuration nor this environment says so.
    """
    return start_in_own_session(command, {"OMP_NUM_THREADS": str(threads), **os.environ}, **streams)


def _log(path: Path) -> IO[str]:
    try:
        return open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666), "w"
        )
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); remove it") from error


@contextmanager
def _ended_together(running: Collection[Popen]) -> Iterator[None]:
    """End the processes with the body: cleanly, with a checkpoint, and at once where Ctrl-C comes
    again.

    They are in sessions of their own: a signal to this one, also the terminal's, reaches them once,
    from here."""
    try:
        with deferring_signals():
            yield
    finally:
        try:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait()
        except KeyboardInterrupt:
            for process in running:
                process.kill()
            raise


def _report_lost(jobs: Sequence[Job]) -> None:
    """Name what was to be run and is not done, with its last words, and leave with status 1 where
    there is any."""
    lost = [job for job in jobs if job.state() not in (State.DONE, State.DIVERGED)]
    for job in lost:
        print(f"{job.state()}: {job}: {job.last_words()}", file=sys.stderr)
    if lost:
        sys.exit(1)


def hand_over(
    folder: Path, cluster: str, settings: Sequence[str], trust: Sequence[str] = ()
) -> None:
    """Hand what is missing or failed to submitit, as an array of jobs, or print it as commands.

    cluster: `slurm`, `local` or `printed`. settings: submitit's, each KEY=<JSON>.
    """
    jobs = load_to_run(folder, trust)
    ready = [job for job in jobs if job.state() in TO_START]
    if cluster == "printed":
        for job in ready:
            print(shlex.join(_command(folder, trust, job.name)))
            job.note(cluster)
    elif ready:
        _submit(ready, cluster, settings)


def _submit(jobs: Sequence[Job], cluster: str, settings: Sequence[str]) -> None:
    """Hand jobs to submitit, but for those that somebody else starts at this moment."""
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise InputError(
            "--cluster=slurm needs sbatch, which is not here; call it where jobs are "
            "submitted, or --print"
        )
    locks = {job.name: lock for job in jobs if (lock := _lock_to_start(job)) is not None}
    try:
        submitted = _submitted([job for job in jobs if job.name in locks], cluster, settings)
    finally:
        for lock in locks.values():
            os.close(lock)
    if cluster == "local":  # submitit's local jobs end with the process that started them
        for at in submitted:
            at.wait()
        _report_lost(jobs)


def _submitted(jobs: Sequence[Job], cluster: str, settings: Sequence[str]) -> list[Any]:
    """Submit jobs, note who has them, and return them as submitit knows them."""
    import submitit

    if not jobs:
        return []
    executor = submitit.AutoExecutor(folder=jobs[0].sweep / "submitit", cluster=cluster)
    try:
        executor.update_parameters(
            **{key: json.loads(value) for key, _, value in (s.partition("=") for s in settings)}
        )
    except (ValueError, NameError, TypeError) as error:
        raise InputError(
            f"--set={' --set='.join(settings)} is not usable ({error}); give KEY=<JSON>"
        ) from error
    with executor.batch():
        submitted = [executor.submit(Submission(job)) for job in jobs]
    for job, at in zip(jobs, submitted, strict=True):
        job.note(f"{cluster} {at.job_id}")
        print(f"{at.job_id} {job}", flush=True)
    return submitted


class Submission:
    """A job as submitit calls it, maybe on another machine.

    When its time is over or it is to make room, it stops cleanly, and then does what submitit wants
    of it: be queued again."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self) -> str:
        queue_again: Any = signal.getsignal(
            signal.SIGUSR2
        )  # submitit's, which would leave within a step
        try:
            with deferring_signals():
                signal.signal(signal.SIGUSR2, lambda *_: signal.raise_signal(signal.SIGUSR1))
                return str(train(self.job).path)
        except Stopped:
            queue_again(signal.SIGUSR2, None)
            raise

    def checkpoint(self) -> Any:
        """Return what submitit is to call when the job is there again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def run(folder: Path, name: str, trust: Sequence[str] = ()) -> None:
    """Train one job of a sweep in this process."""
    job = next((job for job in load_to_run(folder, trust) if job.name == name), None)
    if job is None:
        raise InputError(
            f"{name} is no job of {folder}; see scripts/sweep.py status {shlex.quote(str(folder))}"
        )
    with open(os.devnull) as nothing:
        os.dup2(
            nothing.fileno(), 0
        )  # gives up the lock that `launch` took: the loaders' processes would inherit it
    _train_alone(job)


def run_missing(folder: Path, trust: Sequence[str] = ()) -> None:
    """Train the jobs of a sweep that are missing one after the other; an error in one does not end
    the others."""
    pending, left = load_to_run(folder, trust), -1
    while len(pending) != left:  # a run may be what another one waits for
        left = len(pending)
        for job in [*pending]:
            if job.state() in (State.MISSING, State.PRINTED):
                pending.remove(job)
                try:
                    _train_alone(job)
                except Exception as error:
                    if not isinstance(error, InputError):
                        traceback.print_exc()
                    if job.state() is State.FAILED:  # and not another process faster
                        print(f"failed: {job}: {error}", flush=True)


def _train_alone(job: Job) -> None:
    began = time.process_time()
    with run_lock(job.file()):
        if job.state() is not State.STARTING:
            return  # another process has done it
        print(f"started: {job}", flush=True)
        train(job)
    print(f"{job.state()}: {job} ({time.process_time() - began:.1f} s of CPU)", flush=True)


def train(job: Job) -> Any:
    """Train a job as `train.py` does, and note how it failed."""
    from rectifiers.training.run import train as train_run

    job.forget_error()
    try:
        return train_run(*job.prepared(), job.overrides)
    except Exception as error:
        job.note(f"error: {error}")
        raise
