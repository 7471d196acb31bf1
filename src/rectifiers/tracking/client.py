"""The W&B client at arm's length: no fault of its own, of the network or of a server costs a run, or hangs its end."""

import json
import logging
import os
import shutil
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from rectifiers.runs.config import Logger
from rectifiers.runs.record_parts import Provenance
from rectifiers.runtime.timeouts import (
    NoAnswerError,
    call_with_timeout,
    capture_exception,
    first_sentence,
    kill_children,
)
from rectifiers.tracking import payload, sync_state

CONNECT_TIMEOUT_S, INIT_TIMEOUT_S, ANSWER_S = 3, 20, 10
OFFLINE = ("offline", "dryrun")
CORE = "wandb-core"  # the client's own process
LEAST_ROOM_BYTES = 2**20


@dataclass(frozen=True)
class Tracked:
    """What W&B is told of a run at its start.

    settings: `conf/logger/wandb.yaml`. folder: the run's own, whose name is its identity.
    """

    settings: Logger
    folder: Path
    choices: Mapping[str, Any]
    science: Mapping[str, Any]
    provenance: Provenance


@contextmanager
def environment(folder: Path) -> Iterator[None]:
    """Keep the client's files in the run's folder, its lines from the terminal and its error reports from its maker.

    A variable that is set to nothing counts as not set; the client takes it for a wrong value.
    """
    before = dict(os.environ)
    raising = logging.raiseExceptions
    for name in [name for name, value in before.items() if name.startswith("WANDB_") and not value]:
        del os.environ[name]
    os.environ.pop("WANDB_SERVICE", None)  # of another run's client process, which may be gone
    os.environ |= {
        "WANDB_DATA_DIR": str(folder / "wandb" / "data"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }
    logging.raiseExceptions = False  # on a full disk the client's own log would bury all other lines
    try:
        yield
    finally:
        if "wandb" in sys.modules:
            _end_client(0)  # it would keep its settings of now for the process' next run
        logging.raiseExceptions = raising
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            del os.environ[name]
        os.environ |= {name: value for name, value in before.items() if name.startswith("WANDB_")}


def connect(tracked: Tracked, fall_back: bool = True) -> tuple[Any, str | None]:
    """Return (the client's run, or None; why it is not what was asked for, or None).

    `mode=auto` is what WANDB_MODE and the client's settings say, and without them online for who is logged in and
    offline, without a word, for who is not.
    """
    try:
        mode, why = _mode(tracked.settings.mode)
    except Exception as fault:  # a variable or a settings file that the client refuses, in any words
        mode, why = "offline" if fall_back else "none", first_sentence(fault)
    if mode == "disabled":
        return None, None
    with suppress(OSError):
        sync_state.place(tracked.folder).mkdir(exist_ok=True)  # what is not sent is looked for by this folder
    if mode == "online":
        run, why = _or_none(tracked, "online")
        if run is not None:
            return run, None
    if not fall_back:
        return None, why or "W&B is set to offline; logger.mode=online, or `wandb online`"
    if shutil.disk_usage(tracked.folder).free < LEAST_ROOM_BYTES:
        return None, why or "no space left on device"
    run, still = _or_none(tracked, "offline")
    return run, why or still


def _mode(asked: str) -> tuple[str, str | None]:
    """The mode to start in, and why it is not the one that was asked for."""
    import wandb

    mode = wandb.setup().settings.mode if asked == "auto" else asked
    if mode in OFFLINE:
        return "offline", None
    if mode == "disabled":
        return mode, None
    why = why_not_online(asked)
    return ("online", None) if why is None else ("offline", why or None)


def why_not_online(asked: str) -> str | None:
    """Return what speaks against an attempt; an empty string is no reason to speak of it."""
    import wandb

    settings = wandb.setup().settings
    if not (settings.api_key or settings.identity_token_file or _netrc_key(settings.base_url)):
        return "" if asked == "auto" else "no key is known, and `wandb login` stores one"
    return _unreachable(settings.base_url)


def _netrc_key(url: str) -> bool:
    from requests.utils import get_netrc_auth

    return get_netrc_auth(url) is not None


def _unreachable(url: str) -> str | None:
    """Why no connection can be made; the client itself would try for minutes. Behind a proxy only it can tell."""
    parts = urlsplit(url)
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    place = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    try:  # the time limit of a connection does not cover the look-up of the name
        call_with_timeout(2 * CONNECT_TIMEOUT_S, lambda: socket.create_connection(place, CONNECT_TIMEOUT_S).close())
    except (OSError, NoAnswerError) as fault:
        return f"{parts.hostname} cannot be reached: {getattr(fault, 'strerror', None) or fault}"
    return None


def _or_none(tracked: Tracked, mode: Literal["online", "offline"]) -> tuple[Any, str | None]:
    own = sync_state.place(tracked.folder)
    before = set(own.glob("*run-*"))
    try:
        return start(tracked, mode), None
    except Exception as fault:
        _end_client(1)  # its process would say that the run's name is in use
        for made in set(own.glob("*run-*")) - before:
            with suppress(OSError):
                made.unlink() if made.is_symlink() else shutil.rmtree(made)
        return None, first_sentence(fault)


def start(tracked: Tracked, mode: Literal["online", "offline"]) -> Any:
    """Start, or go on with, the run in W&B; a failure is an exception of the client's."""
    import wandb

    address = sync_state.address(tracked.folder, tracked.settings.project)
    run = wandb.init(
        **address,
        name=payload.title(tracked.choices),
        group=payload.group(tracked.choices),
        tags=payload.tags(tracked.choices),
        dir=tracked.folder,
        mode=mode,
        resume="allow",
        config=payload.config(tracked.folder.name, tracked.choices, tracked.science, tracked.provenance),
        settings=wandb.Settings(
            silent=True,
            disable_git=True,
            save_code=False,
            console="off",
            allow_val_change=True,
            init_timeout=INIT_TIMEOUT_S,
            finish_timeout=tracked.settings.finish_timeout_s,
            finish_timeout_raises=True,
            x_disable_meta=True,  # host, paths and arguments; the record's own provenance is in the config
        ),
    )
    run.define_metric("epoch")
    run.define_metric("*", step_metric="epoch")
    return run


def finish(run: Any, exit_code: int, wait_s: float) -> Exception | None:
    """End `run` and the client's own process; return what went wrong. A TimeoutError leaves all of it on disk."""
    fault = capture_exception(lambda: call_with_timeout(wait_s + ANSWER_S, lambda: run.finish(exit_code=exit_code)))
    if isinstance(fault, NoAnswerError):
        kill_children(CORE)
    ended = _end_client(exit_code)
    return fault or ended


def _end_client(exit_code: int) -> Exception | None:
    """End the client's own process and its threads, which would outlive the run."""
    wandb: Any = sys.modules.get("wandb")
    if wandb is None:  # it could not even be imported
        return None
    fault = capture_exception(lambda: call_with_timeout(ANSWER_S, lambda: wandb.teardown(exit_code=exit_code)))
    kill_children(CORE)  # where it has not ended by itself
    return fault


def segments(folder: Path) -> set[Path]:
    """Return the client's own folders of this run, one for each process that told it."""
    return {path for path in sync_state.place(folder).glob("*run-*") if path.is_dir() and not path.is_symlink()}


def log_of(run: Any) -> Path:
    """Return the log of the client's own process for this run."""
    return Path(run.dir).parent / "logs" / "debug-internal.log"


def complaint(log: Path) -> str | None:
    """Return what the client could not send, by its own log: `finish()` says nothing of what a server refused."""
    try:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return next((line.get("error") or line["msg"] for line in lines if line["level"].startswith("ERROR")), None)
    except (OSError, ValueError, KeyError, AttributeError) as fault:
        return f"the client's log cannot be read: {fault}"
