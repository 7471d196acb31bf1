"""From a `_target_` of the configuration to the function that it names."""

import difflib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from rectifiers.nn.by_layer import ByLayer
from rectifiers.runs.config import Target
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import check_call

# What the function of a group is called with, beside its own settings.
CALLED_WITH = {
    "init": ("weight", "layer", "generator"),
    "preprocess": ("moments",),
    "evaluation": ("crop_px",),
    "data": (),
    "callbacks": (),
    "model": ("activation", "classes", "channels", "input_px"),
}
# The parameters of an activation's function that ask for the number of channels.
CHANNELS = ("channels", "num_parameters", "num_features")
LAYER = "layer"  # the one that asks for the layer's name


def import_function(key: str, target: Target) -> Callable[..., Any]:
    """Return the function that `target`, the value of `key`, names, with its settings as keywords.

    Raises:
        InputError: where it cannot be imported, does not take a setting or its value, or is of another kind.
    """
    try:
        function = pkgutil.resolve_name(target.target)
        inspect.signature(function)
    except Exception as error:  # the user's own module may raise anything
        expected = isinstance(error, ImportError | AttributeError | ValueError | TypeError)
        raise InputError(
            f"{key}._target_={target.target} cannot be imported{'' if expected else f' ({error!r})'}; "
            f"{_meant(target.target) or 'give the dotted name of a function'}"
        ) from error
    check_call(function, target.options, f"{key}.")
    if key == "activation":
        return _activation_factory(function, target)
    configured = partial(function, **target.options)
    names = CALLED_WITH[key.partition(".")[0]]
    try:
        inspect.signature(configured).bind(*names)
    except TypeError as error:
        raise InputError(
            f"{key}._target_={target.target} cannot be called with ({', '.join(names)}): {error}; "
            "give a function that takes them"
        ) from error
    return configured


def _meant(name: str) -> str | None:
    """Return what a dotted name that does not exist could have meant, as a question."""
    parent, _, last = name.rpartition(".")
    try:
        known = {each.lower(): each for each in dir(pkgutil.resolve_name(parent)) if not each.startswith("_")}
    except Exception:
        return None
    near = difflib.get_close_matches(last.lower(), known, n=1)
    return f"did you mean {parent}.{known[near[0]]}?" if near else None


def _activation_factory(function: Callable[..., Any], target: Target) -> Callable[[int], nn.Module]:
    """Return what builds a layer's activation, with the number of channels and the name where `function` asks for them.

    Raises:
        InputError: where it needs anything else that is not given.
    """
    parameters, given = inspect.signature(function).parameters.values(), target.options
    asked = [p.name for p in parameters if p.name in CHANNELS and p.name not in given]
    for p in parameters:
        is_needed = p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if is_needed and p.name not in given and p.name not in (*asked, LAYER):
            raise InputError(
                f"activation._target_={target.target} needs {p.name}, which is not given; write a file in "
                f"conf/activation with the function and its {p.name}, or give a function that needs its channels alone"
            )

    of_layer = any(p.name == LAYER and p.name not in given for p in parameters)

    def build_activation(channels: int, layer: str = "") -> nn.Module:
        named = {LAYER: layer} if of_layer else {}
        try:
            made = function(**dict.fromkeys(asked, channels), **named, **given)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"activation._target_={target.target} cannot be built: {error!r}") from error
        if not isinstance(made, nn.Module):
            raise InputError(f"activation._target_={target.target} gives {made!r}; it must return a torch module")
        return made

    return ByLayer(build_activation) if of_layer else build_activation
