"""What PReLU costs: the operation, and a whole training step of the 14-layer network, beside ReLU
and torch's PReLU.

`python scripts/bench/prelu.py [rounds] [batch]` prints tables and writes
results/bench/<machine>.json. Ratios are of CPU time on one thread, interleaved; where there is a
GPU, of the clock on that. The network of the step is the paper's at full width."""

import sys
from functools import partial
from typing import Any

import torch
from harness import (
    CLOCK,
    DEVICE,
    Way,
    interleave,
    measure,
    medians,
    paper_network,
    ratios,
    sgd,
    training_step,
    waiting,
)
from torch import Tensor, nn

from rectifiers.nn.kernels import PReLU, cpu
from rectifiers.nn.networks.network import ActivationFactory

BATCH = 128 if DEVICE == "cuda" else 8
SHAPES = ((BATCH, 64, 112, 112), (BATCH, 256, 18, 18))
FORMATS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}
KINDS: dict[str, ActivationFactory] = {
    "ReLU": lambda _: nn.ReLU(),
    "PReLU, torch's": nn.PReLU,
    "PReLU, torch's, compiled": lambda channels: torch.compile(nn.PReLU(channels)),
    "PReLU": PReLU,
    "PReLU, shared": lambda _: PReLU(1),
    "PReLU, torch's, shared": lambda _: nn.PReLU(1),
}
IN_A_STEP = ("ReLU", "PReLU, torch's", "PReLU")
COPY = "a copy of as many bytes"


def forward_and_backward(module: nn.Module, x: Tensor, dy: Tensor) -> None:
    torch.autograd.grad(module(x), [x, *module.parameters()], dy)


def operation(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Time the activation alone, over ReLU's; and a copy of the five tensors that its two passes
    touch."""
    times = {}
    for shape in SHAPES:
        for layout, memory in FORMATS.items():
            x, dy = (torch.randn(shape, device=DEVICE).to(memory_format=memory) for _ in range(2))
            x.requires_grad_()
            source = torch.randn(5 * x.numel() // 2, device=DEVICE)
            ways: dict[str, Way] = {
                name: partial(forward_and_backward, make(shape[1]).to(DEVICE), x, dy)
                for name, make in KINDS.items()
            }
            ways[COPY] = partial(torch.empty_like(source).copy_, source)
            seconds = interleave(
                {name: waiting(way) for name, way in ways.items()}, 4 * rounds, CLOCK
            )
            times[f"{'x'.join(map(str, shape))}, {layout}"] = {
                name: ratios(seconds, name, "ReLU") for name in ways
            }
    return times


def step(make: ActivationFactory, batch: int, memory: torch.memory_format) -> Way:
    """Return a training step of small14 on noise."""
    network = paper_network("small14", make).to(DEVICE, memory_format=memory)
    return training_step(network, sgd(network, fused=True), batch, DEVICE)


def kept_bytes(make: ActivationFactory, batch: int = 2) -> float:
    """Return the bytes of activations per image that a forward pass keeps for the backward pass."""
    network = paper_network("small14", make)
    parameters = {p.untyped_storage().data_ptr() for p in network.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = network(torch.randn(batch, 3, 224, 224))
    del scores  # until here, so that no storage is used twice
    return sum(saved.values()) / batch


def main(rounds: int, batch: int) -> dict[str, Any]:
    if cpu.unavailable_reason():
        sys.exit(f"error: there is no C library ({cpu.unavailable_reason()}); call make native")
    operations = operation(rounds)
    ways = {
        f"{name}, {layout}": step(KINDS[name], batch, memory)
        for name in IN_A_STEP
        for layout, memory in FORMATS.items()
    }
    seconds = interleave(ways, rounds, CLOCK)
    return {
        "operation": operations,
        "step": {name: ratios(seconds, name, f"ReLU, {name.rpartition(', ')[2]}") for name in ways},
        "step_ms_an_image": medians(seconds, 1e3 / batch),
        "kept_bytes_an_image": {name: kept_bytes(KINDS[name]) for name in IN_A_STEP},
    }


if __name__ == "__main__":
    measure(main, __doc__, DEVICE, rounds=9, batch=BATCH)
