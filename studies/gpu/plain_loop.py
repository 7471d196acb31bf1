"""A plain loop of torch's and torchvision's, without this project's code: what training is measured
beside. Its batches lie in pinned memory."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from rectifiers.cli.composition import compose_job
from rectifiers.models.rows import Row, expand, trace

Rates = list[float]  # images per second, of each block of steps


class Setting(NamedTuple):
    """How a step computes. asked: the overrides of `train.py`; tf32: whether products of float32
    may keep ten bits, for which no run has a key but `fast`."""

    asked: tuple[str, ...]
    dtype: torch.dtype = torch.float32
    tf32: bool = False
    is_compiled: bool = False
    activation: str = "relu"


@dataclass(frozen=True)
class Size:
    """The device, and how large and how many steps are."""

    device: str
    px: int = 224
    batch: int = 128
    classes: int = 1000
    warmup: int = 5  # steps, in which cuDNN searches and torch compiles
    blocks: int = 4
    steps: int = 5  # of a block

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def allow_tf32(is_allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = is_allowed


def rates(marks: list[float], size: Size) -> Rates:
    return [size.steps * size.batch / (b - a) for a, b in itertools.pairwise(marks)]


class Pyramid(nn.Module):
    """Max pooling into n x n bins per level n, as torch has it."""

    def __init__(self, levels: tuple[int, ...]) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.adaptive_max_pool2d(x, n).flatten(1) for n in self.levels], 1)


def rows_of(model: str, classes: int) -> tuple[Row, ...]:
    rows = compose_job((f"model={model}",))[0].model.rows
    assert rows is not None
    return expand(rows, width=1.0, classes=classes)


def plain_network(model: str, activation: str, size: Size) -> nn.Module:
    """Return torchvision's VGG-19, or another model and other activations with torch's modules."""
    if (model, activation) == ("vgg19", "relu"):
        return torchvision.models.vgg19(num_classes=size.classes)

    shapes = trace(rows_of(model, size.classes), channels=3, input_px=size.px)
    layers: list[nn.Module] = []
    channels, side = 3, size.px
    for row, after in ((shape.row, shape) for shape in shapes):
        if row.kind == "conv":
            layers.append(nn.Conv2d(channels, row.size, row.kernel, row.stride, row.padding))
        elif row.kind == "max_pool":
            layers.append(nn.MaxPool2d(row.kernel, row.stride, row.padding))
        elif row.kind == "pyramid":
            layers.append(Pyramid(row.levels))
        else:
            layers += [nn.Flatten(), nn.Linear(channels * max(side, 1) ** 2, row.size)]
        if row.weighted and after is not shapes[-1]:
            layers.append(nn.PReLU(row.size) if activation == "prelu" else nn.ReLU(inplace=True))
        if row.dropout:
            layers.append(nn.Dropout(row.dropout))
        channels, side = after.channels, after.side
    return nn.Sequential(*layers)


@contextmanager
def tuned(setting: Setting, size: Size) -> Iterator[None]:
    """Let torch compute as a run with this setting does."""
    search = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = size.device == "cuda"
    allow_tf32(setting.tf32 or setting.is_compiled)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = search
        allow_tf32(False)


def plain_rates(model: str, setting: Setting, size: Size) -> Rates:
    """Return the images per second of a loop without this project's code."""
    device, is_gpu = torch.device(size.device), size.device == "cuda"
    network = plain_network(model, setting.activation, size).to(device)
    network = network.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(
        network.parameters(), lr=1e-5, momentum=0.9, weight_decay=5e-4, fused=True
    )
    run = torch.compile(network, mode="reduce-overhead") if setting.is_compiled else network
    shape = (size.batch, 3, size.px, size.px)
    batches = [torch.randint(0, 256, shape, dtype=torch.uint8) for _ in range(4)]
    if is_gpu:
        batches = [batch.pin_memory() for batch in batches]
    labels = torch.randint(size.classes, (size.batch,), device=device)
    mean = torch.full((3, size.px, size.px), 127.5, device=device)

    def step(batch: Tensor) -> None:
        images = batch.to(device, non_blocking=True)
        x = (images - mean).contiguous(memory_format=torch.channels_last)
        with torch.autocast(size.device, setting.dtype, enabled=setting.dtype != torch.float32):
            loss = F.cross_entropy(run(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    marks = []
    with tuned(setting, size):
        for index in range(size.warmup + size.blocks * size.steps + 1):
            timed = index - size.warmup
            if timed >= 0 and timed % size.steps == 0:
                size.wait()
                marks.append(time.perf_counter())
            if len(marks) <= size.blocks:
                step(batches[index % len(batches)])
    return rates(marks, size)
