"""What every program does around its work: it ends in one sentence, and with whatever started
it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from rectifiers.runtime.distributed import end_with_launcher, world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.extras import missing_extra
from rectifiers.runtime.files import NO_ROOM

SHOW_ALL = "HYDRA_FULL_ERROR"  # in the environment: Hydra's name for whole tracebacks


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn an error of the input, or of a file, into the last line on stderr, and leave with its
    status."""
    _open_streams()
    try:
        end_with_launcher()
        _enter_working_folder()
        yield
    except InputError as error:
        leave(error)
    except ModuleNotFoundError as error:
        line = missing_extra(error)
        if line is None:
            raise
        leave(InputError(line))
    except OSError as error:
        if error.filename is None and error.errno not in NO_ROOM:
            raise  # not about a file of the user's
        remedy = "make room" if error.errno in NO_ROOM else "give another, or mend it"
        # the second name: what a file was to be moved to
        name = error.filename2 or error.filename or "a file"
        leave(InputError(f"{name} cannot be used ({error.strerror}); {remedy}"))


def _open_streams() -> None:
    """Give a process that was started without standard streams such as lead nowhere.

    Its first files would get their numbers, and what a library prints would be written into them.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w"))


def _enter_working_folder() -> None:
    """Let modules of the folder that a program is called from be imported, after all others."""
    try:
        folder = os.getcwd()
        if folder not in sys.path:
            sys.path.append(folder)
    except OSError as error:
        raise InputError(
            f"the working folder cannot be used ({error.strerror}); cd to one that exists"
        ) from error


def print_error(error: InputError) -> None:
    """Print the sentence on stderr; rank 0 alone does where all processes have the error."""
    with suppress(InputError):  # the launcher's variables may be what is wrong
        if error.on_all_ranks and world().rank > 0:
            return
    with suppress(OSError):  # nobody reads it, or its disk is full; the status tells
        print(f"error: {error}", file=sys.stderr, flush=True)


def leave(error: InputError) -> NoReturn:
    """Print the sentence as the last line, and leave with its status; with HYDRA_FULL_ERROR=1 by
    its traceback."""
    print_error(error)
    if os.environ.get(SHOW_ALL) == "1":
        raise error
    sys.exit(error.status)
