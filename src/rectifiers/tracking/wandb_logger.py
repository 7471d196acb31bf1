"""Lightning's logger for W&B, where no error of the client, the network or a server ends or delays
a run."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning import loggers
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers.logger import DummyExperiment

from rectifiers.runs.record import TrainingRecord
from rectifiers.tracking import client
from rectifiers.tracking.client import error_within, first_sentence
from rectifiers.tracking.loggers import Rows, RunLogger
from rectifiers.tracking.payload import finite


class WandbLogger(RunLogger, loggers.WandbLogger):
    """Lightning's, in `<run>/wandb`, online where that is possible and otherwise offline.

    An epoch's row has its number as W&B's step, and W&B continues a run under the same id: so it
    has each epoch once. A rerun is another run there, because W&B keeps rows.

    mode: auto: online for a user who is logged in. finish_timeout_s: how long to wait for the
    server at the end. log_model: as in Lightning, of the checkpoints of a ModelCheckpoint.
    """

    def __init__(
        self,
        save_dir: str,
        *,
        project: str = "rectifiers",
        entity: str | None = None,
        group: str | None = None,
        mode: Literal["auto", "online", "offline"] = "auto",
        log_model: bool | Literal["all"] = False,
        finish_timeout_s: float = 60.0,
    ) -> None:
        folder = Path(save_dir)
        earlier = len(list((folder.parent / "replaced").glob(f"{folder.name}-*")))
        run_id = f"{folder.name}-{earlier + 1}" if earlier else folder.name
        super().__init__(save_dir=save_dir, id=run_id, project=project, log_model=log_model)
        self._folder, self._mode, self._wait_s = folder, mode, finish_timeout_s
        self._asked: dict[str, Any] = {
            "id": run_id,
            "project": project,
            "entity": entity,
            "group": group,
        }
        self._rows: Rows = ()
        self._pending: dict[str, Any] = {}  # what Lightning logged since the last epoch's row
        self._summary: dict[str, Any] = {}
        self._next_epoch, self._is_lost = 0, False
        self._earlier: set[Path] = set()
        self._offline_reason: str | None = None
        self._until_the_end = ExitStack()

    @property
    def experiment(self) -> Any:
        """W&B's run, or something that ignores all calls where there is none."""
        return DummyExperiment() if self._experiment is None else self._experiment

    def start(self, description: Mapping[str, Any], hyperparameters: dict[str, Any]) -> None:
        group = self._asked["group"] or description["group"]
        self._asked |= {**description, "group": group, "config": hyperparameters}
        self._until_the_end.enter_context(client.environment(self._folder))
        self._earlier = self._client_folders()
        mode, reason = client.choose_mode(self._mode)
        if mode == "disabled":
            return
        with suppress(OSError):
            (self._folder / "wandb").mkdir(exist_ok=True)
        error = self._init(mode)
        if error is not None and mode == "online":
            self._init("offline")
        is_offline = self._experiment is not None and self._experiment.offline
        self._offline_reason = reason or error or ("it is offline" if is_offline else None)

    def _init(self, mode: Literal["online", "offline"] | str) -> str | None:
        """Start or continue the run in W&B; return why there is none."""
        import wandb

        before = self._client_folders()
        settings: dict[str, Any] = {
            "silent": True,
            "disable_git": True,  # the record's provenance is in the config
            "save_code": False,
            "console": "off",
            "allow_val_change": True,
            "init_timeout": client.INIT_TIMEOUT_S,
            "finish_timeout": self._wait_s,
            "finish_timeout_raises": True,
            "x_disable_meta": True,  # host, paths and arguments
        }
        try:
            run = wandb.init(
                **self._asked,
                dir=self._folder,
                mode=mode,  # type: ignore[arg-type]
                resume="allow",
                settings=wandb.Settings(**settings),
            )
            run.define_metric("epoch")
            run.define_metric("*", step_metric="epoch")
        except Exception as error:
            client.end_client(1)  # its process would say that the run's name is in use
            for path in self._client_folders() - before:
                shutil.rmtree(path, ignore_errors=True)
            return first_sentence(error)
        self._experiment, self._next_epoch = run, run.starting_step
        return None

    def _client_folders(self) -> set[Path]:
        """Return the client's own folders of this run, one for each process that logged to it."""
        places = (self._folder / "wandb").glob("*run-*")
        return {path for path in places if path.is_dir() and not path.is_symlink()}

    def _explain(self, reason: str | None) -> None:
        """Note the first reason why W&B does not have all of the run."""
        if reason is not None and self.note is None:
            self.note = f"W&B does not have all of run {self._folder.name} ({reason})"

    def _guarded(self, wait_s: float, action: Callable[[], object]) -> None:
        """Do what talks to the client. It blocks without a limit where its process hangs."""
        if self._experiment is None:
            return
        error = error_within(wait_s, action)
        if error is not None:
            self._explain(first_sentence(error))
            self._is_lost = True
            self._finish(1)

    def log_hyperparams(self, params: Any) -> None:
        self._guarded(client.ANSWER_S, lambda: super(RunLogger, self).log_hyperparams(params))

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keep what Lightning logs by itself for the next epoch's row."""
        self._pending |= metrics

    def log_history(self, rows: Rows) -> None:
        self._rows = rows
        for row in rows:
            if self._experiment is None or row["epoch"] < self._next_epoch:
                continue
            line = {**self._pending, **finite(row)}
            self._pending, self._next_epoch = {}, row["epoch"] + 1
            log = self._experiment.log
            self._guarded(client.ANSWER_S, lambda: log(line, step=line["epoch"], commit=True))  # noqa: B023

    def log_results(self, results: Mapping[str, float], record: TrainingRecord) -> None:
        ending = {"status": record.status, "epochs": record.epochs, "wall_s": record.wall_s}
        self._summary = {**results, **ending}
        self._guarded(self._wait_s, lambda: self.experiment.summary.update(self._summary))

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        ask = super().after_save_checkpoint
        self._guarded(self._wait_s, lambda: ask(checkpoint_callback))

    def finalize(self, status: str) -> None:
        ask = super().finalize
        self._guarded(self._wait_s, lambda: ask(status))

    def close(self, exit_code: int) -> None:
        """End the run in W&B, in little more than `finish_timeout_s`."""
        with self._until_the_end:
            self._finish(exit_code or int(self._summary.get("status") == "diverged"))
        self._explain(self._offline_reason)
        if self.note is not None:
            self.note += f"; {self._remedy()}"

    def _finish(self, exit_code: int) -> None:
        run, self._experiment = self._experiment, None
        if run is None:
            return
        error = error_within(
            self._wait_s + client.ANSWER_S, lambda: run.finish(exit_code=exit_code)
        )
        if error is not None:
            self._is_lost = True
            self._explain(first_sentence(error))
        elif not run.offline:
            self._explain(client.logged_error(Path(run.dir).parent / "logs/debug-internal.log"))
        client.end_client(exit_code)
        if not self._is_lost:
            self._remove_earlier(and_online=not run.offline)

    def _remove_earlier(self, *, and_online: bool) -> None:
        """Remove what earlier processes left on this machine: all of it was logged again."""
        for path in self._earlier:
            if and_online or path.name.startswith("offline"):
                shutil.rmtree(path, ignore_errors=True)

    def _remedy(self) -> str:
        if not self._summary:
            return "the same command goes on with it"
        # `wandb sync` would send rows again that the server has
        places = sorted(self._client_folders())
        if len(places) == 1 and places[0].name.startswith("offline") and not self._is_lost:
            return f"to send it: wandb sync {places[0]}"
        return f"to send it: python scripts/evaluate.py run={self._folder} logger=wandb"
