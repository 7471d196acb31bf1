"""W&B's client behind time limits: what it is asked is answered, refused or given up in time."""

import json
import logging
import os
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil

CONNECT_TIMEOUT_S, INIT_TIMEOUT_S, ANSWER_S = 3, 20, 10
CORE = "wandb-core"  # the client's own process
T = TypeVar("T")


class NoAnswerError(Exception):
    """The call did not return in time; what it has done is unknown."""


def call_with_timeout(wait_s: float, action: Callable[[], T]) -> T:
    """Call `action` in a thread and return its result, or raise its exception; a thread that hangs
    is left behind.

    Raises:
        NoAnswerError: where it takes longer than `wait_s`.
    """
    answer: Future[T] = Future()

    def call() -> None:
        try:
            answer.set_result(action())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    try:
        return answer.result(wait_s)
    except TimeoutError:
        if answer.done():  # the action's own
            raise
        raise NoAnswerError(f"no answer for {wait_s:.0f} s") from None


def error_within(wait_s: float, action: Callable[[], object]) -> Exception | None:
    """Call `action` for at most `wait_s` and return the exception that it raises, a NoAnswerError,
    or None."""
    try:
        call_with_timeout(wait_s, action)
    except Exception as error:
        return error
    return None


def first_sentence(error: Exception) -> str:
    """Return an error's first line; for a validation error, the key and what is wrong with it."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return ": ".join(lines[1:3]) if "validation error" in lines[0] and len(lines) > 1 else lines[0]


@contextmanager
def environment(folder: Path) -> Iterator[None]:
    """Keep the client's files in the run's folder, its output off the terminal and its error
    reports on this machine.

    An empty variable counts as unset, because the client takes it for a wrong value.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith("WANDB_")}
    raising = logging.raiseExceptions
    # WANDB_SERVICE is the address of another run's client process, which may be gone
    for name in [name for name in before if not before[name] or name == "WANDB_SERVICE"]:
        del os.environ[name]
    os.environ |= {
        "WANDB_DATA_DIR": str(folder / "wandb" / "data"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }
    logging.raiseExceptions = False  # the client's own log would bury all else on a full disk
    try:
        yield
    finally:
        end_client(0)  # or the process' next run would get the same settings
        logging.raiseExceptions = raising
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            del os.environ[name]
        os.environ |= before


def end_client(exit_code: int) -> None:
    """End the client's own process and its threads, which would outlive the run."""
    wandb: Any = sys.modules.get("wandb")
    if wandb is None:
        return
    error_within(ANSWER_S, lambda: wandb.teardown(exit_code=exit_code))
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.name().startswith(CORE):  # it has not ended by itself
                child.kill()
                child.wait(5)


def choose_mode(asked: str) -> tuple[str, str | None]:
    """Return the mode to start in, and the reason why it is not `asked`, or None.

    "auto" follows WANDB_MODE and the client's settings. Without those it is online for users who
    are logged in, and offline for all others."""
    import wandb

    try:
        mode = wandb.setup().settings.mode if asked == "auto" else asked
        if mode == "disabled":
            return mode, None
        reason = None if mode in ("offline", "dryrun") else offline_reason()
    except Exception as error:  # the client refuses a variable or a settings file
        mode, reason = "offline", first_sentence(error)
    return (mode, None) if mode == "online" and reason is None else ("offline", reason)


def offline_reason() -> str | None:
    """Return why W&B cannot be used online, or None."""
    import wandb
    from requests.utils import get_netrc_auth

    settings = wandb.setup().settings
    if not (settings.api_key or settings.identity_token_file or get_netrc_auth(settings.base_url)):
        return "no key is known, and `wandb login` stores one"
    url = urlsplit(settings.base_url)
    host = url.hostname or ""
    if url.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return None  # only the client can tell
    address = host, url.port or (443 if url.scheme == "https" else 80)
    # the client itself would try for minutes; the outer limit covers the look-up of the name
    error = error_within(
        2 * CONNECT_TIMEOUT_S,
        lambda: socket.create_connection(address, CONNECT_TIMEOUT_S).close(),
    )
    if error is not None:
        return f"{host} cannot be reached: {getattr(error, 'strerror', None) or error}"
    return None


def logged_error(log: Path) -> str | None:
    """Return the first error in the client's log, or None: `finish()` does not report what a server
    refused."""
    try:
        for text in log.read_text().splitlines():
            line = json.loads(text)
            if line["level"].startswith("ERROR"):
                return str(line.get("error") or line["msg"])
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return f"the client's log cannot be read: {error}"
    return None
