"""Progress and messages on the terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

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
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # for the interpreter, which flushes once more
        with suppress(OSError):
            if not isinstance(error, BrokenPipeError):
                print(
                    f"error: what is printed cannot be written ({error.strerror})",
                    file=sys.stderr,
                    flush=True,
                )
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


@contextmanager
def progress_bar(
    description: str, total: int, unit: str = "images", clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` images, bytes or another `unit` are done; yield a function that
    advances the number.

    On a terminal this is a bar. Elsewhere it is a line after FIRST_LINE_S and then one every
    LINE_EVERY_S, or as often as the work advances where that is less often. Only rank 0 shows it.
    """
    if world().rank > 0:
        yield lambda count: None
    elif stderr.is_terminal:
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            Task,
        )  # imported late: --help does not need it
        from rich.text import Text

        class State(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(state(int(task.completed), total, unit, task.speed or 0))

        with Progress(
            "{task.description}", BarColumn(), State(), console=stderr, transient=True
        ) as progress:
            task = progress.add_task(description, total=total)
            yield lambda count: progress.advance(task, count)
    else:
        yield _lines(description, total, unit, clock)


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


def _lines(
    description: str, total: int, unit: str, clock: Callable[[], float]
) -> Callable[[int], None]:
    """Return a function that advances the work, and prints a line when it is time for one."""
    done, done_before, before, wait_s = 0, 0, clock(), FIRST_LINE_S

    def advance(count: int) -> None:
        nonlocal done, done_before, before, wait_s
        done, now = done + count, clock()
        if now - before >= wait_s:
            rate = (done - done_before) / max(now - before, 1e-9)
            line = f"{description}: {state(done, total, unit, rate)}"
            stderr.print(line, highlight=False, soft_wrap=True, markup=False)
            done_before, before, wait_s = done, now, LINE_EVERY_S

    return advance


def state(done: int, total: int, unit: str, rate: float) -> str:
    """Return a text such as "1,200 of 5,000 images, 40 per second, 95 s left"; a rate of 0 leaves
    out the rest."""
    if unit == "bytes":
        counts, speed = f"{decimal(done)} of {decimal(total)}", decimal(int(rate))
    else:
        counts, speed = (
            f"{done:,} of {total:,} {unit}",
            f"{rate:,.3g}" if rate < 100 else f"{rate:,.0f}",
        )
    return (
        f"{counts}, {speed} per second, {duration((total - done) / rate)} left"
        if rate > 0
        else counts
    )


def duration(seconds: float) -> str:
    """Return a length of time in the two units that matter: "95 s", "12 min", "3 h 05 min"."""
    if seconds < 120:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
