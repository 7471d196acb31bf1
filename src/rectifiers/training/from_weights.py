"""A network that starts from the weights of another one: `init.from_weights=<run or file>`, such as
a deeper network from a shallower one that is trained already."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import isfile
from pathlib import Path

import torch
from torch import Tensor, nn

from rectifiers.initialization.report import LayerReport
from rectifiers.models.network import ImageNetwork
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import load_training
from rectifiers.runtime.distributed import check_agreement, run_on_all_ranks, world
from rectifiers.runtime.errors import InputError, first_line
from rectifiers.runtime.schema import JsonObject
from rectifiers.training.checkpoints import LAST, load_weights, unwrapped
from rectifiers.training.module import all_finite

PLACES = ("", "trunk.", "head.")  # before the name of a layer: nothing, or of a network of rows
WHAT = "give a finished run, by its id or folder, or what torch.save(net.state_dict()) wrote"


def find_weights(config: RunConfig) -> tuple[Path, str]:
    """Return (the file of weights that `init.from_weights` names, what it is in words).

    Raises:
        InputError: where it is no file, and no run that is finished and has its checkpoint.
    """
    given = config.init.from_weights
    assert given is not None
    if isfile(given):
        return given.resolve(), f"the file {given.name}"

    for folder in (given, config.runs_dir / given):
        if not isfile(folder / "record.json"):
            continue
        record = load_training(folder / "record.json")
        if record.status != "finished":
            raise InputError(f"init.from_weights={given}: that run has {record.status}; {WHAT}")
        return folder / LAST, f"run {record.run}"
    raise InputError(
        f"init.from_weights={given} is no file, and there is no "
        f"{config.runs_dir / given / 'record.json'}; {WHAT}"
    )


def read_weights(config: RunConfig) -> tuple[dict[str, Tensor], str]:
    """Return (the weights that `init.from_weights` names, their hash).

    The hash is of names, types, shapes and bits, so that a run and a file with the same weights
    have the same one, and a run that is made again with equal bits keeps its own.

    Raises:
        InputError: where there are none, or their hash is not the one that is asked for.
    """
    key, (path, _) = f"init.from_weights={config.init.from_weights}", find_weights(config)
    try:
        weights = load_weights(path, may_be_of_run=True)
        for name, weight in weights.items():
            if not all_finite(weight.float()):
                raise ValueError(f"{name} has a number that is not finite")
        digest = _digest(weights)
    except InputError as error:
        raise InputError(f"{key}: {str(error).rpartition(';')[0]}; {WHAT}") from error
    except Exception as error:  # sparse tensors, for example, have no bytes to hash
        raise InputError(f"{key} holds no plain weights ({first_line(error)}); {WHAT}") from error

    asked = config.init.from_weights_content
    if asked not in (None, digest):
        raise InputError(
            f"init.from_weights_content={asked} is not the hash of the weights of {key}, which is "
            f"{digest}; leave it out"
        )
    return weights, digest


def _digest(weights: Mapping[str, Tensor]) -> str:
    """Return a hash of weights, 32 hex digits."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        weight = weights[name]
        digest.update(f"{name!r} {weight.dtype} {list(weight.shape)}\n".encode())
        digest.update(weight.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def with_weights_content(config: RunConfig) -> RunConfig:
    """Return the configuration with the hash of the weights that it starts from, which is part of
    the run's id; a collective call."""
    if config.init.from_weights is None:
        return config
    _, digest = run_on_all_ranks(lambda: read_weights(config))
    if world().size > 1:
        check_agreement({"hash of init.from_weights": digest})
    return config.replaced({"init.from_weights_content": digest})


def fitting(
    config: RunConfig, network: ImageNetwork, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return those of `weights` that fit a network, by the network's names.

    A layer fits where all its tensors, weight and bias, have the same names and shapes in both, and
    so does an activation with parameters or a normalisation. It is loaded whole or not at all.

    Raises:
        InputError: where no weight of a layer fits.
    """
    state = network.own_module().state_dict()
    weights = unwrapped(weights, state)
    by_module: dict[str, list[str]] = {}
    for name in state:
        by_module.setdefault(name.rpartition(".")[0], []).append(name)

    fit: dict[str, Tensor] = {}
    for names in by_module.values():
        # older versions of torch do not count the batches of a normalisation
        needed = [name for name in names if not name.endswith("num_batches_tracked")]
        if all(_is_alike(state[name], weights.get(name)) for name in needed):
            fit |= {name: weights[name] for name in needed}
    if any(weight.dim() > 1 for weight in fit.values()):
        return fit

    first = next(name for name, weight in state.items() if weight.dim() > 1)
    theirs = f"has shape {tuple(weights[first].shape)}" if first in weights else "is missing"
    raise InputError(
        f"init.from_weights={config.init.from_weights}: no layer of this network fits by name and "
        f"shape; the first, {first}, has shape {tuple(state[first].shape)} here and "
        f"{theirs} there; give weights of a network with such layers"
    )


def _is_alike(ours: Tensor, theirs: Tensor | None) -> bool:
    if theirs is None or theirs.shape != ours.shape:
        return False
    return theirs.is_floating_point() == ours.is_floating_point()


def start_from(
    config: RunConfig, network: ImageNetwork, init_report: Sequence[LayerReport]
) -> tuple[list[LayerReport], str]:
    """Fill the layers that fit; return the init report, in which their rule is `weights`, and a
    sentence for the record.

    Raises:
        InputError: where the weights cannot be read, or their hash has changed.
    """
    if config.init.from_weights is None:
        raise InputError(
            f"init.from_weights_content={config.init.from_weights_content} is the hash of weights "
            "that are not given; give init.from_weights=<run or file>"
        )
    fit = fitting(config, network, read_weights(config)[0])
    network.own_module().load_state_dict(fit, strict=False)
    report = report_loaded(network, init_report, fit)

    filled = [entry.layer for entry in report if entry.rule == "weights"]
    sentence = (
        f"{len(filled)} of {len(report)} layers start from the weights of "
        f"{find_weights(config)[1]} ({', '.join(filled)})"
    )
    if others := _not_in(fit, network.own_module()):
        sentence += f", and these as init leaves them: {', '.join(others)}"
    return report, sentence


def _not_in(fit: Mapping[str, Tensor], module: nn.Module) -> list[str]:
    """Return the names of the layers, activations and normalisations that `fit` does not fill."""
    names = (name.rpartition(".")[0] for name in module.state_dict() if name not in fit)
    filled = {name.rpartition(".")[0] for name in fit}
    return [name for name in dict.fromkeys(names) if name not in filled]


def report_loaded(
    network: ImageNetwork, init_report: Sequence[LayerReport], loaded: Mapping[str, Tensor]
) -> list[LayerReport]:
    """Return the init report with the statistics of the loaded weights, by the network's names."""
    report = []
    for entry in init_report:
        # a layer is named without what holds it, and `.weight` is left out
        names = (f"{place}{entry.layer}{end}" for place in PLACES for end in (".weight", ""))
        name = next((name for name in names if name in loaded), None)
        if name is None:
            report.append(entry)
            continue
        weight = network.own_module().state_dict()[name]
        std, mean = float(weight.std(correction=0)), float(weight.mean())
        numbers: JsonObject = {"std_asked": std, "std_drawn": std, "mean_drawn": mean}
        report.append(replace(entry, rule="weights", bias="weights", **numbers))
    return report
