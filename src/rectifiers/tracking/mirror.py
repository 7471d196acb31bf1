"""A run in W&B as a mirror of its record.

An epoch's row is logged under its number, and all rows that the mirror lacks are logged together.
Whatever a kill, a restart or a lost connection left there, in the end it has the record's rows:
none is missing, and none is there twice."""

import io
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from rectifiers.results.figures import FIGURES, png
from rectifiers.results.paper_comparison import Comparison, paper_comparison
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.sections import Logger
from rectifiers.tracking import client, payload
from rectifiers.tracking.client import Tracked, capture_exception, error_within, first_sentence

Rows = Sequence[Mapping[str, Any]]


class Mirror:
    """Receives a run while it is made; this one ignores everything.

    note: a sentence for the end of the output, where the mirror is not complete.
    """

    note: str | None = None

    def epochs(self, history: Rows) -> None:
        """Log the epochs that are not logged yet; `history` holds all of them so far."""

    def finished(self, record: TrainingRecord) -> None:
        """Log the results of a finished or diverged run."""


class WandbMirror(Mirror):
    """The run's mirror in W&B. Where W&B cannot be had it is offline, or, without `fall_back`,
    there is none."""

    def __init__(self, tracked: Tracked, fall_back: bool) -> None:
        self._tracked, self._fall_back = tracked, fall_back
        self._wait_s = tracked.settings.finish_timeout_s
        self._history: Rows = ()
        self._record: TrainingRecord | None = None
        self._reason: str | None = None  # the first, why W&B does not have all of the run
        self._open(tracked)

    def _open(self, tracked: Tracked) -> None:
        has_address = (tracked.folder / client.WANDB / client.ADDRESS).exists()
        self._superseded = client.segments(tracked.folder)
        self._run, reason = client.connect(tracked, self._fall_back)
        self._next_epoch, self._is_concluded = 0, False
        if self._run is not None:
            self._next_epoch = self._run.starting_step
            if self._next_epoch and not has_address:
                reason = reason or f"it has another run {self._run.id}, whose rows it keeps"
            address = {
                "id": self._run.id,
                "project": self._run.project,
                "entity": self._run.entity or None,
            }
            self._note(capture_exception(lambda: client.note_address(tracked.folder, **address)))
        self._note(reason)

    def _note(self, reason: Exception | str | None) -> None:
        if self._reason is None:
            self._reason = first_sentence(reason) if isinstance(reason, Exception) else reason

    @property
    def note(self) -> str | None:  # type: ignore[override]
        if self._reason is None:
            return None
        remedy = (
            f"`{client.SYNC}` sends it" if self._record else "the run sends it when it continues"
        )
        return (
            f"W&B does not have all of run {self._tracked.folder.name} ({self._reason}); {remedy}"
        )

    @property
    def exit_code(self) -> int:
        """The exit code of a run that was not interrupted."""
        return int(self._record is not None and self._record.status == "diverged")

    def epochs(self, history: Rows) -> None:
        self._history = history
        for row in history:
            if self._run is not None and row["epoch"] >= self._next_epoch:
                self._log(row)
                self._next_epoch = row["epoch"] + 1

    def _log(self, row: Mapping[str, Any]) -> None:
        log = partial(self._run.log, payload.row(row), step=row["epoch"], commit=True)
        error = error_within(
            client.ANSWER_S, log
        )  # log() blocks once some 64 KiB wait in the client
        if error is not None:  # no error of any kind ends a training
            self._note(error)
            client.finish(self._run, 1, self._wait_s)
            self._run = None

    def finished(self, record: TrainingRecord) -> None:
        self._record = record
        self.epochs(record.history)
        if self._run is not None and not self._is_concluded:
            checkpoint = (
                self._tracked.folder / "last.ckpt"
                if self._tracked.settings.log_checkpoint
                else None
            )
            self._note(conclude(self._run, record, checkpoint, self._wait_s))
            self._is_concluded = True

    def close(self, exit_code: int) -> None:
        """End the run in W&B, within twice the time of the settings."""
        if self._ended(exit_code) or not self._fall_back or self._reason is None:
            return
        if (
            self._history or self._record
        ):  # the run was lost on the way, and no file of W&B's holds all of it
            self._open(
                replace(
                    self._tracked,
                    settings=self._tracked.settings.model_copy(update={"mode": "offline"}),
                )
            )
            self._ended(exit_code)

    def _ended(self, exit_code: int) -> bool:
        """Log what is missing and end the run; return whether its files on this machine are
        complete."""
        if self._record is None:
            self.epochs(self._history)
        else:
            self.finished(self._record)
        run, self._run = self._run, None
        if run is None:
            return False
        url, log = (
            (None, None)
            if run.offline
            else (run.url, Path(run.dir).parent / "logs" / "debug-internal.log")
        )
        error = client.finish(run, exit_code, self._wait_s)
        self._note(error)
        if error is None and log is not None:
            self._note(client.logged_error(log))
            if self._reason is None and self._record is not None:
                self._note(
                    capture_exception(partial(client.mark, self._tracked.folder, self._record, url))
                )
        is_complete = error is None or isinstance(error, TimeoutError)
        for path in (
            self._superseded if is_complete else ()
        ):  # of earlier processes, whose rows were logged again
            shutil.rmtree(path, ignore_errors=True)
        return is_complete


@contextmanager
def mirrored(tracked: Tracked | None, fall_back: bool = True) -> Iterator[Mirror]:
    """Keep a mirror while the body runs, and end it with the body's exit code, however the body
    ends."""
    if tracked is None:
        yield Mirror()
        return
    with client.environment(tracked.folder):
        mirror = WandbMirror(tracked, fall_back)
        try:
            yield mirror
        except BaseException as error:
            mirror.close(_exit_code(error))
            if mirror.note:
                print(mirror.note, file=sys.stderr)
            raise
        mirror.close(mirror.exit_code)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def publish(
    record: TrainingRecord, folder: Path, settings: Logger, fall_back: bool = True
) -> str | None:
    """Mirror a run from its record alone; return what W&B does not have, and why."""
    tracked = Tracked(settings, folder, record.choices, record.science, record.provenance)
    with mirrored(tracked, fall_back) as mirror:
        mirror.finished(record)
    return mirror.note


def conclude(
    run: Any, record: TrainingRecord, checkpoint: Path | None, wait_s: float
) -> str | None:
    """Log the results of `record`, and `checkpoint` where one is given, in `wait_s`; return the
    first error."""
    steps = [partial(_log_summary, run, record), partial(_log_data, run, record)]
    if checkpoint is not None:
        steps.append(partial(_log_checkpoint, run, record, checkpoint))
    until = time.monotonic() + wait_s
    errors = [error_within(max(0.1, until - time.monotonic()), step) for step in steps]
    return next((first_sentence(error) for error in errors if error), None)


def _log_summary(run: Any, record: TrainingRecord) -> None:
    import wandb
    from PIL import Image

    columns: list[str | int] = [field.name for field in fields(Comparison)]
    table = wandb.Table(
        columns=columns, data=[list(astuple(compared)) for compared in paper_comparison(record)]
    )
    figures = {name: draw(record) for name, draw in FIGURES.items()}
    images = {
        name: wandb.Image(Image.open(io.BytesIO(png(figure))))
        for name, figure in figures.items()
        if figure
    }
    run.summary.update({**payload.summary(record), "paper_vs_measured": table, **images})


def _log_data(run: Any, record: TrainingRecord) -> None:
    """Log which data was used, by a reference to its hash; offline the client has no such
    lineage."""
    import wandb

    if not run.offline:
        data = wandb.Artifact(f"data-{record.choices['data']}", type="dataset")
        data.add_reference(
            f"hash://sha256/{record.provenance.data}", name="content", checksum=False
        )
        run.use_artifact(data)


def _log_checkpoint(run: Any, record: TrainingRecord, path: Path) -> None:
    import wandb

    checkpoint = wandb.Artifact(
        f"checkpoint-{run.id}", type="model", metadata=payload.summary(record)
    )
    checkpoint.add_file(str(path), policy="immutable")
    run.log_artifact(checkpoint)
