"""What `--multirun` says of a sweep whose runs have processes of their own: how many have ended,
and what is left."""

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

LOOKS_EVERY_S = 1.0


class Progress(Callback):
    """Prints a line from time to time while submitit's launcher waits; Hydra calls it by
    `conf/train.yaml`."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def __reduce__(self) -> tuple[type["Progress"], tuple[()]]:
        return (
            Progress,
            (),
        )  # submitit's launcher takes it along to every job, where it has nothing to report

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Begin, unless the runs are made in this process, where they print lines of their own."""
        folder = config.hydra.launcher.get("submitit_folder")
        if folder is not None:
            jobs = Path(str(folder)).parent  # of a folder per job
            threading.Thread(target=self._report, args=[jobs, submitted(jobs)], daemon=True).start()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """End with the sweep."""
        self._ended.set()

    def _report(self, jobs: Path, before: Collection[Path]) -> None:
        from rectifiers.runtime.console import (
            LineTimer,
        )  # late: every start of train.py imports this file

        timer = LineTimer()
        while not self._ended.wait(LOOKS_EVERY_S):
            if timer.is_due():
                print(progress(jobs, before, timer.clock() - timer.started), flush=True)


def submitted(jobs: Path) -> set[Path]:
    """Return what submitit has written for every job, in a folder per job."""
    return set(jobs.glob("*/*_submitted.pkl"))


def progress(jobs: Path, before: Collection[Path], seconds: float) -> str:
    """Return a line such as "3 of 12 ended, 2 running, 12 min left" about submitit's jobs.

    jobs: their folders' folder. before: those of earlier sweeps. seconds: since this one began.
    """
    from rectifiers.runtime.console import duration

    names = [
        str(path).removesuffix("submitted.pkl") for path in submitted(jobs) if path not in before
    ]
    ended = sum(Path(f"{name}result.pkl").exists() for name in names)
    running = sum(Path(f"{name}log.out").exists() for name in names) - ended
    line = f"{ended} of {len(names)} ended, {max(0, running)} running"
    return f"{line}, {duration(seconds * (len(names) - ended) / ended)} left" if ended else line
