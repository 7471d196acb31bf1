"""What is tried before the data are opened: the functions of a configuration, its activation."""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial

import torch
import yaml
from pytorch_lightning import Trainer
from torch import Generator, Tensor, nn

from rectifiers.activation_modules import pieces
from rectifiers.activations import ByLayer, check_gain, check_gradient, check_output, unused
from rectifiers.evaluation.protocols import NEEDS_MAPS, Dense
from rectifiers.gains import Mode, describe, gain
from rectifiers.initializers import Layer
from rectifiers.runs.config import RunConfig
from rectifiers.runs.sections import SOME_CLASSES
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.training.functions import import_function

Choices = Mapping[str, str | None]  # the option that was chosen of each group
KNOWN_CALLBACKS = ("pytorch_lightning.", "rectifiers.")
# What the module logs after each epoch; `<name>/<layer>` for each layer.
LOGGED = ("val/error_top1", "val/error_top5", "val/loss", "train/loss", "lr")
BY_LAYER = ("slope/", "response_mean/", "response_std/", "active_share/", "dead_units/")
MAP_SIDES = (8, 8)  # px, of the maps that an activation is tried on


def check_functions(config: RunConfig) -> None:
    """Import every function that `config` names, check its settings, and try what needs no data.

    Raises:
        InputError: for the first one that cannot be used.
    """
    check_trainer(config)
    loggers = {f"logger.{name}": logger for name, logger in config.logger.targets().items()}
    for key, target in (config.targets() | loggers).items():
        function = import_function(key, target)
        if not key.startswith("evaluation.") or not isinstance(
            function(config.data.crop_px), Dense
        ):
            continue
        if config.model.target is not None:
            raise InputError(
                f"{key} slides over the maps of a network of rows, and "
                f"model._target_={config.model.target} is none; "
                "choose evaluation=[center,ten_view]"
            )
        if not any(row.kind == "conv" for row in config.model.layers(SOME_CLASSES)):
            raise InputError(f"{key.replace('.', '=')} is not usable: {NEEDS_MAPS}")
    check_activation(config)


def check_trainer(config: RunConfig) -> None:
    """Check the arguments of Lightning's Trainer, and the numbers that its callbacks monitor.

    Raises:
        InputError: for an argument that it does not take, and for a number that nothing logs.
    """
    for key in config.trainer.more:
        if key not in inspect.signature(Trainer).parameters:
            raise InputError(
                f"trainer.{key} is not an argument of Lightning's Trainer; leave it out"
            )
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


def check_activation(config: RunConfig) -> None:
    """Try the activation on normal numbers, and its gain where the initialiser reads that.

    Raises:
        InputError: where training would fail, or start from weights of a wrong scale.
    """
    factory, rule = (
        import_function("activation", config.activation_at_depth()),
        import_function("init", config.init),
    )
    with torch.random.fork_rng(devices=[]):  # a module may draw its parameters
        for kind, channels, activation in _some_activations(config, factory):
            sides = MAP_SIDES if kind == "conv" else ()
            x = check_output(activation, channels, sides)
            check_gradient(activation, x)
            if kind == "linear" and config.init.fc_std is not None:
                continue

            def find_gain(
                *, mode: Mode, activation: nn.Module = activation, x: Tensor = x
            ) -> float:
                check_gain(activation, x)
                return gain(activation, x.shape[1] // pieces(activation), mode=mode)

            finders = partial(find_gain, mode="forward"), partial(find_gain, mode="backward")
            try:
                branches = int(
                    config.model.rows is None
                )  # what a function builds is known when the data are
                layer = Layer(kind, channels, channels, *finders, lambda weight: 1.0, branches)
                rule(torch.empty(8, 8, *(3 for _ in sides)), layer, Generator())
            except InputError:
                raise
            # a rule may fit other weights only; where it fails on the network's, the run says so
            except Exception:
                continue


def describe_activation(config: RunConfig) -> str | None:
    """Return the first layer's activation with its settings: LeakyReLU(negative_slope=0.01); None
    without one.

    Of one that differs by layer, the settings that say how: by_layer(default: relu, layers: {conv1:
    prelu})."""
    factory = import_function("activation", config.activation_at_depth())
    if isinstance(factory, ByLayer):
        settings = json.dumps(config.activation.options).replace('"', "")
        return f"{config.activation.target.rpartition('.')[2]}({settings[1:-1]})"
    with torch.random.fork_rng(devices=[]):
        made = _some_activations(config, factory)
    return describe(made[0][2]) if made else None


def name_activation(choices: Choices, config: RunConfig, description: str | None) -> Choices:
    """Return `choices` with the module in the place of the activation's option, where that has
    another function.

    description: as of `describe_activation`. A run is shown by its choices everywhere.
    """
    option = str(choices.get("activation"))
    file = CONF / "activation" / f"{option}.yaml"
    is_known = option.isidentifier() and file.is_file()  # a record may say anything
    is_own = is_known and yaml.safe_load(file.read_text())["_target_"] != config.activation.target
    is_any = option in ("torch", "by_layer")  # which say nothing
    return {**choices, "activation": description} if is_own or is_any else choices


def _some_activations(
    config: RunConfig, factory: Callable[[int], nn.Module]
) -> list[tuple[str, int, nn.Module]]:
    """Build (kind of layer, channels, activation) of the first conv and linear layers that have
    one, in their order.

    Where activations differ by layer, of all layers.

    Raises:
        InputError: where a choice by layer fits none.
    """
    if config.model.rows is None:
        return [
            ("conv", 16, factory(16))
        ]  # as good as any: what the function builds is known when the data are
    rows = [row for row in config.model.layers(SOME_CLASSES) if row.weighted][:-1]
    if isinstance(factory, ByLayer):
        names = [row.name for row in rows]
        for pattern in unused(config.activation.options.get("layers"), names):
            raise InputError(
                f"activation.layers.{pattern} fits no layer; the layers with an activation "
                f"are: {', '.join(names)}"
            )
        return [(row.kind, row.size, factory.build(row.size, row.name)) for row in rows]
    sizes: dict[str, int] = {}
    for row in rows:
        sizes.setdefault(row.kind, row.size)
    return [(kind, channels, factory(channels)) for kind, channels in sizes.items()]
