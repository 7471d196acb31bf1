"""Calls into a client that may fail, or never come back."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psutil

T = TypeVar("T")


class NoAnswerError(Exception):
    """The client did not come back in time, so nothing is known of what it has done."""


def call_with_timeout(wait_s: float, action: Callable[[], T]) -> T:
    """Return what `action` does, or raise what it raises; where it never comes back its thread stays behind.

    Raises:
        NoAnswerError: where it takes longer.
    """
    found: list[T] = []
    faults: list[Exception | None] = []
    thread = threading.Thread(
        target=lambda: faults.append(capture_exception(lambda: found.append(action()))), daemon=True
    )
    thread.start()
    thread.join(wait_s)
    if not faults:
        raise NoAnswerError(f"no answer for {wait_s:.0f} s")
    if faults[0] is not None:
        raise faults[0]
    return found[0]


def capture_exception(action: Callable[[], Any]) -> Exception | None:
    """Return the exception that `action` ends with, or None."""
    try:
        action()
    except Exception as fault:
        return fault
    return None


def first_sentence(fault: Exception) -> str:
    """Return what an error says, in a line; of a validation the key and what is wrong with it."""
    lines = [line.strip() for line in str(fault).strip().splitlines()] or [type(fault).__name__]
    return ": ".join(lines[1:3]) if "validation error" in lines[0] and len(lines) > 1 else lines[0]


def end_processes(name: str) -> None:
    """Kill this process' children of that name; for those that do not answer."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.name().startswith(name):
                child.kill()
                child.wait(5)
