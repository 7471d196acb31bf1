"""Calls of clients that may fail or never return."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psutil

T = TypeVar("T")


class NoAnswerError(Exception):
    """The call did not return in time; what it has done is unknown."""


def call_with_timeout(wait_s: float, action: Callable[[], T]) -> T:
    """Call `action` in a thread and return its result, or raise its exception; a thread that hangs is left behind.

    Raises:
        NoAnswerError: where it takes longer than `wait_s`.
    """
    results: list[T] = []
    errors: list[Exception | None] = []
    thread = threading.Thread(
        target=lambda: errors.append(capture_exception(lambda: results.append(action()))), daemon=True
    )
    thread.start()
    thread.join(wait_s)
    if not errors:
        raise NoAnswerError(f"no answer for {wait_s:.0f} s")
    if errors[0] is not None:
        raise errors[0]
    return results[0]


def capture_exception(action: Callable[[], Any]) -> Exception | None:
    """Call `action` and return the exception that it raises, or None."""
    try:
        action()
    except Exception as error:
        return error
    return None


def error_within(wait_s: float, action: Callable[[], Any]) -> Exception | None:
    """Call `action` for at most `wait_s` and return the exception that it raises, a NoAnswerError, or None."""
    return capture_exception(lambda: call_with_timeout(wait_s, action))


def first_sentence(error: Exception) -> str:
    """Return an error's first line; for a validation error, the key and what is wrong with it."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return ": ".join(lines[1:3]) if "validation error" in lines[0] and len(lines) > 1 else lines[0]


def kill_children(name: str) -> None:
    """Kill this process's children whose names begin with `name`; for children that do not answer."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.name().startswith(name):
                child.kill()
                child.wait(5)
