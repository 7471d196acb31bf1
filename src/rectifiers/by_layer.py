"""Different activations in one network: a choice by the names of its layers."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from rectifiers import activations
from rectifiers.runtime.errors import InputError

Choice = str | dict[str, dict[str, Any]]  # prelu, or with its settings: {leaky_relu: {slope: 0.25}}


@dataclass(frozen=True)
class ByLayer:
    """A factory of activations that is given the layer's name as well: `build(channels, layer)`.

    As a factory of channels alone it builds the activation of a layer that no choice names.
    """

    build: Callable[[int, str], nn.Module]

    def __call__(self, channels: int) -> nn.Module:
        return self.build(channels, "")


def by_layer(
    channels: int, layer: str, default: Choice = "relu", layers: dict[str, Choice] | None = None
) -> nn.Module:
    """The activation that `layers` names for `layer`, else `default`.

    layers: by a layer's name, or a pattern such as conv3_* or fc*. The name itself goes before
    patterns, and a longer pattern before a shorter one. Activations are functions of
    `rectifiers.activations`.

    Raises:
        InputError: for an activation that is not known there, or a setting that it does not take.
    """
    given = layers or {}
    fitting = sorted(
        (pattern for pattern in given if fnmatchcase(layer, pattern)),
        key=lambda name: (-len(name), name),
    )
    key = layer if layer in given else fitting[0] if fitting else None
    return _build(
        f"activation.layers.{key}" if key else "activation.default",
        given[key] if key else default,
        channels,
    )


def unused(layers: Mapping[str, Choice] | None, names: list[str]) -> list[str]:
    """Return the keys of `layers` that fit none of the layers `names`."""
    return [
        pattern for pattern in layers or {} if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _build(key: str, choice: Choice, channels: int) -> nn.Module:
    name, settings = (
        (choice, {}) if isinstance(choice, str) else next(iter(choice.items()), ("", {}))
    )
    known = {
        each: function
        for each, function in inspect.getmembers(activations, inspect.isfunction)
        if next(iter(inspect.signature(function).parameters), None) == "channels"
    }
    if name not in known or (not isinstance(choice, str) and len(choice) != 1):
        raise InputError(
            f"{key}={choice} is not usable; give one of: {', '.join(known)}; or one with its "
            "settings, such as "
            "{leaky_relu: {slope: 0.25}}"
        )
    try:
        return known[name](channels, **settings)
    except TypeError as error:
        raise InputError(
            f"{key}={choice} is not usable ({error}); give settings that {name} takes"
        ) from error
