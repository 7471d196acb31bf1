"""What a run of a user's model needs of it, and that nothing of the model is changed by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.runtime.errors import InputError


def check(model: nn.Module, example: tuple[Any, ...]) -> None:
    """Raise an InputError where a run would show nothing of the model's numbers."""
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        raise InputError(f"model={model!r} is no module; give a network such as nn.Sequential(...)")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise InputError(
            f"{kind} has scripted modules, whose functions cannot be seen; give the model "
            "before scripting"
        )
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        raise InputError(
            f"{kind} has lazy layers without weights yet; run it once on example_input before"
        )
    tensors = [*model.parameters(), *(x for x in example if isinstance(x, Tensor))]
    if any(x.is_meta for x in tensors):
        raise InputError(
            f"{kind} or example_input holds no numbers (device meta); use to_empty(device=...) "
            "before"
        )


@contextmanager
def as_in_training(model: nn.Module) -> Iterator[None]:
    """Let normalisation use the batch's statistics and nothing be dropped; modes and buffers are
    then as before."""
    modes = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        for module in modes:
            module.training = hasattr(module, "running_mean")
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for name, buffer in model.named_buffers():
            vars(buffer).pop("rectifiers_signal", None)
            if (
                name in buffers and buffers[name].shape == buffer.shape
            ):  # not what the run has made, such as a cache
                buffer.copy_(buffers[name])
