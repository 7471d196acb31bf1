"""Checkpoint files that are whole or absent, and the reading of weights."""

import os
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from rectifiers.runtime.console import stderr
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, check_zip

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its target and moves it there; the one before it stays, as `previous.ckpt`.

    Lightning's own goes through `$TMPDIR`; where that is another file system, a kill leaves a truncated file. Reading
    one compares it with the checksums that its format, zip, has; torch.load does not.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        path = Path(os.fspath(path))
        try:
            with atomic_file(path) as file:
                torch.save(checkpoint, file)
                if path.exists():
                    os.replace(path, path.with_name(PREVIOUS))
        except (OSError, RuntimeError) as error:  # torch reports a full disk by a RuntimeError
            raise InputError(
                f"{path} could not be written ({first_line(error)}); make room there and give the same command: the "
                "run goes on from its last checkpoint"
            ) from error

    def load_checkpoint(
        self, path: Any, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            check_zip(path)
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
            kept = checkpoint["rectifiers"]
            if not (isinstance(checkpoint["state_dict"], dict) and kept["history"] is not None and kept["run"]):
                raise ValueError("it is no checkpoint of a run")
            return checkpoint
        except Exception as error:  # a damaged file fails in as many ways as pickle and zip know
            raise InputError(
                f"{path} cannot be read as a checkpoint ({first_line(error)}); remove it to start this run from its "
                "beginning"
            ) from error


def newest(folder: Path) -> Path | None:
    """Return the checkpoint to go on from: the last one, or the one before where that is damaged or was being replaced.

    Raises:
        InputError: where there are checkpoints and none can be read.
    """
    found = [path for path in (folder / LAST, folder / PREVIOUS) if path.exists()]
    for path in found:
        try:
            AtomicCheckpointIO().load_checkpoint(path)
            return path
        except InputError as error:
            if path == found[-1]:
                raise
            # Put aside, or the next save would keep it in the place of the good one.
            path.rename(path.with_name(f"{path.name}.damaged"))
            stderr.print(f"{str(error).partition(';')[0]}; going on from {found[-1]}", highlight=False, soft_wrap=True)
    return None


def first_line(error: Exception) -> str:
    """Return what an error says, without the advice that torch adds."""
    return (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0]


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a network from a plain `state_dict`, or a file that holds one under that name.

    Raises:
        InputError: where the file is damaged or holds anything else; nothing in it is executed.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        if "rectifiers" in found:
            raise ValueError("it is the checkpoint of a run, give run=<its folder>")
        weights = found.get("state_dict", found)
        if not weights or not all(isinstance(weight, Tensor) for weight in weights.values()):
            raise ValueError("it holds no weights by name")
    except Exception as error:
        raise InputError(
            f"{path} cannot be read as a state_dict ({first_line(error)}); give what torch.save(net.state_dict()) wrote"
        ) from error
    return {name.removeprefix("network."): weight for name, weight in weights.items()}
