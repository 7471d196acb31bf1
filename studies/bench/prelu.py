"""Compare the cost of PReLU on a CPU with torch's PReLU and ReLU: the operation alone, on the
shapes of many networks. networks.py times whole training steps.

`python studies/bench/prelu.py [rounds] [batch]` prints tables and writes
results/bench/<machine>.json. Ratios compare CPU times on one thread. The variants take turns. Maps
are channels last as in a run, except in 1-D networks."""

import sys
from functools import partial
from typing import Any

import torch
from harness import DTYPES, Way, interleave, kept_bytes, measure, medians, ratios
from torch import Tensor, nn

from rectifiers.models.network import ActivationFactory
from rectifiers.prelu import PReLU, cpu

SHAPES = {  # of one image: channels, then positions
    "small14_32, width .25, conv1": (16, 32, 32),
    "small14_32, width .25, conv3": (64, 8, 8),
    "small14_32, width .25, fc1": (1024,),
    "small14, conv1": (64, 109, 109),
    "small14, conv3": (256, 18, 18),
    "model A, conv1": (96, 112, 112),
    "model A, conv2": (256, 56, 56),
    "resnet20, width .25, stage 1": (4, 32, 32),
    "resnet20, stage 1": (16, 32, 32),
    "resnet20, stage 3": (64, 8, 8),
    "VGG-19, conv1": (64, 224, 224),
    "VGG-19, fc1": (4096,),
    "iresnet (ArcFace), stage 4": (512, 7, 7),
    "U-Net (MONAI), top": (16, 128, 128),
    "U-Net (MONAI), bottom": (256, 8, 8),
    "SRGAN, upsampled": (64, 96, 96),
    "Conv-TasNet, block": (512, 1000),
    "three channels": (3, 64, 64),
}
SHARED = ("Conv-TasNet, block",)  # one slope for all channels, as nn.PReLU() has it
KINDS: dict[str, ActivationFactory] = {
    "ReLU": lambda _: nn.ReLU(),
    "PReLU, torch's": nn.PReLU,
    "PReLU": PReLU,
}


def apply(module: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.dtype == torch.bfloat16):
        y: Tensor = module(x)
    return y


def forward_and_backward(module: nn.Module, x: Tensor, dy: Tensor) -> None:
    torch.autograd.grad(apply(module, x), [x, *module.parameters()], dy)


def operations(rounds: int, batch: int) -> dict[str, dict[str, Any]]:
    """Time forward and backward passes of the activation alone, over ReLU's."""
    times = {}
    for name, (channels, *sides) in SHAPES.items():
        memory = torch.channels_last if len(sides) == 2 else torch.contiguous_format
        slopes = 1 if name in SHARED else channels
        for kind, dtype in DTYPES.items():
            x = torch.randn(batch, channels, *sides, dtype=dtype)
            x = x.to(memory_format=memory).requires_grad_()
            dy = torch.randn_like(x)

            modules = {label: make(slopes) for label, make in KINDS.items()}
            ways: dict[str, Way] = {
                label: partial(forward_and_backward, module, x, dy)
                for label, module in modules.items()
            }
            seconds = interleave(ways, rounds)

            times[f"{name}, {kind}"] = {
                "us": medians(seconds, 1e6),
                "over_relu": {label: ratios(seconds, label, "ReLU") for label in ways},
                "kept_bytes": {
                    label: kept_bytes(partial(apply, module, x))
                    for label, module in modules.items()
                },
            }
    return times


def main(rounds: int, batch: int) -> dict[str, Any]:
    if cpu.unavailable_reason():
        sys.exit(f"error: there is no C library ({cpu.unavailable_reason()}); call make native")
    return {"operation": operations(2 * rounds, batch)}


if __name__ == "__main__":
    measure(main, __doc__, rounds=9, batch=16)
