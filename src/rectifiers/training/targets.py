"""From a `_target_` of the configuration to the function that it names."""

import difflib
import inspect
import json
import pkgutil
import re
import reprlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from rectifiers.activations import ByLayer, unused
from rectifiers.activations.modules import Function
from rectifiers.models.network import ActivationFactory
from rectifiers.quadrature import describe
from rectifiers.runs.config import RunConfig
from rectifiers.runs.sections import MULTISTEP, PLATEAU, SOME_CLASSES, Target
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CHECKOUT, CONF
from rectifiers.runtime.own_modules import find_modules
from rectifiers.runtime.schema import check_call, unknown_key
from rectifiers.runtime.schema import keys as schema_keys

Choices = Mapping[str, str | None]  # the option that was chosen of each group
Functions = Mapping[str, Callable[..., Any]]  # of a configuration, by the keys that name them
# What the function of a group is called with, beside its own settings.
CALLED_WITH = {
    "init": ("weight", "layer", "generator"),
    "preprocess": ("moments",),
    "evaluation": ("crop_px",),
    "optim": ("params",),
    "scheduler": ("optimizer",),
    "model": ("activation", "classes", "channels", "input_px"),
}
# The parameters of an activation's function that ask for the number of channels, and the name.
CHANNELS, LAYER = ("channels", "num_parameters", "num_features"), "layer"
KNOWN_CALLBACKS = ("pytorch_lightning.", "rectifiers.")


def import_function(key: str, target: Target) -> Callable[..., Any]:
    """Return the function that `target`, the value of `key`, names, with its settings as keywords.
    It must be one that can be called as its group's are, and take each setting's value."""
    name = f"{key}._target_={target.target}"
    function = _resolved(name, target)
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:  # torch's functions that are written in C have none
        if key == "activation" and callable(function):
            return _of_tensors(function, target)
        raise InputError(f"{name} is not a function; give the dotted name of a function") from error

    if target.target in (PLATEAU, MULTISTEP):  # whose settings the configuration declares
        for setting in target.options:
            raise InputError(unknown_key(f"{key}.{setting}", schema_keys(type(target))))
        return function

    check_call(function, target.options, f"{key}.")
    if key == "activation":
        return _activation_factory(function, target)
    configured: Callable[..., Any] = partial(function, **target.options)
    if key == "scheduler":
        configured = _with_own_settings(configured, target)
    _check_arguments(key, name, configured)
    return configured


def _resolved(name: str, target: Target) -> Callable[..., Any]:
    """Return what a dotted name names."""
    if CHECKOUT is not None:  # whose conf/ may name modules beside it
        find_modules([target.target], CHECKOUT)
    try:
        return pkgutil.resolve_name(target.target)
    except (Exception, SystemExit) as error:  # the user's own module may raise anything
        is_plain = isinstance(error, ImportError | AttributeError | ValueError)
        reason = str(error) if is_plain else repr(error)
        remedy = _similar_name(target.target)
        raise InputError(f"{name} cannot be imported ({reason}); {remedy}") from error


def _with_own_settings(scheduler: Callable[..., Any], target: Target) -> Callable[..., Any]:
    """Return a scheduler of torch's with the keys of ours that it has, too."""
    taken = inspect.signature(scheduler).parameters.keys() & {"patience", "milestones"}
    own = {key: getattr(target, key, None) for key in taken}
    return partial(scheduler, **{key: value for key, value in own.items() if value is not None})


def _check_arguments(key: str, name: str, configured: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called as those of its group are."""
    arguments = CALLED_WITH.get(key.partition(".")[0], ())
    named = {"save_dir": "."} if key.startswith("logger.") else {}
    try:
        inspect.signature(configured).bind(*arguments, **named)
    except TypeError as error:
        missing = re.search(r"missing a required argument: '(\w+)'", str(error))
        remedy = f"give {key}.{missing[1]}" if missing else "give a function that takes them"
        called = f"called with ({', '.join(arguments)})"
        raise InputError(f"{name} cannot be {called}: {error}; {remedy}") from error


def source_file(target: str) -> str | None:
    """Return the file of a function that a dotted name names: of one within decorators, and, of an
    object such as `functools.partial`, that which names it."""
    for name in (target, target.rpartition(".")[0]):
        with suppress(TypeError):
            return inspect.getsourcefile(inspect.unwrap(pkgutil.resolve_name(name)))
    return None


def _similar_name(name: str) -> str:
    """Return what a dotted name that does not exist could have meant, as a question."""
    parent, _, last = name.rpartition(".")
    try:
        names = {name.lower(): name for name in dir(pkgutil.resolve_name(parent))}
    except (Exception, SystemExit):
        names = {}
    near = difflib.get_close_matches(last.lower(), names, n=1)
    return (
        f"did you mean {parent}.{names[near[0]]}?" if near else "give the dotted name of a function"
    )


def _activation_factory(function: Callable[..., Any], target: Target) -> ActivationFactory:
    """Return what builds a layer's activation, with the number of channels and the layer's name
    where `function` asks for them. One that needs one argument, and neither of these, is of
    tensors; one that needs anything else is refused."""
    name, settings = f"activation._target_={target.target}", target.options
    parameters = list(inspect.signature(function).parameters.values())
    channel_keys = [p.name for p in parameters if p.name in CHANNELS and p.name not in settings]
    takes_layer = any(p.name == LAYER and p.name not in settings for p in parameters)
    needed = [
        p
        for p in parameters
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and p.name not in (*settings, *channel_keys, LAYER)
    ]
    if needed:
        is_first = needed[0] is parameters[0] and needed[0].kind is not needed[0].KEYWORD_ONLY
        takes_tensor = is_first and not channel_keys and not inspect.isclass(function)
        if takes_tensor and len(needed) == 1:
            return _of_tensors(function, target)
        lacking = needed[takes_tensor].name
        raise InputError(
            f"{name} needs {lacking}; give activation.{lacking}, or a function of a tensor, or of "
            "its channels, alone"
        )

    def build_activation(channels: int, layer: str = "") -> nn.Module:
        named = {LAYER: layer} if takes_layer else {}
        try:
            activation = function(**dict.fromkeys(channel_keys, channels), **named, **settings)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{name} cannot be built: {error!r}") from error
        if not isinstance(activation, nn.Module):
            raise InputError(
                f"{name} gives {reprlib.repr(activation)}; it must return a torch module"
            )
        return activation

    return ByLayer(build_activation) if takes_layer else build_activation


def _of_tensors(function: Callable[..., Tensor], target: Target) -> ActivationFactory:
    """Return what builds the module that applies a function of tensors."""
    return lambda channels: Function(partial(function, **target.options), target.target)


def import_functions(config: RunConfig) -> Functions:
    """Import every function that `config` names, and check its settings."""
    targets = {**config.targets(), "activation": config.activation_at_depth()}
    return {key: import_function(key, target) for key, target in targets.items()}


def describe_activation(config: RunConfig, factory: ActivationFactory) -> str | None:
    """Return the first layer's activation with its settings: LeakyReLU(negative_slope=0.01); None
    without one.

    Of one that differs by layer, the settings that say how: by_layer(default: relu, layers: {conv1:
    prelu})."""
    if isinstance(factory, ByLayer):
        settings = json.dumps(config.activation.options).replace('"', "")
        return f"{config.activation.target.rpartition('.')[2]}({settings[1:-1]})"
    with torch.random.fork_rng(devices=[]):
        activations = some_activations(config, factory)
    return describe(activations[0][2]) if activations else None


def name_activation(choices: Choices, config: RunConfig, description: str | None) -> Choices:
    """Return `choices` with the module in the place of the activation's option, where that has
    another function: a run is shown by its choices everywhere.

    description: as of `describe_activation`.
    """
    option = str(choices.get("activation"))
    file = CONF / "activation" / f"{option}.yaml"
    is_known = option.isidentifier() and file.is_file()  # a record may say anything
    differs = is_known and yaml.safe_load(file.read_text())["_target_"] != config.activation.target
    if differs or option == "by_layer":  # whose name does not say which
        return {**choices, "activation": description}
    return choices


def some_activations(
    config: RunConfig, factory: ActivationFactory
) -> list[tuple[str, int, nn.Module]]:
    """Build (kind of layer, channels, activation) of the first conv and linear layers that have
    one, in their order; of all layers where activations differ by layer."""
    if config.model.rows is None:  # one is as good as any
        return [("conv", 16, factory(16))]
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
