"""From a `_target_` of the configuration to the function that it names."""

import difflib
import inspect
import pkgutil
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from rectifiers.activation_modules import Function
from rectifiers.activations import ByLayer
from rectifiers.runs.identity import MULTISTEP, PLATEAU
from rectifiers.runs.sections import Target
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import check_call

# What the function of a group is called with, beside its own settings.
CALLED_WITH = {
    "init": ("weight", "layer", "generator"),
    "preprocess": ("moments",),
    "evaluation": ("crop_px",),
    "data": (),
    "callbacks": (),
    "optim": ("params",),
    "scheduler": ("optimizer",),
    "logger": (),
    "model": ("activation", "classes", "channels", "input_px"),
}
# The parameters of an activation's function that ask for the number of channels.
CHANNELS = ("channels", "num_parameters", "num_features")
LAYER = "layer"  # the one that asks for the layer's name


def import_function(key: str, target: Target) -> Callable[..., Any]:
    """Return the function that `target`, the value of `key`, names, with its settings as keywords.

    Raises:
        InputError: where it cannot be imported, does not take a setting or its value, or is of
        another kind.
    """
    try:
        function = pkgutil.resolve_name(target.target)
    except Exception as error:  # the user's own module may raise anything
        raise InputError(
            f"{key}._target_={target.target} cannot be imported ({_reason(error)}); "
            f"{_meant(target.target) or 'give the dotted name of a function'}"
        ) from error
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:  # torch's functions that are written in C have none
        if key == "activation" and callable(function):
            return _of_tensors(function, target)
        raise InputError(
            f"{key}._target_={target.target} is not a function that Python can describe; "
            "give the dotted name of a function"
        ) from error
    if target.target in (PLATEAU, MULTISTEP):  # whose settings the configuration declares
        return function
    check_call(function, target.options, f"{key}.")
    if key == "activation":
        return _activation_factory(function, target)
    configured = partial(function, **target.options)
    names = CALLED_WITH[key.partition(".")[0]]
    if key.startswith("logger.") and "save_dir" in inspect.signature(function).parameters:
        configured = partial(configured, save_dir=target.options.get("save_dir", "."))
    try:
        inspect.signature(configured).bind(*names)
    except TypeError as error:
        missing = re.search(r"missing a required argument: '(\w+)'", str(error))
        remedy = f"give {key}.{missing[1]}" if missing else "give a function that takes them"
        raise InputError(
            f"{key}._target_={target.target} cannot be called with ({', '.join(names)}): {error}; "
            f"{remedy}"
        ) from error
    return configured


def _reason(error: Exception) -> str:
    return (
        str(error) if isinstance(error, ImportError | AttributeError | ValueError) else repr(error)
    )


def _meant(name: str) -> str | None:
    """Return what a dotted name that does not exist could have meant, as a question."""
    parent, _, last = name.rpartition(".")
    try:
        known = {
            each.lower(): each
            for each in dir(pkgutil.resolve_name(parent))
            if not each.startswith("_")
        }
    except Exception:
        return None
    near = difflib.get_close_matches(last.lower(), known, n=1)
    return f"did you mean {parent}.{known[near[0]]}?" if near else None


def _activation_factory(function: Callable[..., Any], target: Target) -> Callable[[int], nn.Module]:
    """Return what builds a layer's activation, with the number of channels and the name where
    `function` asks for them.

    A function that needs one argument, and neither of these, is one of tensors.

    Raises:
        InputError: where it needs anything else that is not given.
    """
    parameters, given = list(inspect.signature(function).parameters.values()), target.options
    asked = [p.name for p in parameters if p.name in CHANNELS and p.name not in given]
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    needed = [p for p in needed if p.name not in given and p.name not in (*asked, LAYER)]
    is_first = (
        len(needed) == 1
        and needed[0] is parameters[0]
        and needed[0].kind is not inspect.Parameter.KEYWORD_ONLY
    )
    if is_first and not asked and not inspect.isclass(function):
        return _of_tensors(function, target)
    if needed:
        name = needed[0].name
        raise InputError(
            f"activation._target_={target.target} needs {name}, which is not given; write a "
            "file in "
            f"conf/activation with the function and its {name}, or give a function that needs "
            "its channels alone"
        )

    of_layer = any(p.name == LAYER and p.name not in given for p in parameters)

    def build_activation(channels: int, layer: str = "") -> nn.Module:
        named = {LAYER: layer} if of_layer else {}
        try:
            made = function(**dict.fromkeys(asked, channels), **named, **given)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"activation._target_={target.target} cannot be built: {error!r}"
            ) from error
        if not isinstance(made, nn.Module):
            raise InputError(
                f"activation._target_={target.target} gives {made!r}; it must return a torch module"
            )
        return made

    return ByLayer(build_activation) if of_layer else build_activation


def _of_tensors(function: Callable[..., Any], target: Target) -> Callable[[int], nn.Module]:
    """Return what builds the module that applies a function of tensors."""

    def build_activation(channels: int) -> nn.Module:
        return Function(partial(function, **target.options), target.target)

    return build_activation
