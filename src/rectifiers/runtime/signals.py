"""A signal asks a run to stop; it does where nothing is lost and no process waits for another. Without torch."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rectifiers.runtime.console import stderr
from rectifiers.runtime.distributed import all_reduce_max, resume_command, world

T = TypeVar("T")

TRY_AGAIN, INTERRUPTED = 75, 130  # exit statuses: EX_TEMPFAIL, and what shells give for Ctrl-C
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Stopped(SystemExit):
    """A signal asked the run to stop, and it has, `where`; its status is 130 after Ctrl-C, else 75, "try again"."""

    def __init__(self, asked: int, where: str) -> None:
        super().__init__(INTERRUPTED if asked == signal.SIGINT else TRY_AGAIN)
        self.asked, self.where = signal.Signals(asked), where

    def __reduce__(self) -> tuple[Any, ...]:  # one process tells the others
        return Stopped, (int(self.asked), self.where)


_pending: int = 0  # the signal that came, until it is acted on
_deferring = False
_interruptible_where: str | None = None


def _note(asked: int, _: Any) -> None:
    global _pending
    if asked == signal.SIGINT == _pending:
        raise KeyboardInterrupt  # a second Ctrl-C does not wait for anything
    _pending = asked
    if _interruptible_where is not None:
        raise Stopped(asked, _interruptible_where)


@contextmanager
def deferring_signals() -> Iterator[None]:
    """Let SIGTERM, SIGUSR1 and Ctrl-C wait for the next `stop_if_requested` of the body, or its end; say what to type.

    What is ignored stays so, and outside the main thread, which alone gets signals, nothing changes. Within another
    one it does nothing. Acting in the handler would leave other processes waiting in a collective.
    """
    global _pending, _deferring, _interruptible_where
    if _deferring or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in STOP_SIGNALS if signal.getsignal(s) != signal.SIG_IGN}
    _pending, _deferring = 0, True
    try:
        for asking in before:
            signal.signal(asking, _note)
        yield
        if _pending:
            raise Stopped(_pending, "at its end")
    except Stopped as stop:
        if world().rank == 0:
            told = f"stopped by {stop.asked.name} {stop.where}; go on with: {resume_command()}"
            stderr.print(told, highlight=False, soft_wrap=True, markup=False)
        raise
    finally:
        for asking, handler in before.items():
            signal.signal(asking, handler)
        _pending, _deferring, _interruptible_where = 0, False, None


@contextmanager
def interruptible(where: str) -> Iterator[None]:
    """Let a signal end the body where it stands: for long work that no other process takes part in."""
    global _interruptible_where
    _interruptible_where = where
    try:
        if _pending:
            raise Stopped(_pending, where)
        yield
    finally:
        _interruptible_where = None


def pending_signal() -> int:
    """Return the signal that has asked any process to stop, or 0. All processes ask this together."""
    return all_reduce_max(_pending)


def stop_if_requested(where: str) -> None:
    """Leave, all processes together, where a signal has asked one of them to.

    Raises:
        Stopped: on every process.
    """
    found = pending_signal()
    if found:
        raise Stopped(found, where)


def iterate_until_stopped(items: Iterable[T], longest: int, where: str) -> Iterator[T]:
    """Yield `items`, and leave between two of them where a signal asks for it.

    longest: how many the process with the most of them has, for all must ask the same number of times.
    """
    done = 0
    for item in items:
        yield item
        done += 1
        stop_if_requested(where)
    for _ in range(longest - done):
        stop_if_requested(where)


def leave_signals_to_the_parent(_: int = 0) -> None:
    """Ignore what asks a run to stop; for a loader's worker, whose batch is still wanted until the run has stopped.

    A terminal, torchrun and SLURM signal whole groups of processes. A worker ends when its parent says so, or dies.
    """
    for asking in STOP_SIGNALS:
        signal.signal(asking, signal.SIG_IGN)
