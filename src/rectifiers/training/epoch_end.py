"""What follows an epoch, in one order: measures, the checkpoint, then everything that shows the epoch."""

import csv
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint

from rectifiers.runtime.files import write_text
from rectifiers.runtime.signals import Stopped, pending_signal, stop_if_requested
from rectifiers.training.checkpoints import LAST
from rectifiers.training.module import Classifier

History = list[dict[str, Any]]


def write_metrics(path: Path, history: History) -> None:
    """Write one line per epoch; whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, history[0].keys())
    table.writeheader()
    table.writerows(history)
    write_text(path, text.getvalue())


def print_progress(max_epochs: int, history: History) -> None:
    """Print a line about the last epoch, where no terminal can show a moving bar."""
    row = history[-1]
    print(
        f"epoch {row['epoch']}/{max_epochs}  loss {row['train_loss']:.4f}  "
        f"val top-1 error {row['val/top1_error_pct']:.2f} %",
        file=sys.stderr,
        flush=True,
    )


class EpochMeasure(Callback):
    """A callback that measures the network after every epoch and changes nothing."""

    def measure(self, module: Classifier) -> dict[str, float]:
        """Return the numbers that `EpochEnd` adds to the epoch's row."""
        raise NotImplementedError


class EpochEnd(Checkpoint):
    """Does what follows an epoch: `EpochMeasure`s add to its row, `last.ckpt` is written, and the rows are shown.

    When it runs, the module has made the row and applied the step rule: Lightning runs a `Checkpoint` last of all,
    after the module's own `on_train_epoch_end`. It is the only one, so the order is the one that stands here. A kill
    between any two of these steps loses nothing, because the receivers get all rows of the checkpoint again.

    Within an epoch it writes a checkpoint every `every_n_steps` steps. A signal to any of the processes (see
    `runtime.signals`) means: write a checkpoint after the current step, and stop. Within an epoch's last step the epoch
    is finished first, with its validation: Lightning would skip that in a run that goes on from there.

    receivers: functions that get the rows of all epochs so far, in this order, on rank 0.
    """

    def __init__(
        self, folder: Path, *, every_n_steps: int | None = None, receivers: Sequence[Callable[[History], None]] = ()
    ) -> None:
        self.folder, self.every_n_steps, self.receivers = folder, every_n_steps, receivers

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch:
            return
        stop = pending_signal()
        if stop or (self.every_n_steps and trainer.global_step % self.every_n_steps == 0):
            trainer.save_checkpoint(self.folder / LAST)
        if stop:
            raise Stopped(stop, f"after step {trainer.global_step}")

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, EpochMeasure):
                module.history[-1] |= callback.measure(module)
        trainer.save_checkpoint(self.folder / LAST)
        if trainer.is_global_zero:
            for receive in self.receivers:
                receive(module.history)
        stop_if_requested(f"after step {trainer.global_step}")
