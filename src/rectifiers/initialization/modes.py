"""The mode in which a network is run to be looked at."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def batch_stats_mode(model: nn.Module) -> Iterator[None]:
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
            vars(buffer).pop("rectifiers_distribution", None)
            # not what the run has made, such as a cache
            if name in buffers and buffers[name].shape == buffer.shape:
                buffer.copy_(buffers[name])
