"""Signals ask a run to stop; it stops where nothing is lost and no process waits for another.
Imports no torch."""

import multiprocessing
import re
import signal
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import TypeVar

from rectifiers.runtime.console import say
from rectifiers.runtime.distributed import all_reduce_max, world
from rectifiers.runtime.errors import INTERRUPTED, InputError

T = TypeVar("T")

TRY_AGAIN = 75  # exit status EX_TEMPFAIL
NO_SHARED_MEMORY = re.compile(
    r"shared memory|shm|unable to (mmap|resize|write)|No space left|Too many open files"
)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Stopped(SystemExit):
    """A signal stopped the run at the point that `where` names; exit status 130 after Ctrl-C, else
    75, "try again"."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(INTERRUPTED if number == signal.SIGINT else TRY_AGAIN)
        self.signal, self.where = signal.Signals(number), where

    def __reduce__(self) -> tuple[type, tuple[int, str]]:  # processes send it to each other
        return Stopped, (int(self.signal), self.where)


_pending: int = 0  # the last signal that came and was not yet acted on
_deferring = False
_interruptible_where: str | None = None


def _handle(number: int, _: object) -> None:
    global _pending
    if number == signal.SIGINT == _pending:
        raise KeyboardInterrupt  # a second Ctrl-C ends the process at once
    _pending = number
    if _interruptible_where is not None:
        raise Stopped(number, _interruptible_where)


@contextmanager
def deferring_signals() -> Iterator[None]:
    """Defer SIGTERM, SIGUSR1 and Ctrl-C to the next `stop_if_requested` in the body, or to its end.

    Acting in the handler itself would leave other processes waiting in a collective. Ignored
    signals stay ignored. Nested contexts, and contexts outside the main thread (which alone
    receives signals), do nothing. The end of a process that loads images becomes an InputError.
    """
    global _pending, _deferring, _interruptible_where
    if _deferring or threading.current_thread() is not threading.main_thread():
        with _translate_worker_errors():
            yield
        return

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handlers = {number: each for number, each in before.items() if each != signal.SIG_IGN}
    others = multiprocessing.active_children()  # which the body did not start
    _pending, _deferring = 0, True
    try:
        for number in handlers:
            signal.signal(number, _handle)
        with _translate_worker_errors():
            yield
        if _pending:
            raise Stopped(_pending, "at its end")
    except Stopped as stop:
        if world().rank == 0:
            say(f"stopped by {stop.signal.name} {stop.where}; the same command continues")
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _pending, _deferring, _interruptible_where = 0, False, None
        _kill_workers(others)


@contextmanager
def interruptible(where: str) -> Iterator[None]:
    """Let a signal end the body at any line: for long work in which no other process takes part."""
    global _interruptible_where
    if _pending:
        raise Stopped(_pending, where)
    _interruptible_where = where
    try:
        yield
    finally:
        _interruptible_where = None


def pending_signal() -> int:
    """Return the signal that has asked any process to stop, or 0; a collective call."""
    return all_reduce_max(_pending)


def stop_if_requested(where: str) -> None:
    """Raise Stopped on all processes where a signal has asked one of them to stop; a collective
    call."""
    if number := pending_signal():
        raise Stopped(number, where)


def iterate_until_stopped(items: Iterable[T], longest: int, where: str) -> Iterator[T]:
    """Yield `items` and call `stop_if_requested` after each, `longest` times: the largest number of
    items on any process, for the call is collective."""
    done = 0
    for item in items:
        yield item
        done += 1
        stop_if_requested(where)
    for _ in range(longest - done):
        stop_if_requested(where)


def leave_signals_to_the_parent() -> None:
    """Ignore the stop signals, which come to whole groups of processes, in a DataLoader's worker
    while the parent defers them: it still needs the batch."""
    if _deferring:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def _translate_worker_errors() -> Iterator[None]:
    """Turn the end of a DataLoader's worker, which torch raises at any line, into a sentence."""
    try:
        yield
    except Exception as error:
        context = error.__context__  # other code may raise its own error for torch's
        if not isinstance(error, RuntimeError) and isinstance(context, RuntimeError):
            error = context

        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        if lines[0].startswith("DataLoader worker (pid"):
            what = f"was killed ({lines[0]})"
        elif " in DataLoader worker " in lines[0] and NO_SHARED_MEMORY.search(lines[-1]):
            what = f"could not be given shared memory ({lines[-1]})"
        else:
            raise
        raise InputError(
            f"a process that loads images {what}; make room in memory and in /dev/shm, or lower "
            "data.num_workers, and give the same command again"
        ) from error


def _kill_workers(others: Collection[BaseProcess]) -> None:
    """Kill the workers that are left, as after an exception, but not the `others`: workers ignore
    SIGTERM, and Python would wait for them at exit."""
    workers = [child for child in multiprocessing.active_children() if child not in others]
    # torch's handler raises an error for a killed worker
    former = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
    finally:
        signal.signal(signal.SIGCHLD, former)
