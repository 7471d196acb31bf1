"""The network that a configuration describes, before its weights are drawn or loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from rectifiers.models.network import ImageNetwork, Network
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.errors import InputError
from rectifiers.training.targets import Functions

if TYPE_CHECKING:
    from rectifiers.models.external import ModuleNetwork


def empty_network(
    config: RunConfig,
    functions: Functions,
    classes: int,
    channels: int,
    flat_input: int | None = None,
) -> ImageNetwork:
    """Return the network of `config`, whose weights are still to be set.

    channels: of an image. flat_input: the length of its input where preprocessing makes vectors."""
    build = module_network if config.model.rows is None else row_network
    return build(config, functions, classes, channels, flat_input)


def module_network(
    config: RunConfig, functions: Functions, classes: int, channels: int, flat_input: int | None
) -> ModuleNetwork:
    """Return the network that a function of `config` builds."""
    # imported late: a network of rows needs none of the tracing behind it
    from rectifiers.models.external import ModuleNetwork

    name = config.model.target
    assert name is not None
    if flat_input is not None:
        raise InputError(
            f"model._target_={name} needs images, and preprocess gives vectors; choose another"
        )
    return ModuleNetwork(
        functions["model"],
        functions["activation"],
        name=name,
        classes=classes,
        channels=channels,
        input_px=config.data.crop_px,
    )


def row_network(
    config: RunConfig, functions: Functions, classes: int, channels: int, flat_input: int | None
) -> Network:
    """Return the network of the rows of `config`."""
    px, signal = config.data.crop_px, config.data.signal
    network = Network(
        config.model.layers(classes),
        functions["activation"],
        channels=channels,
        input_px=px,
        signal=signal,
        norm=config.model.norm,
        flat_input=flat_input,
    )
    if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
        # activations with a state per element find its size in a forward pass
        shape = (channels, 1 if signal else px, px) if flat_input is None else (flat_input,)
        with torch.no_grad():
            network.eval()(torch.zeros(1, *shape))
        network.train()
    return network
