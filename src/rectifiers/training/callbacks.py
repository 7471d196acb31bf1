"""What a user sees of an epoch: the metrics file, a line of progress or a bar."""

import csv
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint, RichProgressBar

from rectifiers.runtime.files import write_text
from rectifiers.training.module import Classifier


def write_metrics(path: Path, history: list[dict[str, Any]]) -> None:
    """Write one line an epoch; whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, history[0].keys())
    table.writeheader()
    table.writerows(history)
    write_text(path, text.getvalue())


class EpochLines(Checkpoint):
    """A line an epoch, for where no terminal can show a moving bar.

    A Lightning `Checkpoint` so that it runs after the module has made the epoch's numbers; it asks nothing of other
    processes, some of which may have a terminal.
    """

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        row = module.history[-1]
        if trainer.is_global_zero:
            print(
                f"epoch {row['epoch']}/{trainer.max_epochs}  loss {row['train_loss']:.4f}  "
                f"val top-1 error {row['val/top1_error_pct']:.2f} %",
                file=sys.stderr,
                flush=True,
            )


class EpochRows(Checkpoint):
    """Hands the rows of all epochs on, after the checkpoint that holds them: a Lightning logger would be told before,

    and twice of an epoch that a kill has run again.
    """

    def __init__(self, tell: Callable[[list[dict[str, Any]]], None]) -> None:
        self.tell = tell

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        if trainer.is_global_zero:
            self.tell(module.history)


def progress() -> Callback:
    """Return a bar that moves on a terminal, and lines elsewhere."""
    return RichProgressBar() if sys.stderr.isatty() else EpochLines()
