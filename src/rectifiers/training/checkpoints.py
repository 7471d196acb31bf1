"""Checkpoints that are whole or absent, and weights from files."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from rectifiers.models.network import ImageNetwork
from rectifiers.runtime.console import say
from rectifiers.runtime.errors import InputError, first_line, unreadable
from rectifiers.runtime.files import atomic_file, check_zip, is_torch_zip
from rectifiers.runtime.schema import JsonObject

PathLike = str | os.PathLike[str]
LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
OF_NETWORK = "network."  # before the names of a network's weights in a checkpoint
# What Lightning, DDP and torch.compile put before all names of a network.
WRAPPERS = ("network.", "module.", "_orig_mod.", "model.")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its target and moves it there; the one before it stays, as
    `previous.ckpt`.

    Lightning's own goes through `$TMPDIR`; where that is another file system, a kill leaves a
    truncated file. Reading compares it with the checksums of its format, zip; torch.load does not.
    roots: the folders of which old checkpoints are removed. loaded: what was read before, by path,
    and is returned once in place of the file.
    """

    def __init__(self, *roots: PathLike) -> None:
        super().__init__()
        self.roots = [Path(root).resolve() for root in roots]
        self.loaded: dict[str, JsonObject] = {}

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
        if str(path) in self.loaded:
            return self.loaded.pop(str(path))
        try:
            check_zip(Path(path))
            checkpoint: JsonObject = torch.load(path, map_location="cpu", weights_only=True)
            if "rectifiers" not in checkpoint:
                raise ValueError("it is no checkpoint; init.from_weights=<file> takes weights")
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


def newest(folder: Path) -> tuple[str, JsonObject] | None:
    """Return the checkpoint to go on from, and its content: the last one, or the one before where
    that is damaged or was being replaced; an InputError where there are some and none can be
    read."""
    paths = [path for path in (folder / LAST, folder / PREVIOUS) if path.exists()]
    for path in paths:
        try:
            return str(path), AtomicCheckpointIO().load_checkpoint(path)
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


def refuse_other_run(checkpoint: JsonObject, run: str) -> None:
    """Refuse the checkpoint of another run than `run`."""
    kept = checkpoint["rectifiers"]["run"]
    if kept != run:
        raise InputError(
            f"the checkpoint belongs to run {kept}, and this command makes run {run}: other "
            "settings or epochs start a new run; leave out ckpt_path"
        )


def refuse_other_network(
    module: nn.Module, weights: Mapping[str, Tensor], remedy: str, *, names_only: bool = False
) -> None:
    """Refuse `weights` of another network than `module`, by the first name or shape that
    differs."""

    def shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
        return {name: () if names_only else tuple(value.shape) for name, value in state.items()}

    ours, theirs = shapes(module.state_dict()), shapes(weights)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise InputError(
                f"the weights are of another network: {name} is {theirs.get(name, 'not in it')} "
                f"there and {ours.get(name, 'unknown')} here; {remedy}"
            )


def unwrapped(weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return `weights` without what wrappers put before all names, as far as needed for one of them
    to be a name of `state`."""
    while not weights.keys() & state.keys():
        prefix = next((p for p in WRAPPERS if all(name.startswith(p) for name in weights)), None)
        if prefix is None:
            break
        weights = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    return weights


def load_plain(
    network: ImageNetwork, weights: Mapping[str, Tensor], *, names_only: bool = False
) -> None:
    """Load a plain `state_dict`, by the names of the network or of the user's own module in it,
    with or without what wrappers put before all names; another network's is refused.

    names_only: compare the names and load nothing, where shapes depend on the images."""
    module = network.own_module()
    state = module.state_dict()
    weights = unwrapped(weights, state)
    # files of older versions of torch do not count batches, which nothing here reads
    counts = {name: state[name] for name in state if name.endswith("num_batches_tracked")}
    weights = counts | dict(weights)
    remedy = "give the model, the activation and the data that they were made with"
    refuse_other_network(module, weights, remedy, names_only=names_only)
    if not names_only:
        module.load_state_dict(weights)
