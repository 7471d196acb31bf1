"""What a program prints: progress, messages, and the one line of an error."""

import errno
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn, TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from rectifiers.runtime.distributed import end_with_launcher, world
from rectifiers.runtime.errors import INTERRUPTED, InputError
from rectifiers.runtime.files import NO_ROOM
from rectifiers.runtime.own_modules import modules_of_command

SHOW_ALL = "HYDRA_FULL_ERROR"  # in the environment: Hydra's name for whole tracebacks
FIRST_LINE_S, LINE_EVERY_S = 30.0, 60.0  # between lines about progress, where stderr is no terminal
# The extra of the package that brings a module, or an option of one of Hydra's plugins.
EXTRAS = {
    **dict.fromkeys(("dvc", "dvc_data", "dvc_objects", "zlib_ng"), "imagenet"),
    **dict.fromkeys(("jinja2", "matplotlib", "pandas"), "report"),
    **dict.fromkeys(("wandb", "wandb_workspaces"), "wandb"),
    "mnist1d": "benchmark",
    "tensorboard": "tensorboard",
    "timm": "timm",
    "hydra/launcher/submitit_local": "slurm",
    "hydra/launcher/submitit_slurm": "slurm",
    "hydra/sweeper/optuna": "optuna",
}

stderr = Console(stderr=True)


def say(line: str) -> None:
    """Print a line on stderr as it is, however long; a terminal obeys nothing in it."""
    stderr.print(printable(line), highlight=False, soft_wrap=True, markup=False)


def wide_stdout() -> Console:
    """Return the terminal, or 160 columns where there is none to say how many it has."""
    return Console(width=None if sys.stdout.isatty() else 160)


@contextmanager
def without_progress() -> Iterator[None]:
    """Hide the progress of the body, a small part of work that shows its own."""
    before, stderr.quiet = stderr.quiet, True
    try:
        yield
    finally:
        stderr.quiet = before


def printable(text: str) -> str:
    """Return `text` without what a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def styled(words: str, style: str = "") -> Text:
    """Return words from elsewhere, in which a terminal obeys nothing."""
    return Text(printable(words), style)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], **style: Any) -> Table:
    """Return a table: columns of numbers to the right, those of words to the left. A terminal obeys
    nothing in it. style: of rich's table, which has no frame."""
    without_frame: dict[str, Any] = {"box": None, "pad_edge": False, "header_style": "underline"}
    made = Table(**without_frame | style, padding=(0, 2, 0, 0))
    for i, name in enumerate(head):
        # an empty cell, which "+-" contains, does not decide
        is_number = all(row[i][:1].isdigit() or row[i][:1] in "+-" for row in rows)
        made.add_column(styled(name), justify="right" if is_number else "left")
    for row in rows:
        made.add_row(*map(styled, row))
    return made


@contextmanager
def printable_warnings() -> Iterator[None]:
    """Show warnings, which may name a file, without what a terminal would obey."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        with suppress(OSError, AttributeError):  # nobody reads it, or there is no stderr
            print(*map(printable, text.splitlines()), sep="\n", file=file or sys.stderr)

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def duration(seconds: float) -> str:
    """Return a length of time as h:mm:ss."""
    return str(timedelta(seconds=max(0, round(seconds))))


class LineTimer:
    """Says when a line about long work is due: after FIRST_LINE_S, and then every LINE_EVERY_S."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._due = self.started + FIRST_LINE_S

    def is_due(self) -> bool:
        """Return whether a line is due now; the next one is due later."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + LINE_EVERY_S
        return True


@contextmanager
def progress_bar(
    description: str, total: int, unit: str = "images"
) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` images, bytes or another `unit` are done; yield a function that
    advances the number.

    On a terminal this is rich's bar, elsewhere a line now and then. Only rank 0 shows it.
    """
    if world().rank > 0:
        yield lambda count: None
        return
    if not stderr.is_terminal:
        yield _progress_lines(description, total, unit)
        return

    from rich import progress as bars  # imported late: --help does not need it

    counts = bars.DownloadColumn() if unit == "bytes" else bars.MofNCompleteColumn()
    columns = ("{task.description}", bars.BarColumn(), counts, bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=stderr, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)


def _progress_lines(description: str, total: int, unit: str) -> Callable[[int], None]:
    """Return a function that advances the number done, and now and then prints a line about it."""
    timer, done = LineTimer(), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if not timer.is_due():
            return

        left_s = (time.monotonic() - timer.started) * (total - done) / max(done, 1)
        if unit == "bytes":
            numbers = f"{decimal(done)} of {decimal(total)}"
        else:
            numbers = f"{done:,} of {total:,} {unit}"
        say(f"{description}: {numbers}, {duration(left_s)} left")

    return advance


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Print to stdout, and end with status 1 and no traceback where that cannot be: `| head`, a
    full disk."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.EIO, *NO_ROOM):
            raise  # it is not of stdout
        # for the interpreter, which flushes once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print_error(InputError(f"what is printed cannot be written ({error.strerror})"))
        sys.exit(1)


@contextmanager
def cli_errors(interrupted: str = "interrupted") -> Iterator[None]:
    """Turn an error of the input, or of a file, into the last line on stderr, and leave with its
    status. Modules that the command line names are found in the current folder, too.

    interrupted: the last line after Ctrl-C, printed by rank 0."""
    try:
        end_with_launcher()
        with printable_warnings(), modules_of_command(sys.argv[1:]):
            yield
    except KeyboardInterrupt:  # outside of a run, or a second one
        if world().rank == 0:
            print(interrupted, file=sys.stderr)
        sys.exit(INTERRUPTED)
    except InputError as error:
        leave(error)
    except ModuleNotFoundError as error:
        if (line := missing_extra(error)) is None:
            raise
        leave(InputError(line))
    except OSError as error:
        if error.filename is None and error.errno not in NO_ROOM:
            raise  # not about a file of the user's
        remedy = "make room" if error.errno in NO_ROOM else "give another, or mend it"
        # the second name: what a file was to be moved to
        name = error.filename2 or error.filename or "a file"
        leave(InputError(f"{name} cannot be used ({error.strerror}); {remedy}"))


def missing_extra(error: Exception) -> str | None:
    """Return a line that names the extra without which `error` was raised, or None.

    error: a ModuleNotFoundError, or Hydra's error for an option of a plugin."""
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
    else:
        name = next((name for name in EXTRAS if f"'{name}'" in str(error)), "")
    if name not in EXTRAS:
        return None
    extra = EXTRAS[name]
    return (
        f"{name} is not installed; call make setup EXTRAS={extra}, or "
        f"pip install 'rectifiers[{extra}]'"
    )


def print_error(error: InputError) -> None:
    """Print the sentence on stderr; rank 0 alone does where all processes have the error."""
    with suppress(InputError):  # the launcher's variables may be what is wrong
        if error.on_all_ranks and world().rank > 0:
            return
    with suppress(OSError):  # nobody reads it, or its disk is full; the status tells
        print(f"error: {printable(str(error))}", file=sys.stderr, flush=True)


def leave(error: InputError) -> NoReturn:
    """Print the sentence as the last line, and leave with its status; with HYDRA_FULL_ERROR=1 by
    its traceback."""
    print_error(error)
    if os.environ.get(SHOW_ALL) == "1":
        raise error
    handled = sys.exception()
    while handled is not None:  # what its frames hold, such as workers, ends now and not at exit
        traceback.clear_frames(handled.__traceback__)
        handled = handled.__context__
    sys.exit(error.status)
