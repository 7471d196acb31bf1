"""Checkpoints that are whole or absent."""

import os
import warnings
from pathlib import Path

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from rectifiers.runtime.console import say
from rectifiers.runtime.errors import InputError, first_line, unreadable
from rectifiers.runtime.files import atomic_file, check_zip, is_torch_zip
from rectifiers.runtime.schema import JsonObject

PathLike = str | os.PathLike[str]
LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
OF_NETWORK = "network."  # before the names of a network's weights in a checkpoint


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its target and moves it there; the one before it stays, as
    `previous.ckpt`.

    Lightning's own goes through `$TMPDIR`; where that is another file system, a kill leaves a
    truncated file. Reading compares it with the checksums of its format, zip; torch.load does not.
    roots: the folders of which old checkpoints are removed.
    """

    def __init__(self, *roots: PathLike) -> None:
        super().__init__()
        self.roots = [Path(root).resolve() for root in roots]

    def save_checkpoint(
        self, checkpoint: JsonObject, path: PathLike, storage_options: object = None
    ) -> None:
        path = Path(path)
        try:
            with atomic_file(path) as file:
                torch.save(checkpoint, file)
                if path.exists():
                    os.replace(path, path.with_name(PREVIOUS))
        except (OSError, RuntimeError) as error:  # torch reports a full disk by a RuntimeError
            raise not_written(path, first_line(error)) from error

    def load_checkpoint(
        self, path: PathLike, map_location: object = None, weights_only: bool | None = None
    ) -> JsonObject:
        try:
            check_zip(Path(path))
            checkpoint: JsonObject = torch.load(path, map_location="cpu", weights_only=True)
            if "rectifiers" not in checkpoint:
                raise ValueError("it is no checkpoint of a run, but of weights=<file> perhaps")
            state, saved = checkpoint["state_dict"], checkpoint["rectifiers"]
            if not isinstance(state, dict) or saved["history"] is None or not saved["run"]:
                raise ValueError("it is no checkpoint of a run")
            return checkpoint
        except Exception as error:  # a damaged file fails in as many ways as pickle and zip know
            remedy = "remove it to start this run from its beginning"
            raise unreadable(path, first_line(error), remedy) from error

    def remove_checkpoint(self, path: PathLike) -> None:
        """Remove what lies below `roots`, and nothing else: ModelCheckpoint takes the path from the
        checkpoint that it goes on from, which anybody may have made."""
        place = Path(path).resolve()
        if any(root in place.parents for root in self.roots):
            super().remove_checkpoint(place)


def not_written(place: object, reason: object) -> InputError:
    """Return the error that a disk is full, or gone."""
    return InputError(
        f"{place} could not be written ({reason}); make room there and give the same command: the "
        "run goes on from its last checkpoint"
    )


def newest(folder: Path) -> Path | None:
    """Return the checkpoint to go on from: the last one, or the one before where that is damaged or
    was being replaced; an InputError where there are some and none can be read."""
    paths = [path for path in (folder / LAST, folder / PREVIOUS) if path.exists()]
    for path in paths:
        try:
            AtomicCheckpointIO().load_checkpoint(path)
            return path
        except InputError as error:
            if path == paths[-1]:
                raise
            # Put aside, or the next save would keep it in the place of the good one.
            path.rename(path.with_name(f"{path.name}.damaged"))
            say(f"{str(error).partition(';')[0]}; going on from {paths[-1]}")
    return None


def load_weights(path: Path, *, may_be_of_run: bool = False) -> dict[str, Tensor]:
    """Read the weights of a network from a plain `state_dict`, or a file that holds one under that
    name; nothing in it is executed.

    may_be_of_run: take the network's weights from the checkpoint of a run, too."""
    try:
        if is_torch_zip(path):  # or else of an older torch
            check_zip(path.resolve())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of pickles that it then refuses
            content = torch.load(path, map_location="cpu", weights_only=True)
        weights = content.get("state_dict", content)
        if "rectifiers" in content and not may_be_of_run:
            raise ValueError("it is the checkpoint of a run, give run=<its folder>")
        if "rectifiers" in content:  # which holds the run's preprocessing, too
            weights = {
                name.removeprefix(OF_NETWORK): weight
                for name, weight in weights.items()
                if name.startswith(OF_NETWORK)
            }
        if not weights or not all(isinstance(weight, Tensor) for weight in weights.values()):
            raise ValueError("it holds no weights by name")
    except Exception as error:
        remedy = "give what torch.save(net.state_dict()) wrote"
        raise unreadable(path, first_line(error), remedy) from error
    return dict(weights)
