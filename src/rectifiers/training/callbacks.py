"""What happens at the end of an epoch beside the training: the checkpoint, the metrics file, a line of progress."""

import csv
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, Checkpoint, RichProgressBar
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from rectifiers.config import InputError
from rectifiers.runs.record import atomic_file, write_text
from rectifiers.training.module import Classifier


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its target and moves it there.

    Lightning's own goes through `$TMPDIR`; where that is another file system, a kill leaves a truncated file.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with atomic_file(Path(os.fspath(path))) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(
        self, path: Any, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
            kept = checkpoint["rectifiers"]
            if not (
                isinstance(checkpoint["state_dict"], dict) and kept["rule"].keys() and kept["history"] and kept["codes"]
            ):
                raise ValueError("it is no checkpoint of a run")
            return checkpoint
        except Exception as fault:  # a damaged file fails in as many ways as pickle and zip know
            raise InputError(
                f"{path} cannot be read as a checkpoint ({first_line(fault)}); remove it to start this run from its "
                "beginning"
            ) from fault


def first_line(fault: Exception) -> str:
    """Return what an error says, without the advice that torch adds."""
    return (str(fault) or type(fault).__name__).splitlines()[0]


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a network from a plain `state_dict`, or from the checkpoint of a run.

    Raises:
        InputError: where the file is damaged or holds anything else; nothing in it is executed.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        weights = found.get("state_dict", found)
        if not weights or not all(isinstance(weight, Tensor) for weight in weights.values()):
            raise ValueError("it holds no weights by name")
    except Exception as fault:
        raise InputError(
            f"{path} cannot be read as a state_dict ({first_line(fault)}); give what torch.save(net.state_dict()) wrote"
        ) from fault
    return {name.removeprefix("network."): w for name, w in weights.items() if not name.startswith("preprocess.")}


class EpochFiles(Checkpoint):
    """Keeps `last.ckpt` of the run, and `metrics.csv` where it is asked for, true at every epoch's end.

    A Lightning `Checkpoint` so that it runs after the module's own `on_train_epoch_end`, which applies the step rule.
    """

    def __init__(self, folder: Path, *, metrics: bool) -> None:
        self.folder, self.metrics = folder, metrics

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        trainer.save_checkpoint(self.folder / "last.ckpt")
        if self.metrics:
            write_metrics(self.folder / "metrics.csv", module.history)


def write_metrics(path: Path, history: list[dict[str, Any]]) -> None:
    """Write one line an epoch; whole or not at all."""
    text = io.StringIO()
    table = csv.DictWriter(text, history[0].keys())
    table.writeheader()
    table.writerows(history)
    write_text(path, text.getvalue())


class EpochLines(Callback):
    """A line an epoch, for where no terminal can show a moving bar."""

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        errors = module.val.errors()
        print(
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  "
            f"loss {float(module.train_loss.compute()):.4f}  val top-1 error {errors.top1_error_pct:.2f} %",
            file=sys.stderr,
            flush=True,
        )


def progress() -> Callback:
    """Return a bar that moves on a terminal, and lines elsewhere."""
    return RichProgressBar() if sys.stderr.isatty() else EpochLines()
