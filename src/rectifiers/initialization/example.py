"""The arguments of a forward method, from an example of any usual form, and what is refused."""

import inspect
import reprlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.runtime.errors import InputError

BATCHES = ([True], [True, True])  # tensors in a DataLoader's list: inputs, and maybe labels
Call = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments


def arguments(model: nn.Module, example: Any) -> Call:
    """Return the arguments of a forward pass on `example`.

    It is a tensor; a tuple of arguments; a batch of a DataLoader with labels that the model does
    not take; one or several shapes, of which standard normal numbers are made, always the same
    ones; or a dictionary of keyword arguments, among them shapes. A dictionary without a name that
    the forward method knows is its one argument.

    Raises:
        InputError: where a shape has no batch, or a dictionary names arguments that do not exist.
    """
    if not isinstance(model, nn.Module):
        return (example,), {}  # which `tracing.run` refuses
    if isinstance(example, Mapping):
        return _named(model, dict(example))
    if _is_shape(example):
        _check_batch(example)
        example = (example,)
    if isinstance(example, tuple) and example and all(map(_is_shape, example)):
        example = tuple(_drawn(model, example))
    if isinstance(example, list) and [isinstance(x, Tensor) for x in example] in BATCHES:
        example = tuple(example)
    if not isinstance(example, tuple):
        return (example,), {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(model.forward).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return example, {}
    return example[: max(1, sum(p.kind in kinds for p in parameters))], {}


def _named(model: nn.Module, example: dict[Any, Any]) -> Call:
    """Return the arguments that a dictionary gives: by name, or itself as the only one."""
    parameters = inspect.signature(model.forward).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.kind for p in parameters if p.default is p.empty and p.kind in positional]
    if len(needed) == 1 and not set(names) & example.keys():
        return (example,), {}
    unknown = [] if takes_any else [str(name) for name in example if name not in names]
    if unknown:
        raise InputError(
            f"example_input names {', '.join(unknown)}, which {type(model).__name__} does not "
            f"take; choose from its arguments: {', '.join(names)}"
        )
    shapes = {name: value for name, value in example.items() if _is_shape(value)}
    for shape in shapes.values():
        _check_batch(shape)
    drawn = dict(zip(shapes, _drawn(model, shapes.values()), strict=True))
    return (), example | drawn


def _drawn(model: nn.Module, shapes: Collection[tuple[int, ...]]) -> list[Tensor]:
    """Return standard normal numbers of these shapes, in the type and place of the model's."""
    first = next(model.parameters(), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator, dtype=torch.float32, device="cpu")
    try:
        drawn = [draw(shape) for shape in shapes]
    except (RuntimeError, TypeError) as error:  # more than an integer or the memory holds
        raise InputError(
            f"example_input of shape {', '.join(map(str, shapes))} cannot be drawn: it is larger "
            "than memory; give a smaller batch"
        ) from error
    return drawn if first.is_meta else [x.to(first) for x in drawn]


def _check_batch(shape: tuple[int, ...]) -> None:
    if len(shape) == 1:
        raise InputError(
            f"example_input={shape} is a shape without a batch dimension; give a batch, such as "
            f"(64, {shape[0]})"
        )


def _is_shape(value: Any) -> bool:
    """Return whether a value is a tuple of sizes."""
    if not isinstance(value, tuple) or not value or any(type(size) is not int for size in value):
        return False
    if min(value) < 1:
        raise InputError(f"example_input={value} is no shape; give sizes of at least 1")
    return True


def cannot_run(
    model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any], error: Exception
) -> InputError:
    """Return the error that says what the model was given, why it failed, and what to give."""
    every = (*inputs, *named.values())
    shapes = ", ".join(str(tuple(x.shape)) for x in every if isinstance(x, Tensor))
    kind = type(inputs[0] if inputs else named or ()).__name__
    given = f"shape {shapes}" if shapes else f"type {kind}"
    remedy = "give a batch in the shape and type its layers read, or a shape, as (64, 3, 32, 32)"
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*inputs, **named)
    except TypeError:
        needed = [p.name for p in signature.parameters.values() if p.default is p.empty]
        remedy = f"give a tuple of what its forward method takes: {', '.join(needed)}"
    return InputError(
        f"{type(model).__name__} cannot be run on example_input of {given} "
        f"({type(error).__name__}: {' '.join(str(error).split())}); {remedy}"
    )


def check(model: nn.Module, example: tuple[Any, ...]) -> None:
    """Raise an InputError where a run would show nothing of the model's numbers."""
    kind = type(model).__name__
    if isinstance(model, type):
        raise InputError(
            f"model={model.__name__} is a class; give a network, as {model.__name__}()"
        )
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model={reprlib.repr(model)} is no module; give a network such as nn.Sequential(...)"
        )
    inputs = [x for x in example if isinstance(x, Tensor)]
    numbers = [x for x in inputs if x.is_floating_point()]
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        problem = f"{kind} has scripted modules without visible functions; give it before scripting"
    elif any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        problem = f"{kind} has lazy layers without weights yet; run it once on example_input before"
    elif any(x.is_meta for x in (*model.parameters(), *inputs)):
        problem = f"{kind} or example_input is on device meta; use to_empty(device=...) before"
    elif any(hasattr(p, "full_tensor") for p in model.parameters()):  # of DTensor
        problem = f"{kind} has sharded weights (DTensor); give it before fully_shard or parallelize"
    elif _is_quantised(model):
        problem = f"{kind} has quantised layers, whose weights are no floats; give it before that"
    elif inputs and not any(x.numel() for x in inputs):
        problem = "example_input holds no rows or no numbers; give a batch of at least one example"
    elif not all(bool(x.isfinite().all()) for x in numbers):
        problem = "example_input holds NaN or infinite numbers; give a batch without them"
    elif numbers and not any(bool(x.any()) for x in numbers):
        problem = "example_input is all zeros; give a batch of data or torch.randn"
    else:
        return
    raise InputError(problem)


def _is_quantised(model: nn.Module) -> bool:
    packed = any(".quantized" in type(module).__module__ for module in model.modules())
    floats = (p.is_floating_point() or p.is_complex() for p in model.parameters())
    return packed or not all(floats)
