"""What is tried of a configuration's functions before the data are opened."""

from functools import partial
from importlib.util import find_spec

import torch
from torch import Generator, Tensor, nn

from rectifiers.activations.checks import check_activation, check_gain
from rectifiers.activations.modules import pieces
from rectifiers.evaluation.protocols import NEEDS_MAPS, Combined, Dense
from rectifiers.gains import Mode, gain
from rectifiers.initializers import Layer, needs_images
from rectifiers.runs.config import RunConfig
from rectifiers.runs.sections import SOME_CLASSES
from rectifiers.runtime.console import missing_extra
from rectifiers.runtime.errors import InputError
from rectifiers.training.targets import (
    KNOWN_CALLBACKS,
    Functions,
    import_functions,
    some_activations,
)

LOGGER_PACKAGES = ("tensorboard", "wandb")  # in extras of that name
# What the module logs after each epoch; `<name>/<layer>` for each layer, and
# `<name>/<layer>/<parameter>` for what an activation learns.
LOGGED = ("val/error_top1", "val/error_top5", "val/loss", "train/loss", "lr")
BY_LAYER = (
    *("slope/", "activation/", "activation_std/"),
    *("response_mean/", "response_std/", "active_share/", "dead_units/"),
)
MAP_SIDES = (8, 8)  # px, of the maps that an activation is tried on


def checked_functions(config: RunConfig) -> Functions:
    """Import every function that `config` names, check its settings, and try what needs no data."""
    functions = import_functions(config)
    check_functions(config, functions)
    return functions


def check_functions(config: RunConfig, functions: Functions) -> None:
    """Try what needs no data of the functions of `config`."""
    if config.init.from_weights is not None and needs_images(functions["init"]):
        raise InputError(
            f"init._target_={config.init.target} scales each drawn layer by its responses, and "
            "cannot be combined with init.from_weights; choose another rule, such as init=he"
        )
    for name in config.logger:
        if name in LOGGER_PACKAGES and find_spec(name) is None:
            raise InputError(f"logger={name}: {missing_extra(ModuleNotFoundError(name=name))}")
    _check_monitors(config)
    for name in config.evaluation.protocols:
        key = f"evaluation.{name}"
        if not isinstance(functions[key](config.data.crop_px), Dense | Combined):
            continue
        if config.model.rows is None:
            raise InputError(
                f"{key} slides over the maps of a network of rows, and model._target_="
                f"{config.model.target} is none; choose evaluation=[center,ten_view]"
            )
        if not any(row.kind == "conv" for row in config.model.layers(SOME_CLASSES)):
            raise InputError(f"{key.replace('.', '=')} is not usable: {NEEDS_MAPS}")
    _check_activation(config, functions)


def _check_monitors(config: RunConfig) -> None:
    """Check the names of the numbers that callbacks monitor."""
    callbacks = config.callbacks or {}
    if any(not target.target.startswith(KNOWN_CALLBACKS) for target in callbacks.values()):
        return  # a callback of the user's may log the number
    for name, target in callbacks.items():
        monitor = target.options.get("monitor")
        if monitor is not None and monitor not in LOGGED and not monitor.startswith(BY_LAYER):
            raise InputError(
                f"callbacks.{name}.monitor={monitor} is not logged; give one of: "
                f"{', '.join(LOGGED)}"
            )


def _check_activation(config: RunConfig, functions: Functions) -> None:
    """Try the activation on normal numbers, and its gain where the initialiser reads that:
    training would fail, or start from weights of a wrong scale."""
    factory, rule = functions["activation"], functions["init"]
    with torch.random.fork_rng(devices=[]):  # a module may draw its parameters
        for kind, channels, activation in some_activations(config, factory):
            sides = MAP_SIDES if kind == "conv" else ()
            x = check_activation(activation, channels, sides)
            if kind == "linear" and config.init.fc_std is not None:
                continue
            forward = partial(_checked_gain, activation, x, "forward")
            backward = partial(_checked_gain, activation, x, "backward")
            layer = Layer(kind, channels, channels, forward, backward, _unit_variance)
            try:
                rule(torch.empty(8, 8, *(3 for _ in sides)), layer, Generator())
            except InputError:
                raise
            # a rule may fit other weights only; where it fails on the network's, the run says so
            except Exception:
                continue


def _unit_variance(weight: Tensor) -> float:
    """Stand in for the variance of a layer's responses, which needs images."""
    return 1.0


def _checked_gain(activation: nn.Module, x: Tensor, mode: Mode) -> float:
    check_gain(activation, x)
    return gain(activation, x.shape[1] // pieces(activation), mode=mode)
