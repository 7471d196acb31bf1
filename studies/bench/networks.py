"""Measure how `swap_prelu` changes the time of a training step on a CPU, and the memory that the
backward pass needs, for networks that are often trained with PReLU.

`python studies/bench/networks.py [rounds] [batch]` prints a table and writes
results/bench/<machine>.json. The networks follow their papers and libraries, also in the number of
slopes. They start with torch's PReLU; a second copy has ReLU instead. Ratios compare CPU times on
one thread. The variants take turns."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from harness import Way, interleave, kept_bytes, measure, medians, ratios, sgd
from torch import Tensor, nn

from rectifiers import swap_prelu

BEFORE, AFTER, RELU = "torch's PReLU", "after swap_prelu", "ReLU"


class Sum(nn.Module):
    """The sum of what several modules make of one map."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return sum(part(x) for part in self.parts)


class Concatenation(Sum):
    """The same, side by side in channels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], 1)


class Product(Sum):
    """The same, multiplied."""

    def forward(self, x: Tensor) -> Tensor:
        return self.parts[0](x) * self.parts[1](x)


def conv(inputs: int, outputs: int, stride: int = 1, window: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)


def iresnet18() -> nn.Module:
    """ArcFace's network for faces of 112 px (insightface)."""

    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        branch = nn.Sequential(
            *(nn.BatchNorm2d(inputs), conv(inputs, outputs), nn.BatchNorm2d(outputs)),
            *(nn.PReLU(outputs), conv(outputs, outputs, stride), nn.BatchNorm2d(outputs)),
        )
        if stride == 1:
            return Sum(nn.Identity(), branch)
        down = nn.Sequential(conv(inputs, outputs, stride, 1), nn.BatchNorm2d(outputs))
        return Sum(down, branch)

    widths = (64, 64, 128, 256, 512)
    blocks = [block(*sizes) for a, b in pairwise(widths) for sizes in ((a, b, 2), (b, b, 1))]
    stem = (conv(3, 64), nn.BatchNorm2d(64), nn.PReLU(64))
    head = (nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512 * 49, 512), nn.BatchNorm1d(512))
    return nn.Sequential(*stem, *blocks, *head)


def u_net() -> nn.Module:
    """MONAI's U-Net with two residual units and one slope per PReLU."""

    def unit(inputs: int, outputs: int, stride: int = 1, layers: int = 2) -> nn.Module:
        convs = [
            conv(inputs, outputs, stride),
            *(conv(outputs, outputs) for _ in range(layers - 1)),
        ]
        parts = [m for c in convs for m in (c, nn.InstanceNorm2d(outputs), nn.PReLU())]
        same = inputs == outputs and stride == 1
        return Sum(nn.Identity() if same else conv(inputs, outputs, stride), nn.Sequential(*parts))

    def level(inputs: int, outputs: int, widths: tuple[int, ...]) -> nn.Module:
        width, *below = widths
        if len(below) == 1:
            inner, read = unit(width, below[0]), width + below[0]
        else:
            inner, read = level(width, width, tuple(below)), 2 * width
        up = nn.ConvTranspose2d(read, outputs, 3, 2, 1, output_padding=1, bias=False)
        return nn.Sequential(
            *(unit(inputs, width, 2), Concatenation(nn.Identity(), inner), up),
            *(nn.InstanceNorm2d(outputs), nn.PReLU(), unit(outputs, outputs, layers=1)),
        )

    return level(1, 2, (16, 32, 64, 128, 256))


def srgan() -> nn.Module:
    """SRGAN's generator, which makes 96 px of 24 px."""

    def branch() -> nn.Module:
        norms = (nn.BatchNorm2d(64), nn.BatchNorm2d(64))
        parts = (conv(64, 64), norms[0], nn.PReLU(), conv(64, 64), norms[1])
        return Sum(nn.Identity(), nn.Sequential(*parts))

    body = nn.Sequential(*(branch() for _ in range(16)), conv(64, 64), nn.BatchNorm2d(64))
    larger = [m for _ in range(2) for m in (conv(64, 256), nn.PixelShuffle(2), nn.PReLU())]
    stem = (conv(3, 64, window=9), nn.PReLU())
    return nn.Sequential(*stem, Sum(nn.Identity(), body), *larger, conv(64, 3, window=9))


def conv_tasnet() -> nn.Module:
    """Conv-TasNet for two speakers, with half of the paper's blocks and a residual path alone."""

    def block(dilation: int) -> nn.Module:
        depthwise = nn.Conv1d(512, 512, 3, padding=dilation, dilation=dilation, groups=512)
        parts = (
            *(nn.Conv1d(128, 512, 1), nn.PReLU(), nn.GroupNorm(1, 512)),
            *(depthwise, nn.PReLU(), nn.GroupNorm(1, 512), nn.Conv1d(512, 128, 1)),
        )
        return Sum(nn.Identity(), nn.Sequential(*parts))

    blocks = (block(2**n) for _ in range(2) for n in range(6))
    mask = (nn.GroupNorm(1, 512), nn.Conv1d(512, 128, 1), *blocks, nn.PReLU())
    masks = nn.Sequential(*mask, nn.Conv1d(128, 512, 1), nn.Sigmoid())
    masked = Product(nn.Identity(), masks)
    return nn.Sequential(nn.Conv1d(1, 512, 16, 8), masked, nn.ConvTranspose1d(512, 1, 16, 8))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {  # with one input
    "iresnet18": (iresnet18, (3, 112, 112)),
    "U-Net, as in MONAI": (u_net, (1, 128, 128)),
    "SRGAN's generator": (srgan, (3, 24, 24)),
    "Conv-TasNet": (conv_tasnet, (1, 8000)),
}


def with_relu(network: nn.Module) -> nn.Module:
    """Replace every PReLU of a network, in place."""
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.PReLU):
                setattr(parent, name, nn.ReLU())
    return network


def step(network: nn.Module, x: Tensor) -> Way:
    """Return a function that makes a step on noise: forward, mean square, backward and SGD."""
    optimizer = sgd(network, fused=True)

    def run() -> None:
        network(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def main(rounds: int, batch: int) -> dict[str, Any]:
    results = {}
    for name, (build, sizes) in NETWORKS.items():
        for layout in ("NCHW", "channels last") if len(sizes) == 3 else ("NCL",):
            last = layout == "channels last"
            memory = torch.channels_last if last else torch.contiguous_format
            before = build().to(memory_format=memory)
            after = swap_prelu(copy.deepcopy(before))
            x = torch.randn(batch, *sizes).to(memory_format=memory)
            assert torch.equal(before(x), after(x))

            networks = {BEFORE: before, AFTER: after, RELU: with_relu(copy.deepcopy(before))}
            kept = {
                label: kept_bytes(partial(n, x), n.parameters()) for label, n in networks.items()
            }
            ways = {label: step(network, x) for label, network in networks.items()}
            seconds = interleave(ways, rounds)
            results[f"{name}, {layout}"] = {
                "ms": medians(seconds, 1e3),
                "over_before": {label: ratios(seconds, label, BEFORE) for label in ways},
                "kept_bytes": kept,
            }
    return {"step": results}


if __name__ == "__main__":
    measure(main, __doc__, rounds=9, batch=4)
