"""The W&B client behind time limits, where no error of the client, the network or a server ends or
delays a run.

Notes in the run's folder say where the run is in W&B, and whether W&B has it as it is recorded.
"""

import hashlib
import json
import logging
import os
import shutil
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import Field

from rectifiers.runs.identity import canonical_json
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Provenance
from rectifiers.runs.sections import Logger
from rectifiers.runs.texts import Project
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.schema import Section
from rectifiers.tracking import payload

CONNECT_TIMEOUT_S, INIT_TIMEOUT_S, ANSWER_S = 3, 20, 10
OFFLINE = ("offline", "dryrun")
CORE = "wandb-core"  # the client's own process
MIN_FREE_BYTES = 2**20
SYNC = "python scripts/report.py sync"
WANDB, ADDRESS, NOTE = (
    "wandb",
    "address.json",
    "sent.json",
)  # a folder in the run's, and our files in it
LARGEST_NOTE = 2**16  # bytes
WandbName = Annotated[str, Field(pattern=r"^[\w. -]{1,128}$")]
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
        if answer.done():  # it is the action's own
            raise
        raise NoAnswerError(f"no answer for {wait_s:.0f} s") from None


def capture_exception(action: Callable[[], object]) -> Exception | None:
    """Call `action` and return the exception that it raises, or None."""
    try:
        action()
    except Exception as error:
        return error
    return None


def error_within(wait_s: float, action: Callable[[], object]) -> Exception | None:
    """Call `action` for at most `wait_s` and return the exception that it raises, a NoAnswerError,
    or None."""
    return capture_exception(lambda: call_with_timeout(wait_s, action))


def first_sentence(error: Exception) -> str:
    """Return an error's first line; for a validation error, the key and what is wrong with it."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return ": ".join(lines[1:3]) if "validation error" in lines[0] and len(lines) > 1 else lines[0]


def kill_client() -> None:
    """Kill the client's own process, which does not answer."""
    import psutil  # of the extra wandb

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.name().startswith(CORE):
                child.kill()
                child.wait(5)


@dataclass(frozen=True)
class Tracked:
    """What W&B gets of a run at its start.

    settings: `conf/logger/wandb.yaml`. folder: the run's, whose name identifies it.
    """

    settings: Logger
    folder: Path
    choices: Mapping[str, Any]
    science: Mapping[str, Any]
    provenance: Provenance


@contextmanager
def environment(folder: Path) -> Iterator[None]:
    """Keep the client's files in the run's folder, its output off the terminal and its error
    reports on this machine.

    An empty variable counts as unset, because the client takes it for a wrong value.
    """
    before = dict(os.environ)
    raising = logging.raiseExceptions
    for name in [name for name, value in before.items() if name.startswith("WANDB_") and not value]:
        del os.environ[name]
    os.environ.pop(
        "WANDB_SERVICE", None
    )  # the address of another run's client process, which may be gone
    os.environ |= {
        "WANDB_DATA_DIR": str(folder / "wandb" / "data"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }
    logging.raiseExceptions = (
        False  # on a full disk the client's own log would bury everything else
    )
    try:
        yield
    finally:
        if "wandb" in sys.modules:
            _end_client(0)  # or the process' next run would get the same settings
        logging.raiseExceptions = raising
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            del os.environ[name]
        os.environ |= {name: value for name, value in before.items() if name.startswith("WANDB_")}


def connect(tracked: Tracked, fall_back: bool = True) -> tuple[Any, str | None]:
    """Return the client's run, or None, and the reason why it is not what was asked for, or None.

    `mode=auto` follows WANDB_MODE and the client's settings. Without those it is online for users
    who are logged in, and offline, without a message, for all others."""
    try:
        mode, reason = _choose_mode(tracked.settings.mode)
    except Exception as error:  # the client refuses a variable or a settings file
        mode, reason = "offline", first_sentence(error)
    if mode == "disabled":
        return None, None
    with suppress(OSError):
        (tracked.folder / WANDB).mkdir(
            exist_ok=True
        )  # by this folder the sync finds what is not sent
    if mode == "online":
        run, reason = _start(tracked, "online")
        if run is not None:
            return run, None
    if not fall_back:
        return None, reason or "W&B is set to offline; logger.mode=online, or `wandb online`"
    if shutil.disk_usage(tracked.folder).free < MIN_FREE_BYTES:
        return None, reason or "no space left on device"
    run, start_error = _start(tracked, "offline")
    return run, reason or start_error


def _choose_mode(asked: str) -> tuple[str, str | None]:
    """Return the mode to start in, and the reason why it is not `asked`."""
    import wandb

    mode = wandb.setup().settings.mode if asked == "auto" else asked
    if mode in ("disabled", *OFFLINE):
        return ("disabled" if mode == "disabled" else "offline"), None
    reason = offline_reason(asked)
    return ("online", None) if reason is None else ("offline", reason or None)


def offline_reason(asked: str) -> str | None:
    """Return why W&B cannot be used online, or None; an empty string needs no message."""
    import wandb
    from requests.utils import get_netrc_auth

    settings = wandb.setup().settings
    if not (settings.api_key or settings.identity_token_file or get_netrc_auth(settings.base_url)):
        return "" if asked == "auto" else "no key is known, and `wandb login` stores one"
    return _connection_error(settings.base_url)


def _connection_error(url: str) -> str | None:
    """Return why no connection can be made, or None; the client itself would try for minutes."""
    parts = urlsplit(url)
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(
        parts.hostname or ""
    ):
        return None  # only the client can tell
    address = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    try:  # the outer limit covers the look-up of the name, the inner one does not
        call_with_timeout(
            2 * CONNECT_TIMEOUT_S,
            lambda: socket.create_connection(address, CONNECT_TIMEOUT_S).close(),
        )
    except (OSError, NoAnswerError) as error:
        return f"{parts.hostname} cannot be reached: {getattr(error, 'strerror', None) or error}"
    return None


def _start(tracked: Tracked, mode: Literal["online", "offline"]) -> tuple[Any, str | None]:
    """Start or continue the run in W&B; return it, or None and the reason."""
    before = set(_client_folders(tracked.folder))
    try:
        import wandb

        run = wandb.init(
            **address(tracked.folder, tracked.settings.project),
            **payload.start(
                tracked.folder.name, tracked.choices, tracked.science, tracked.provenance
            ),
            dir=tracked.folder,
            mode=mode,
            resume="allow",
            settings=wandb.Settings(
                silent=True,
                disable_git=True,
                save_code=False,
                console="off",
                allow_val_change=True,
                init_timeout=INIT_TIMEOUT_S,
                finish_timeout=tracked.settings.finish_timeout_s,
                finish_timeout_raises=True,
                # host, paths and arguments; the record's own provenance is in the config
                x_disable_meta=True,
            ),
        )
        run.define_metric("epoch")
        run.define_metric("*", step_metric="epoch")
        return run, None
    except Exception as error:
        _end_client(1)  # its process would say that the run's name is in use
        for path in set(_client_folders(tracked.folder)) - before:
            with suppress(OSError):
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
        return None, first_sentence(error)


def finish(run: Any, exit_code: int, wait_s: float) -> Exception | None:
    """End `run` and the client's own process; return the error. After a TimeoutError all of the run
    is on disk."""
    error = error_within(wait_s + ANSWER_S, lambda: run.finish(exit_code=exit_code))
    if isinstance(error, NoAnswerError):
        kill_client()
    end_error = _end_client(exit_code)
    return error or end_error


def _end_client(exit_code: int) -> Exception | None:
    """End the client's own process and its threads, which would outlive the run."""
    wandb: Any = sys.modules.get("wandb")
    if wandb is None:  # it could not even be imported
        return None
    error = error_within(ANSWER_S, lambda: wandb.teardown(exit_code=exit_code))
    kill_client()  # where it has not ended by itself
    return error


def _client_folders(folder: Path) -> list[Path]:
    return list((folder / WANDB).glob("*run-*"))


def segments(folder: Path) -> set[Path]:
    """Return the client's own folders of this run, one for each process that logged to it."""
    return {path for path in _client_folders(folder) if path.is_dir() and not path.is_symlink()}


def logged_error(log: Path) -> str | None:
    """Return the first error in the client's log, or None: `finish()` does not report what a server
    refused."""
    try:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return next(
            (
                line.get("error") or line["msg"]
                for line in lines
                if line["level"].startswith("ERROR")
            ),
            None,
        )
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return f"the client's log cannot be read: {error}"


class Address(Section):
    """Where a run is in W&B, as its folder notes it: names, and never a server."""

    id: WandbName
    project: Project
    entity: WandbName | None = None


def address(folder: Path, project: str) -> dict[str, Any]:
    """Return the run's id in W&B and its project, and its entity where that is not the account's
    own.

    The id is the run's name. A rerun is another run there, `<name>-2` and so on, because W&B keeps
    rows and does not reuse the id of a deleted run. A sweep's agent gives its own id, which was
    noted."""
    try:
        noted = Address.model_validate_json(read_bytes(folder / WANDB / ADDRESS, LARGEST_NOTE))
        return noted.model_dump(exclude_none=True)
    except (OSError, ValueError):
        earlier = len(list((folder.parent / "replaced").glob(f"{folder.name}-*")))
        return {
            "id": f"{folder.name}-{earlier + 1}" if earlier else folder.name,
            "project": project,
        }


def note_address(folder: Path, **known: str | None) -> None:
    """Note the run's address in W&B, which a sweep may decide."""
    address = {name: value for name, value in known.items() if value}
    write_text(folder / WANDB / ADDRESS, json.dumps(address, indent=1) + "\n")


def mark(folder: Path, record: TrainingRecord, url: str | None) -> None:
    """Note that W&B has `record` of the run of `folder`, at `url`."""
    write_text(
        folder / WANDB / NOTE, json.dumps({"record": _digest(record), "url": url}, indent=1) + "\n"
    )


def is_sent(folder: Path, record: TrainingRecord) -> bool:
    """Return whether W&B has this record; tests that were added later make it another record."""
    try:
        noted = json.loads(read_bytes(folder / WANDB / NOTE, LARGEST_NOTE))
        return noted["record"] == _digest(record)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _digest(record: TrainingRecord) -> str:
    return hashlib.sha256(canonical_json(record.model_dump()).encode()).hexdigest()[:16]
