"""The error that invalid input raises."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

INTERRUPTED = 130  # the shell's exit status after Ctrl-C


class InputError(Exception):
    """Raised if an input cannot be used. The message is one line with key, value and remedy.

    on_all_ranks: whether all processes of a run raise the error, so that they can continue together
        with the next run.
    status: the exit status of the process; 2 for an invalid command line.

    Examples:
        >>> try:
        ...     raise InputError("mode=up is not known; choose one of: forward, backward")
        ... except InputError as error:
        ...     print(error)
        mode=up is not known; choose one of: forward, backward
    """

    def __init__(self, message: str, *, on_all_ranks: bool = False, status: int = 1) -> None:
        # a DataLoader's worker sends an error as its whole traceback, with the sentence at its end
        _, marker, sentence = message.rpartition(f"{type(self).__name__}: ")
        # what a message quotes, such as a tensor or an error of torch's, may have several lines
        lines = map(str.strip, (sentence if marker else message).splitlines())
        super().__init__(" ".join(filter(None, lines)))
        self.on_all_ranks, self.status = on_all_ranks, status


def first_line(error: Exception) -> str:
    """Return what an error says, without the advice that torch adds."""
    return (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0]


def unreadable(what: object, reason: object, remedy: str = "repair or remove it") -> InputError:
    """Return the error that a file or a folder cannot be read."""
    return InputError(f"{what} cannot be read ({reason}); {remedy}")


@contextmanager
def reading(what: object, remedy: str) -> Iterator[None]:
    """Turn whatever damaged or hostile content raises into the error that `what` cannot be read."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise unreadable(what, first_line(error), remedy) from error


restoring = partial(
    reading, "the run's checkpoint", "remove it to start this run from its beginning"
)
