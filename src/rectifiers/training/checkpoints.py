"""Checkpoint files that are whole or absent, and the reading of weights."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from rectifiers.runtime.console import stderr
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its target and moves it there; the one before it stays, as `previous.ckpt`.

    Lightning's own goes through `$TMPDIR`; where that is another file system, a kill leaves a truncated file.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        path = Path(os.fspath(path))
        checkpoint["rectifiers"]["checksum"] = _checksum(checkpoint)
        try:
            with atomic_file(path) as file:
                torch.save(checkpoint, file)
                if path.exists():
                    os.replace(path, path.with_name(PREVIOUS))
        except (OSError, RuntimeError) as fault:  # torch tells of a full disk by a RuntimeError
            raise InputError(
                f"{path} could not be written ({first_line(fault)}); make room there and give the same command: the "
                "run goes on from its last checkpoint"
            ) from fault

    def load_checkpoint(
        self, path: Any, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None
    ) -> dict[str, Any]:
        try:
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
            kept = checkpoint["rectifiers"]
            if not (
                isinstance(checkpoint["state_dict"], dict) and kept["rule"].keys() and kept["codes"] and kept["run"]
            ):
                raise ValueError("it is no checkpoint of a run")
            if kept.pop("checksum") != _checksum(checkpoint):
                raise ValueError("its checksum does not fit")
            return checkpoint
        except Exception as fault:  # a damaged file fails in as many ways as pickle and zip know
            raise InputError(
                f"{path} cannot be read as a checkpoint ({first_line(fault)}); remove it to start this run from its "
                "beginning"
            ) from fault


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
        except InputError as fault:
            if path == found[-1]:
                raise
            # Put aside, or the next save would keep it in the place of the good one.
            path.rename(path.with_name(f"{path.name}.damaged"))
            stderr.print(f"{str(fault).partition(';')[0]}; going on from {found[-1]}", highlight=False, soft_wrap=True)
    return None


def _checksum(checkpoint: Mapping[str, Any]) -> str:
    content = hashlib.blake2b(digest_size=16)
    _feed(content, {key: value for key, value in checkpoint.items() if key != "rectifiers"})
    _feed(content, {key: value for key, value in checkpoint["rectifiers"].items() if key != "checksum"})
    return content.hexdigest()


def _feed(content: Any, node: Any) -> None:
    """Hash names, types, shapes and bytes, whatever the nesting."""
    if isinstance(node, Tensor):
        content.update(f"{node.dtype} {tuple(node.shape)} ".encode())
        content.update(node.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    elif isinstance(node, Mapping):
        for key, value in node.items():
            content.update(f"{key!r}:".encode())
            _feed(content, value)
    elif isinstance(node, list | tuple):
        content.update(f"{len(node)} ".encode())
        for value in node:
            _feed(content, value)
    else:
        content.update(f"{node!r} ".encode())


def first_line(fault: Exception) -> str:
    """Return what an error says, without the advice that torch adds."""
    return (str(fault) or type(fault).__name__).splitlines()[0].partition(". ")[0]


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
    except Exception as fault:
        raise InputError(
            f"{path} cannot be read as a state_dict ({first_line(fault)}); give what torch.save(net.state_dict()) wrote"
        ) from fault
    return {name.removeprefix("network."): weight for name, weight in weights.items()}
