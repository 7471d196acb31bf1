"""Lightning's logger for W&B, where no error of the client, the network or a server ends a run."""

import os
import re
import shutil
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pytorch_lightning import loggers
from pytorch_lightning.loggers.logger import DummyExperiment

from rectifiers.runs.identity import without
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime import files
from rectifiers.runtime.console import printable
from rectifiers.runtime.ranges import Range
from rectifiers.runtime.schema import JsonObject
from rectifiers.tracking import wandb_artifacts
from rectifiers.tracking.loggers import RunLogger, finite, group

CONNECT_TIMEOUT_S, INIT_TIMEOUT_S = 3, 20
TAGS = ("activation", "init", "model")
MAX_TAG_LENGTH = 64
TITLE = ("model", "activation", "init", "data")
ERRORS = ("val/error_top1", "val/error_top5")  # of which the summary has the least
REMOTES = ("git", "http", "https", "ssh")  # schemes of a repository's address
PATHS = ("NETRC", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DIR")  # of the environment


class WandbLogger(RunLogger, loggers.WandbLogger):
    """Lightning's, in `<run>/wandb`, online where that is possible and otherwise offline.

    An epoch's row has its number as W&B's step, and W&B continues a run under the same id: so it
    has each epoch once. A rerun is another run there, because W&B keeps rows.

    entity: owner of the project; None: the user's account. group: None: the experiment's table, or
    the search. job_type: what the run is for, such as train or search. mode: auto: online for a
    user who is logged in. finish_timeout_s: how long to wait for the server at the end.
    save_code: send the sources, their commit and the address of their repository, unless
    WANDB_DISABLE_CODE or WANDB_DISABLE_GIT refuse it. log_model: send the last checkpoint, the
    record, and the data by reference. log_predictions: send a table of what each protocol answered,
    from kept scores.
    """

    def __init__(
        self,
        save_dir: str,
        *,
        project: str = "rectifiers",
        entity: str | None = None,
        group: str | None = None,
        job_type: str = "train",
        mode: Literal["auto", "online", "offline"] = "auto",
        finish_timeout_s: Annotated[float, Range(gt=0, le=86400)] = 60.0,
        save_code: bool = True,
        log_model: bool = False,
        log_predictions: bool = False,
    ) -> None:
        folder = Path(save_dir)
        # a rerun moves the folder of the run before it to `replaced`
        earlier = len(list((folder.parent / "replaced").glob(f"{folder.name}-*")))
        run_id = f"{folder.name}-{earlier + 1}" if earlier else folder.name
        super().__init__(save_dir=save_dir, id=run_id, project=project)
        self._folder, self._mode, self._wait_s = folder, mode, finish_timeout_s
        self._run = {"id": run_id, "project": project, "entity": entity, "job_type": job_type}
        self._saves_code, self._sends_model = save_code, log_model
        self._sends_predictions = log_predictions
        if group:
            self._run["group"] = group
        self.note: str | None = None  # why W&B does not have all of the run
        self._pending: JsonObject = {}  # what Lightning logged since the last epoch's row
        self._is_started = False
        self._status: str | None = None  # of the record
        self._is_lost = False  # whether the client failed after its start
        self._until_the_end = ExitStack()

    @property
    def experiment(self) -> Any:
        """W&B's run, or something that ignores all calls where there is none."""
        return DummyExperiment() if self._experiment is None else self._experiment

    def log_hyperparams(self, params: Any) -> None:
        """Begin with the parameters of `open_loggers`; add what a callback logs later."""
        if self._is_started:
            self._attempt(lambda: super(RunLogger, self).log_hyperparams(params))
        else:
            self._is_started = True
            self._start({**description(params), **self._run, "config": params})

    def _start(self, run: JsonObject) -> None:
        """Start the run in W&B, offline where online does not work; run: arguments of
        `wandb.init`."""
        self._until_the_end.enter_context(client_environment(self._folder))
        for path in self._client_folders():  # of earlier processes: all is logged again
            if path.name.startswith("offline"):
                shutil.rmtree(path, ignore_errors=True)
        mode, reason = choose_mode(self._mode)
        if mode == "disabled":
            return
        if not self._init(mode, run) and mode == "online":
            self._init("offline", run)
        if mode == "offline":
            self._explain(reason or "it is offline")

    def _init(self, mode: Literal["online", "offline"], run: JsonObject) -> bool:
        """Start or continue the run in W&B; return whether that could be done."""
        before = self._client_folders()
        with suppress(OSError):
            (self._folder / "wandb").mkdir(exist_ok=True)
        try:
            wandb = load_client()
            commit = run["config"]["provenance"]["git_sha"] if self._saves_code else None
            git = commit_settings(commit)
            if "disable_git" in git:
                run = {**run, "config": without(run["config"], ("provenance.git_sha",))}
            settings = wandb.Settings(
                silent=True,
                **git,
                program="train.py",
                host="",
                save_code=False,  # W&B's own sends only the script
                console="off",
                allow_val_change=True,
                init_timeout=INIT_TIMEOUT_S,
                finish_timeout=self._wait_s,
                finish_timeout_raises=True,
                x_disable_meta=True,  # host, paths and arguments
            )
            experiment = wandb.init(
                **run, dir=self._folder.absolute(), mode=mode, resume="allow", settings=settings
            )
            experiment.define_metric("epoch")
            experiment.define_metric("*", step_metric="epoch")
            for error in ERRORS:
                experiment.define_metric(error, step_metric="epoch", summary="min")
        except Exception as error:
            self._explain(first_sentence(error))
            end_client()  # its process would say that the run's name is in use
            for path in self._client_folders() - before:
                shutil.rmtree(path, ignore_errors=True)
            return False
        self._experiment, self.next_epoch = experiment, experiment.starting_step
        return True

    def _client_folders(self) -> set[Path]:
        """Return the client's own folders of this run, one for each process that logged to it."""
        places = (self._folder / "wandb").glob("*run-*")
        return {path for path in places if path.is_dir() and not path.is_symlink()}

    def _explain(self, reason: str) -> None:
        """Keep the first reason why W&B does not have all of the run."""
        if self.note is None:
            text = f"W&B does not have all of run {self._folder.name} ({reason})"
            self.note = printable(text)  # a server may have said it

    def _attempt(self, action: Callable[[], object]) -> None:
        """Do what talks to the client; where that fails, leave W&B alone from now on."""
        if self._experiment is None:
            return
        try:
            action()
        except Exception as error:
            self._is_lost = True
            self._explain(first_sentence(error))
            self._finish(1)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keep what Lightning logs by itself for the next epoch's row."""
        self._pending |= metrics

    def log_epoch(self, row: JsonObject) -> None:
        line, self._pending = {**self._pending, **finite(row)}, {}
        self._attempt(lambda: self.experiment.log(line, step=row["epoch"], commit=True))

    def log_results(self, results: Mapping[str, float], record: TrainingRecord) -> None:
        self._status = record.status
        ending = {"status": record.status, "epochs": record.epochs, "wall_s": record.wall_s}
        self._attempt(lambda: self.experiment.summary.update({**results, **ending}))
        if self._experiment is not None:
            self._send_files(record)

    def _send_files(self, record: TrainingRecord) -> None:
        """Send what is asked for besides numbers, which W&B has already."""
        run, folder = self.experiment, self._folder.absolute()

        def send() -> None:
            made = []
            if self._saves_code and not run.settings.disable_code:
                made += wandb_artifacts.log_code(run, record)
            if self._sends_model:
                made += wandb_artifacts.log_model(run, folder, record)
            if self._sends_predictions:
                wandb_artifacts.log_predictions(run, folder, record)
            if not run.offline:
                wandb_artifacts.wait(made, self._wait_s)

        try:
            wandb_artifacts.within(self._wait_s, send)
        except Exception as error:
            self._is_lost = True
            self._explain(first_sentence(error))

    def close(self, exit_code: int) -> None:
        """End the run in W&B, in little more than `finish_timeout_s`, and print what to do where it
        does not have all of the run."""
        with self._until_the_end:
            self._finish(exit_code or int(self._status == "diverged"))
        if self.note is not None:
            self.note += f"; {self._remedy()}"
            print(printable(self.note), file=sys.stderr)

    def _finish(self, exit_code: int) -> None:
        run, self._experiment = self._experiment, None
        if run is None:
            return
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:
            self._is_lost = True
            self._explain(first_sentence(error))
        end_client()

    def _remedy(self) -> str:
        if self._status is None:
            return "the same command goes on with it"
        folders = self._client_folders()
        # after an online process, `wandb sync` would send rows again that the server has
        is_offline = all(path.name.startswith("offline") for path in folders)
        if folders and is_offline and not self._is_lost:
            return f"to send it: wandb sync {' '.join(map(str, folders))}"
        return f"to send it: python scripts/evaluate.py run={self._folder} logger=wandb"


def description(parameters: JsonObject) -> JsonObject:
    """Return the name, group and tags of a run of these hyperparameters."""
    chosen = [str(parameters[key]) for key in TAGS if parameters.get(key)]
    tags = dict.fromkeys((*chosen, *parameters["config"].get("tags", ())))
    return {
        "name": " ".join(str(parameters[key]) for key in TITLE if parameters.get(key)),
        "group": group(parameters),
        "tags": [tag[:MAX_TAG_LENGTH] for tag in tags],
    }


def commit_settings(commit: str | None) -> JsonObject:
    """Return the client's settings of a commit and its repository; without a commit, and where the
    user's WANDB_DISABLE_GIT refuses it, the client is to look for none."""
    if commit is None or load_client().setup().settings.disable_git:
        return {"disable_git": True}
    remote = None
    if files.CHECKOUT is not None:
        remote = files.git("config", "--get", "remote.origin.url", at=files.CHECKOUT)
    # empty and not None, for which the client asks git in the working directory
    return {"git_commit": commit, "git_remote_url": public_address(remote or "")}


def public_address(remote: str) -> str:
    """Return the address of a repository without names and keys of users, or nothing where it is a
    path of this machine."""
    if match := re.fullmatch(r"[^/@:]+@([\w.-]+):([^/].*)", remote):  # git@host:owner/name
        return f"ssh://{match[1]}/{match[2]}"
    try:
        url = urlsplit(remote)
    except ValueError:
        return ""
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}{url.path}" if host and url.scheme in REMOTES else ""


def first_sentence(error: Exception) -> str:
    """Return an error's first line; for a validation error, the key and what is wrong with it."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if not lines:
        return type(error).__name__
    if "validation error" in lines[0] and len(lines) > 1:  # pydantic's second and third line
        return ": ".join(lines[1:3]).partition(" [type=")[0]
    return lines[0]


@contextmanager
def client_environment(folder: Path) -> Iterator[None]:
    """Keep the client's files in the run's folder, its output off the terminal and its error
    reports on this machine. The variables stay changed until `isolated` restores them, or the
    process ends."""
    for name, value in list(os.environ.items()):
        # the client takes an empty variable for a wrong value; WANDB_SERVICE is the address of
        # another run's client process, which may be gone
        if name.startswith("WANDB_") and (not value or name == "WANDB_SERVICE"):
            del os.environ[name]
    for name in os.environ.keys() & PATHS:  # relative to another folder in `load_client`
        os.environ[name] = os.path.abspath(os.path.expanduser(os.environ[name]))
    os.environ |= {
        "WANDB_DATA_DIR": str((folder / "wandb" / "data").absolute()),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }
    try:
        yield
    finally:
        end_client()  # or the process' next run would get the same settings


def load_client() -> ModuleType:
    """Return W&B's client with its settings.

    It obeys `wandb/settings` of the folder that its process stands in when they are loaded.
    Anybody may have made that folder, and the server that it names would get the user's key: so
    they are loaded in an empty one. The client's own process starts there, too: it must be given
    absolute paths."""
    import wandb

    with TemporaryDirectory() as empty, chdir(empty):
        wandb.setup()
    return wandb


def end_client() -> None:
    """End the client's own process, which would outlive the run."""
    if "wandb" in sys.modules:
        import wandb

        with suppress(Exception):
            wandb.teardown()


def choose_mode(mode: str) -> tuple[Literal["online", "offline", "disabled"], str | None]:
    """Return the mode to start in, and the reason why it is not `mode`, or None; "auto" follows
    WANDB_MODE and the client's settings, and is online for who is logged in."""
    try:
        if mode == "auto":
            mode = load_client().setup().settings.mode
        if mode == "disabled":
            return "disabled", None
        if mode in ("offline", "dryrun"):  # two names of one
            return "offline", None
        reason = offline_reason()
    except Exception as error:  # the client refuses a variable or a settings file
        reason = first_sentence(error)
    return ("offline", reason) if reason else ("online", None)


def offline_reason() -> str | None:
    """Return why W&B cannot be used online, or None."""
    from requests.utils import get_netrc_auth

    settings = load_client().setup().settings
    if not (settings.api_key or settings.identity_token_file or get_netrc_auth(settings.base_url)):
        return "no key is known, and `wandb login` stores one"

    url = urlsplit(settings.base_url)
    host = url.hostname or ""
    if url.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return None  # through a proxy, of which only the client knows
    address = host, url.port or (443 if url.scheme == "https" else 80)
    try:  # the client itself would try for minutes
        socket.create_connection(address, CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"{host} cannot be reached: {error.strerror or error}"
    return None
