"""Progress and messages on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

stderr = Console(stderr=True)


@contextmanager
def bar(what: str, images: int) -> Iterator[Callable[[int], None]]:
    """Show a bar over `images` on a terminal; call what it gives with the number of images just done."""
    from rich.progress import Progress  # here and not above: --help does without

    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as shown:
        task = shown.add_task(what, total=images)
        yield lambda done: shown.advance(task, done)
