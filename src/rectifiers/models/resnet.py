"""The residual networks of He, Zhang, Ren and Sun (2016) for small images, with any activation."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.models.network import ActivationFactory
from rectifiers.runtime.ranges import Count, Positive

Norm = Literal["none", "batch"]


def _after_layer(norm: Norm, units: int) -> nn.Module:
    """Return what stands after a convolution: normalisation, or nothing."""
    return nn.BatchNorm2d(units) if norm == "batch" else nn.Identity()


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters; the sum goes through the second
    activation.

    Where the number of channels grows, the shortcut takes every second position and pads channels
    of zeros (their option A)."""

    def __init__(
        self, activation: ActivationFactory, inputs: int, units: int, stride: int, norm: Norm
    ) -> None:
        super().__init__()
        self.stride, self.added = stride, units - inputs
        has_bias = norm == "none"  # a normalisation has its own
        self.conv1 = nn.Conv2d(inputs, units, 3, stride, padding=1, bias=has_bias)
        self.norm1 = _after_layer(norm, units)
        self.act1 = activation(units)
        self.conv2 = nn.Conv2d(units, units, 3, padding=1, bias=has_bias)
        self.norm2 = _after_layer(norm, units)
        self.act2 = activation(units)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.act1(self.norm1(self.conv1(x)))
        branch = self.norm2(self.conv2(inside))
        shortcut = x
        if self.stride > 1 or self.added:
            kept = x[:, :, :: self.stride, :: self.stride]
            shortcut = F.pad(kept, (0, 0, 0, 0, 0, self.added))  # at the end of the channels
        return self.act2(shortcut + branch)


def resnet(
    activation: ActivationFactory,
    classes: int,
    channels: int,
    input_px: int,
    blocks: Count = 3,
    norm: Norm = "none",
    width: Positive = 1.0,
) -> nn.Module:
    """ResNet-(6 blocks + 2): a 3x3 convolution, three stages of `blocks` blocks, the mean of the
    map, a linear layer.

    The stages have 16, 32 and 64 channels, times `width`, on maps of input_px, half and a quarter
    of it (their section 4.2; 20, 32 and 56 layers with 3, 5 and 9 blocks)."""
    sizes = [max(1, round(size * width)) for size in (16, 32, 64)]
    network = nn.Sequential()
    network.add_module("conv1", nn.Conv2d(channels, sizes[0], 3, padding=1, bias=norm == "none"))
    if norm == "batch":
        network.add_module("norm1", nn.BatchNorm2d(sizes[0]))
    network.add_module("act1", activation(sizes[0]))

    inputs = sizes[0]
    for stage, units in enumerate(sizes, start=1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            network.add_module(
                f"stage{stage}_{block}", Block(activation, inputs, units, stride, norm)
            )
            inputs = units

    network.add_module("pool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flatten", nn.Flatten())
    network.add_module("fc", nn.Linear(inputs, classes))
    return network
