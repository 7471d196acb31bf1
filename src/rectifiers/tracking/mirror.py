"""A run in W&B as a mirror of its record.

An epoch's row is told by its number, and all that the mirror lacks is told together. Whatever a kill, a restart or a
lost connection left there, it ends as the record is: no row missing, none twice.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rectifiers.runs.config import Logger
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.timeouts import call_with_timeout, capture_exception, first_sentence
from rectifiers.tracking import client, payload, sync_state
from rectifiers.tracking.client import Tracked

Rows = Sequence[Mapping[str, Any]]


class Mirror:
    """What a run is told to while it is made; this one is for those that are told to nobody.

    note: a sentence for the end of the output, where something does not have what it was to have.
    """

    note: str | None = None

    def epochs(self, history: Rows) -> None:
        """Tell the epochs that are not told yet; `history` holds all of them so far."""

    def finished(self, record: TrainingRecord) -> None:
        """Tell what a finished or diverged run found."""


class WandbMirror(Mirror):
    """The run's mirror in W&B. Without `fall_back` there is none where W&B cannot be had, instead of an offline one."""

    def __init__(self, tracked: Tracked, fall_back: bool) -> None:
        self._tracked, self._fall_back = tracked, fall_back
        self._wait_s = tracked.settings.finish_timeout_s
        self._history: Rows = ()
        self._record: TrainingRecord | None = None
        self._why: str | None = None
        self._open(tracked)

    def _open(self, tracked: Tracked) -> None:
        known, earlier = sync_state.has_address(tracked.folder), client.segments(tracked.folder)
        self._run, why = client.connect(tracked, self._fall_back)
        self._next, self._concluded, self._superseded = 0, False, earlier
        if self._run is not None:
            self._next = self._run.starting_step
            if self._next and not known:
                why = why or f"it has another run {self._run.id}, whose rows it keeps"
            where = {"id": self._run.id, "project": self._run.project, "entity": self._run.entity or None}
            self._because(capture_exception(lambda: sync_state.note_address(tracked.folder, **where)))
        self._why = self._why or why

    def _because(self, fault: Exception | None) -> None:
        if fault is not None:
            self._why = self._why or first_sentence(fault)

    @property
    def note(self) -> str | None:  # type: ignore[override]
        if self._why is None:
            return None
        remedy = f"`{sync_state.SYNC}` sends it" if self._record else "the run tells it when it is gone on with"
        return f"W&B does not have all of run {self._tracked.folder.name} ({self._why}); {remedy}"

    @property
    def exit_code(self) -> int:
        """What the process of a run ends with that was not cut short."""
        return int(self._record is not None and self._record.status == "diverged")

    def epochs(self, history: Rows) -> None:
        self._history = history
        for row in history:
            if self._run is not None and row["epoch"] >= self._next:
                self._tell(row)
                self._next = row["epoch"] + 1

    def _tell(self, row: Mapping[str, Any]) -> None:
        log = partial(self._run.log, payload.row(row), step=row["epoch"], commit=True)
        fault = capture_exception(
            lambda: call_with_timeout(client.ANSWER_S, log)
        )  # it waits once some 64 KiB are not taken
        if fault is not None:  # whatever it is, no training ends for it
            self._because(fault)
            client.finish(self._run, 1, self._wait_s)
            self._run = None

    def finished(self, record: TrainingRecord) -> None:
        from rectifiers.tracking.results import conclude

        self._record = record
        self.epochs(record.history)
        if self._run is not None and not self._concluded:
            checkpoint = self._tracked.folder / "last.ckpt" if self._tracked.settings.log_checkpoint else None
            why = conclude(self._run, record, checkpoint, self._wait_s)
            self._why, self._concluded = self._why or why, True

    def close(self, exit_code: int) -> None:
        """End the run in W&B, within twice the time that the settings give."""
        self._tell_all()
        if self._run is not None and self._ended(exit_code):
            return
        told = self._history or self._record
        if self._fall_back and self._why is not None and told:  # lost on the way, and no file of W&B's holds all of it
            self._open(replace(self._tracked, settings=self._tracked.settings.model_copy(update={"mode": "offline"})))
            self._tell_all()
            self._ended(exit_code)

    def _tell_all(self) -> None:
        if self._record is None:
            self.epochs(self._history)
        else:
            self.finished(self._record)

    def _ended(self, exit_code: int) -> bool:
        """End the run; whether its files on this machine are whole, whatever was sent of them."""
        run, self._run = self._run, None
        if run is None:
            return False
        online = not run.offline
        url, log = (run.url, client.log_of(run)) if online else (None, None)
        fault = client.finish(run, exit_code, self._wait_s)
        self._because(fault)
        if fault is None and log is not None:
            self._why = self._why or client.complaint(log)
        record = self._record
        if self._why is None and online and record is not None:
            self._because(capture_exception(lambda: sync_state.mark(self._tracked.folder, record, url)))
        whole = fault is None or isinstance(fault, TimeoutError)
        for path in self._superseded if whole else ():  # of processes before this one; all they were told is told again
            shutil.rmtree(path, ignore_errors=True)
        return whole


@contextmanager
def mirrored(tracked: Tracked | None, fall_back: bool = True) -> Iterator[Mirror]:
    """Keep a mirror while the body runs, and end it as the body ends: with its exit code, whatever ends it."""
    if tracked is None:
        yield Mirror()
        return
    with client.environment(tracked.folder):
        mirror = WandbMirror(tracked, fall_back)
        try:
            yield mirror
        except BaseException as left:
            mirror.close(_status(left))
            if mirror.note:
                print(mirror.note, file=sys.stderr)
            raise
        mirror.close(mirror.exit_code)


def _status(left: BaseException) -> int:
    if isinstance(left, KeyboardInterrupt):
        return 130
    return left.code if isinstance(left, SystemExit) and isinstance(left.code, int) else 1


def publish(record: TrainingRecord, folder: Path, settings: Logger, fall_back: bool = True) -> str | None:
    """Mirror a run from its record alone; return what W&B does not have, and why."""
    tracked = Tracked(settings, folder, record.choices, record.science, record.provenance)
    with mirrored(tracked, fall_back) as mirror:
        mirror.finished(record)
    return mirror.note
