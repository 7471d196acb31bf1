"""The W&B client at arm's length: no fault of its own, of the network or of a server costs a run, or hangs its end."""

import io
import json
import os
import shutil
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from PIL import Image

from rectifiers.reporting.figures import FIGURES, png
from rectifiers.tracking import contents

CONNECT_TIMEOUT_S, INIT_TIMEOUT_S = 3, 20
OFFLINE = ("offline", "dryrun")
T = TypeVar("T")


@dataclass(frozen=True)
class Tracked:
    """What W&B is told of a run at its start.

    settings: `conf/logger/wandb.yaml`. folder: the run's own, whose name is its identity.
    """

    settings: Mapping[str, Any]
    folder: Path
    choices: Mapping[str, Any]
    science: Mapping[str, Any]
    provenance: Mapping[str, Any]


@contextmanager
def environment(folder: Path) -> Iterator[None]:
    """Keep the client's files in the run's folder, its lines from the terminal and its error reports from its maker."""
    own = {"WANDB_DATA_DIR": str(folder / "wandb" / "data"), "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def connect(tracked: Tracked, fall_back: bool = True) -> tuple[Any, str | None]:
    """Return (the client's run, or None; why it is not what was asked for, or None).

    `mode=auto` is online for who is logged in and offline for who is not, without a word, unless WANDB_MODE says more.
    """
    asked = tracked.settings["mode"]
    mode = os.environ.get("WANDB_MODE", "online") if asked == "auto" else asked
    if mode == "disabled":
        return None, None
    why = None if mode in OFFLINE else why_not_online(asked)
    if mode not in OFFLINE and why is None:
        run, why = _or_none(tracked, "online", None)
        if run is not None:
            return run, None
    return _or_none(tracked, "offline", why or None) if fall_back else (None, why)


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
    try:
        with socket.create_connection(
            (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)), CONNECT_TIMEOUT_S
        ):
            return None
    except OSError as fault:
        return f"{parts.hostname} cannot be reached: {fault.strerror or fault}"


def _or_none(tracked: Tracked, mode: Literal["online", "offline"], why: str | None) -> tuple[Any, str | None]:
    own = tracked.folder / "wandb"
    before = set(own.glob("*run-*"))
    try:
        return start(tracked, mode), why
    except Exception as fault:
        import wandb

        _caught(wandb.teardown)  # its process would say that the run's name is in use
        for made in set(own.glob("*run-*")) - before:
            with suppress(OSError):
                made.unlink() if made.is_symlink() else shutil.rmtree(made)
        return None, first_sentence(fault)


def start(tracked: Tracked, mode: Literal["online", "offline"]) -> Any:
    """Start, or go on with, the run in W&B; a failure is an exception of the client's."""
    import wandb

    own = tracked.folder / "wandb"
    earlier = [path for path in own.glob("*run-*") if not path.is_symlink()]
    run = wandb.init(
        project=tracked.settings["project"],
        id=tracked.folder.name,
        name=contents.title(tracked.choices),
        group=contents.group(tracked.choices),
        tags=contents.tags(tracked.choices),
        dir=tracked.folder,
        mode=mode,
        resume="allow",
        config=contents.config(tracked.choices, tracked.science, tracked.provenance),
        settings=wandb.Settings(
            silent=True,
            disable_git=True,
            save_code=False,
            console="off",
            allow_val_change=True,
            init_timeout=INIT_TIMEOUT_S,
            finish_timeout=tracked.settings["finish_timeout_s"],
            finish_timeout_raises=True,
        ),
    )
    run.define_metric("epoch")
    run.define_metric("*", step_metric="epoch")
    for path in earlier:  # of a process before this one; all it was told is told again
        shutil.rmtree(path, ignore_errors=True)
    return run


def conclude(run: Any, record: dict[str, Any], tracked: Tracked) -> str | None:
    """Tell what the run found, and which data and weights it is of; return what the client refused first."""
    steps = (_summarize, _name_data, *([_keep_checkpoint] if tracked.settings["log_checkpoint"] else []))
    wait_s = tracked.settings["finish_timeout_s"]
    faults = [_caught(partial(within, wait_s, partial(step, run, record, tracked))) for step in steps]
    return next((first_sentence(fault) for fault in faults if fault), None)


def _summarize(run: Any, record: dict[str, Any], _: Tracked) -> None:
    import wandb

    table = wandb.Table(columns=list(contents.COMPARISON_COLUMNS), data=contents.comparison_rows(record))
    figures = {name: draw(record) for name, draw in FIGURES.items()}
    drawn = {name: wandb.Image(Image.open(io.BytesIO(png(figure)))) for name, figure in figures.items() if figure}
    run.summary.update({**contents.summary(record), "paper_vs_measured": table, **drawn})


def _name_data(run: Any, record: dict[str, Any], _: Tracked) -> None:
    """Lineage: a reference to the data by hash. Without a server the client knows of none, and the config names it."""
    import wandb

    if not run.offline:
        data = wandb.Artifact(f"data-{record['choices']['data']}", type="dataset")
        data.add_reference(f"hash://sha256/{record['provenance']['data']}", name="content", checksum=False)
        run.use_artifact(data)


def _keep_checkpoint(run: Any, record: dict[str, Any], tracked: Tracked) -> None:
    import wandb

    checkpoint = wandb.Artifact(f"checkpoint-{run.id}", type="model", metadata=contents.summary(record))
    checkpoint.add_file(str(tracked.folder / "last.ckpt"), policy="immutable")
    run.log_artifact(checkpoint)


def finish(run: Any, exit_code: int) -> Exception | None:
    """End `run` and the client's own process; return what went wrong. A TimeoutError leaves all of it on disk."""
    import wandb

    fault = _caught(lambda: run.finish(exit_code=exit_code))
    end_of_client = _caught(lambda: wandb.teardown(exit_code=exit_code))  # its threads would outlive the run
    return fault or end_of_client


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


def within(wait_s: float, action: Callable[[], T]) -> T:
    """Return what `action` does, or raise what it raises.

    Raises:
        TimeoutError: where it takes longer; the client waits for some answers for ever.
    """
    found: list[T] = []
    faults: list[Exception | None] = []
    thread = threading.Thread(target=lambda: faults.append(_caught(lambda: found.append(action()))), daemon=True)
    thread.start()
    thread.join(wait_s)
    if not faults:
        raise TimeoutError(f"no answer for {wait_s:g} s")
    if faults[0] is not None:
        raise faults[0]
    return found[0]


def _caught(action: Callable[[], Any]) -> Exception | None:
    try:
        action()
    except Exception as fault:
        return fault
    return None


def first_sentence(fault: Exception) -> str:
    """Return what an error says, in a line."""
    return next(iter(str(fault).strip().splitlines()), "") or type(fault).__name__
