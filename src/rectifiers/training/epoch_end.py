"""What an epoch leaves, in one order: measures, a checkpoint, and what shows the epoch."""

import time
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint, Timer

from rectifiers.runtime.console import LineTimer, duration, say
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.stopping import Stopped, pending_signal, stop_if_requested
from rectifiers.tracking.loggers import log_history
from rectifiers.training.checkpoints import LAST
from rectifiers.training.module import Classifier


class ProgressLines(Callback):
    """Prints a line after each epoch, and every minute within one, where no terminal can show a
    moving bar.

    A loss within an epoch is the mean so far, over the images of rank 0; a step costs one reading
    of the clock."""

    def __init__(self, global_batch: int) -> None:
        self.global_batch, self.timer = global_batch, LineTimer()
        self._before = self.timer.started, 0  # the time and the step of the last line

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._before = time.monotonic(), trainer.global_step

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: pl.Trainer, module: Classifier, outputs: object, batch: object, step: int
    ) -> None:
        if not self.timer.is_due():
            return
        now, done = time.monotonic(), trainer.global_step
        then, done_then = self._before
        self._before = now, done
        rate = (done - done_then) / max(now - then, 1e-9)
        steps = int(trainer.num_training_batches)
        losses = module.train_loss  # its `compute` would wait for the other ranks
        say(
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}, step {step + 1:,} of "
            f"{steps:,}: loss {float(losses.mean_value / losses.weight):.4f}, "
            f"{rate * self.global_batch:,.0f} images per second, "
            f"learning rate {trainer.optimizers[0].param_groups[0]['lr']:g}, "
            f"{duration((steps * (trainer.max_epochs or 0) - done) / rate)} left"
        )

    def epoch_ended(self, max_epochs: int, row: JsonObject) -> None:
        """Print the line of an epoch's row."""
        say(
            f"epoch {row['epoch']}/{max_epochs}  loss {row['train_loss']:.4f}  "
            f"val top-1 error {row['val/top1_error_pct']:.2f} %  "
            f"{row['images_per_second']:,.0f} images per second  learning rate {row['lr']:g}  "
            f"{duration(row['seconds'] * (max_epochs - row['epoch']))} left"
        )


class EpochMeasure(Callback):
    """A callback that measures the network after every epoch and changes nothing."""

    def measure(self, module: Classifier) -> dict[str, float]:
        """Return the numbers that `EpochEnd` adds to the epoch's row."""
        raise NotImplementedError


def _has_stopped(callback: Callback) -> bool:
    """Return whether a callback tells that it has ended the training."""
    if isinstance(callback, Timer):
        left = callback.time_remaining()
        return left is not None and left <= 0
    # where EarlyStopping ends the first epoch, its `stopped_epoch` is 0 as before
    told = ("stopped_epoch", "stopping_reason_message")
    return any(getattr(callback, name, None) for name in told)


class EpochEnd(Checkpoint):
    """Does what follows an epoch: `EpochMeasure`s add to its row, `last.ckpt` is written, and rank
    0 logs and shows the rows of all epochs so far.

    When it runs, the module has made the row and applied the step rule: Lightning runs a
    `Checkpoint` last of all, after the module's own `on_train_epoch_end`. It is the only one, so
    the order is the one that stands here. A kill between any two of these steps loses nothing,
    because the loggers get all rows of the checkpoint again.

    Within an epoch it writes a checkpoint every `every_n_steps` steps. A signal to any of the
    processes (see `runtime.stopping`) means: write a checkpoint after the current step, and stop.
    Within an epoch's last step the epoch is finished first, with its validation: Lightning would
    skip that in a run that goes on from there.
    """

    def __init__(self, folder: Path, *, every_n_steps: int | None = None) -> None:
        self.folder, self.every_n_steps = folder, every_n_steps

    def on_train_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        if trainer.is_global_zero and module.history:
            log_history(trainer.loggers, module.history, resuming=True)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, *_: object
    ) -> None:
        if trainer.is_last_batch:  # `on_train_epoch_end` does it, after validation
            return
        stop = pending_signal()
        if stop or (self.every_n_steps and trainer.global_step % self.every_n_steps == 0):
            trainer.save_checkpoint(self.folder / LAST)
        if stop:
            raise Stopped(stop, f"after step {trainer.global_step}")

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        max_epochs = trainer.max_epochs or 0
        for callback in callbacks:
            if isinstance(callback, EpochMeasure):
                module.history[-1] |= callback.measure(module)
        if trainer.should_stop and trainer.global_step < max_epochs * trainer.num_training_batches:
            stopping = [type(c).__name__ for c in callbacks if _has_stopped(c)]
            module.stopped_by = stopping[0] if stopping else "a callback"
        trainer.save_checkpoint(self.folder / LAST)
        if trainer.is_global_zero:
            log_history(trainer.loggers, module.history)
            for callback in callbacks:
                if isinstance(callback, ProgressLines):
                    callback.epoch_ended(max_epochs, module.history[-1])
        stop_if_requested(f"after step {trainer.global_step}")
