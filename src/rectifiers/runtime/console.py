"""Progress and messages on the terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from rich.console import Console
from rich.filesize import decimal

from rectifiers.runtime.distributed import world

FIRST_LINE_S, LINE_EVERY_S = 30.0, 60.0  # between lines about progress, where stderr is no terminal

stderr = Console(stderr=True)


def wide_stdout() -> Console:
    """Return the terminal, or 160 columns where there is none to say how many it has."""
    return Console(width=None if sys.stdout.isatty() else 160)


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Print to stdout, and end with status 1 and no traceback where that cannot be: `| head`, a
    full disk."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # for the interpreter, which flushes once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with suppress(OSError):
            if not isinstance(error, BrokenPipeError):
                message = f"error: what is printed cannot be written ({error.strerror})"
                print(message, file=sys.stderr, flush=True)
        sys.exit(1)


@contextmanager
def without_progress() -> Iterator[None]:
    """Show nothing of the progress of the body, which is a small part of something that shows its
    own."""
    before, stderr.quiet = stderr.quiet, True
    try:
        yield
    finally:
        stderr.quiet = before


def printable(text: str) -> str:
    """Return `text` without what a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


class LineTimer:
    """Says when a line about long work is due: after FIRST_LINE_S, and then every LINE_EVERY_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.started = clock, clock()
        self._due = self.started + FIRST_LINE_S

    def is_due(self) -> bool:
        """Return whether a line is due now; the next one is due later."""
        now = self.clock()
        if now < self._due:
            return False
        self._due = now + LINE_EVERY_S
        return True


@contextmanager
def progress_bar(
    description: str, total: int, unit: str = "images", clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` images, bytes or another `unit` are done; yield a function that
    advances the number.

    On a terminal this is rich's bar, elsewhere a line now and then; see `LineTimer`. Only rank 0
    shows it.
    """
    if world().rank > 0:
        yield lambda count: None
    elif stderr.is_terminal:
        from rich import progress as bars  # imported late: --help does not need it

        counts = bars.DownloadColumn() if unit == "bytes" else bars.MofNCompleteColumn()
        columns = ("{task.description}", bars.BarColumn(), counts, bars.TimeRemainingColumn())
        with bars.Progress(*columns, console=stderr, transient=True) as progress:
            task = progress.add_task(description, total=total)
            yield lambda count: progress.advance(task, count)
    else:
        timer, done = LineTimer(clock), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if timer.is_due():
                left_s = (clock() - timer.started) * (total - done) / max(done, 1)
                numbers = map(decimal if unit == "bytes" else "{:,}".format, (done, total))
                suffix = "" if unit == "bytes" else f" {unit}"
                line = f"{description}: {' of '.join(numbers)}{suffix}, {duration(left_s)} left"
                stderr.print(line, highlight=False, soft_wrap=True, markup=False)

        yield advance


def duration(seconds: float) -> str:
    """Return a length of time as h:mm:ss."""
    return str(timedelta(seconds=max(0, round(seconds))))
