"""The arguments of its forward method, from an example of any usual form."""

import inspect
from collections.abc import Iterable, Mapping
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


def _drawn(model: nn.Module, shapes: Iterable[tuple[int, ...]]) -> list[Tensor]:
    """Return standard normal numbers of these shapes, in the type and place of the model's."""
    first = next(model.parameters(), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    drawn = [
        torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        for shape in shapes
    ]
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
