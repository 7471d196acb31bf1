"""Progress and messages on the terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

stderr = Console(stderr=True)


def wide_stdout() -> Console:
    """Return the terminal, or 160 columns where there is none to say how many it has."""
    return Console(width=None if sys.stdout.isatty() else 160)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over `total` images where stderr is a terminal; yield a function that advances it."""
    from rich.progress import Progress  # imported late: --help does not need it

    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        yield lambda images: progress.advance(task, images)
