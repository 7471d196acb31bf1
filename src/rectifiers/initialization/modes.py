"""The mode in which a network is run to be looked at."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from rectifiers.runtime.seeds import derive_seed


@contextmanager
def batch_stats_mode(model: nn.Module) -> Iterator[None]:
    """Let normalisation use the batch's statistics and nothing be dropped, and draw the same random
    numbers each time; modes, buffers and torch's random numbers are then as before."""
    gpus = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    modes = {module: module.training for module in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        for module in modes:
            module.training = hasattr(module, "running_mean")
        with torch.random.fork_rng(gpus):
            # not `torch.manual_seed`, which seeds the GPUs that the model is not on, too
            of_gpus = [torch.cuda.default_generators[gpu] for gpu in gpus]
            for generator in (torch.default_generator, *of_gpus):
                generator.manual_seed(derive_seed("noise"))
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for name, buffer in model.named_buffers():
            vars(buffer).pop("rectifiers_distribution", None)
            # not what the run has made, such as a cache
            if name in buffers and buffers[name].shape == buffer.shape:
                buffer.copy_(buffers[name])
