"""`initialize` against a model's own start: results/STARTS.md, from results/starts.json.

    python studies/starts.py          everything: about three hours on one core
    python studies/starts.py gpt vit  some networks; the others keep their numbers

Five small networks as practitioners build them are trained from three starts. The program needs
CIFAR-10, as conf/data/cifar10.yaml finds it below data/, and data/text.txt, any text of a
megabyte; the committed numbers are from "tinyshakespeare", 1.1 MB of Shakespeare's plays."""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch
import torch.nn.functional as F
from starts_networks import Gpt, UNet, Vit, dcgan, resnet
from starts_page import (
    CONTEXT,
    DECAY,
    DEFAULT,
    EARLY,
    EXAMPLES,
    JUDGED,
    NUMBERS,
    OURS,
    SEARCHED,
    SHORT,
    STEPS,
    TEXTS,
    WARMUP,
    Results,
    read_numbers,
    write_page,
)
from torch import Generator, Tensor, nn

from rectifiers import initialize, parameter_groups
from rectifiers.data.cifar10 import cifar10
from rectifiers.data.splits import ArraySplit
from rectifiers.runtime.console import cli_errors, say
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text

STEP = math.sqrt(10)  # of the grid of learning rates
RATES = (1e-3 / STEP, 1e-3, 1e-3 * STEP)
HELD_OUT = 512  # examples
DIVERGED = 1e6  # a loss that is larger, or no number, counts as this
TEXT = Path("data/text.txt")


# --- the starts ----------------------------------------------------------------------------------


def torch_default(model: nn.Module, batch: Tensor) -> None:
    """Keep what the layers' constructors drew."""


def by_initialize(model: nn.Module, batch: Tensor) -> None:
    initialize(model, batch)


def normal(model: nn.Module, batch: Tensor, *, std: float, depth: int = 0) -> None:
    """N(0, std^2) for weights and embeddings and 0 for biases; with `depth` blocks the two layers
    that end in the residual sums get std / sqrt(2 depth), as in GPT-2."""
    for name, parameter in model.named_parameters():
        is_end = name.endswith(("out.weight", "down.weight"))
        if parameter.dim() > 1:
            scale = math.sqrt(2 * depth) if depth and is_end else 1.0
            nn.init.normal_(parameter, std=std / scale)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def gpt2(model: nn.Module, batch: Tensor) -> None:
    normal(model, batch, std=0.02, depth=4)


def dcgan_rule(model: nn.Module, batch: Tensor) -> None:
    """N(0, 0.02^2), and N(1, 0.02^2) for the scales of batch normalisation."""
    normal(model, batch, std=0.02)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.02)


def vit_rule(model: nn.Module, batch: Tensor) -> None:
    """A normal distribution of std 0.02 that ends at two stds, as timm's; the first layer keeps
    torch's default, and the head is 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Vit):
            nn.init.trunc_normal_(module.place, std=0.02, a=-0.04, b=0.04)
    nn.init.zeros_(model.get_parameter("head.weight"))


def he(model: nn.Module, batch: Tensor, *, mode: Literal["fan_in", "fan_out"]) -> None:
    """He's rule as torch has it, for every convolution and linear layer."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)


# --- data and training ---------------------------------------------------------------------------

Batch = tuple[Tensor, Tensor]  # what the network reads, and what it should return
Losses = tuple[float, float]


class Images:
    """CIFAR-10 with mean 0 and mean square 1 per channel. `task` makes of images and labels what
    the network reads and returns."""

    def __init__(self, task: Callable[[Tensor, Tensor, Generator], Batch]) -> None:
        split = cifar10(download=True).train
        assert isinstance(split, ArraySplit)
        images, labels = split.images.float(), torch.tensor(split.labels)
        images -= images.mean((0, 2, 3), keepdim=True)
        images /= images.std((0, 2, 3), keepdim=True)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self.images, self.labels, self.task = images[order], labels[order], task

    def held_out(self) -> Batch:
        chosen = slice(0, HELD_OUT)
        generator = torch.Generator().manual_seed(0)
        return self.task(self.images[chosen], self.labels[chosen], generator)

    def batches(self, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            rows = torch.randint(HELD_OUT, len(self.images), (EXAMPLES,), generator=generator)
            yield self.task(self.images[rows], self.labels[rows], generator)


class Text:
    """Pieces of a text in bytes, whose last tenth is held out; every byte is to be predicted."""

    def __init__(self) -> None:
        if not TEXT.exists():
            raise InputError(f"{TEXT} is not there; give any text of a megabyte")
        data = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8)
        end = len(data) * 9 // 10
        self.train, self.rest = data[:end].long(), data[end:].long()

    @staticmethod
    def _pieces(text: Tensor, starts: Tensor) -> Batch:
        rows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
        return rows[:, :-1], rows[:, 1:].flatten()

    def held_out(self) -> Batch:
        count = HELD_OUT // 4
        return self._pieces(self.rest, torch.arange(count) * (len(self.rest) // (count + 1)))

    def batches(self, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            last = len(self.train) - CONTEXT - 1
            yield self._pieces(self.train, torch.randint(last, (TEXTS,), generator=generator))


def classify(images: Tensor, labels: Tensor, generator: Generator) -> Batch:
    return images, labels


def denoise(images: Tensor, labels: Tensor, generator: Generator) -> Batch:
    """Images with noise of half their std, and the noise."""
    noise = 0.5 * torch.randn(images.shape, generator=generator)
    return images + noise, noise


def reconstruct(images: Tensor, labels: Tensor, generator: Generator) -> Batch:
    """The generator ends in tanh: images between -1 and 1."""
    return images, (images / 3).clamp(-1, 1)


def cross_entropy(y: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(y.flatten(0, -2), target)


def train(
    model: nn.Module,
    rate: float,
    data: Images | Text,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    seed: int,
    steps: int,
) -> Losses:
    """Return the held-out loss at EARLY steps and at the end."""
    optimizer = torch.optim.AdamW(
        parameter_groups(model, weight_decay=DECAY), lr=rate, betas=(0.9, 0.95), fused=True
    )
    inputs, targets = data.held_out()
    held_out = []
    for step, (x, y) in enumerate(data.batches(seed), 1):
        done = step / steps
        scale = min(1.0, step / WARMUP) * (0.55 + 0.45 * math.cos(math.pi * done))  # to 0.1
        for group in optimizer.param_groups:
            group["lr"] = rate * scale
        optimizer.zero_grad()
        loss = loss_of(model.train()(x), y)
        loss.backward()
        optimizer.step()
        if step in (EARLY, steps):
            with torch.no_grad():
                value = float(loss_of(model.eval()(inputs), targets))
            held_out.append(value if value < DIVERGED else DIVERGED)
        if not bool(loss.isfinite()):
            return DIVERGED, DIVERGED
        if step == steps:
            break
    return held_out[0], held_out[1]


# --- what is compared ----------------------------------------------------------------------------

Start = Callable[[nn.Module, Tensor], None]


@dataclass(frozen=True)
class Network:
    """what: the network and its task, in words. own: its authors' rule, in words."""

    what: str
    build: Callable[[], nn.Module]
    data: Callable[[], Images | Text]
    loss: Callable[[Tensor, Tensor], Tensor]
    own: str
    rule: Start

    def starts(self) -> dict[str, Start]:
        return {DEFAULT: torch_default, self.own: self.rule, OURS: by_initialize}


NETWORKS = {
    "gpt": Network(
        what="GPT of 4 blocks with a tied head, the bytes of a text",
        build=Gpt,
        data=Text,
        loss=cross_entropy,
        own="GPT-2's: std 0.02, residual ends by depth",
        rule=gpt2,
    ),
    "vit": Network(
        what="ViT of 6 blocks, classes of CIFAR-10",
        build=Vit,
        data=partial(Images, classify),
        loss=F.cross_entropy,
        own="timm's: std 0.02, head 0",
        rule=vit_rule,
    ),
    "resnet": Network(
        what="ResNet of 26 layers without normalisation, classes of CIFAR-10",
        build=resnet,
        data=partial(Images, classify),
        loss=F.cross_entropy,
        own="torchvision's: He, fan_out",
        rule=partial(he, mode="fan_out"),
    ),
    "unet": Network(
        what="U-Net of three sizes, the noise in CIFAR-10 images",
        build=UNet,
        data=partial(Images, denoise),
        loss=F.mse_loss,
        own="U-Net's: He, fan_in",
        rule=partial(he, mode="fan_in"),
    ),
    "dcgan": Network(
        what="DCGAN's discriminator and generator as an autoencoder of CIFAR-10",
        build=dcgan,
        data=partial(Images, reconstruct),
        loss=F.mse_loss,
        own="DCGAN's: std 0.02",
        rule=dcgan_rule,
    ),
}


def losses(
    network: Network,
    start: Start,
    rate: float,
    data: Images | Text,
    seed: int,
    steps: int = STEPS,
) -> Losses:
    """Return the held-out loss of one run at EARLY steps and at the end."""
    torch.manual_seed(seed)
    model = network.build()
    inputs, _ = next(data.batches(seed))
    start(model, inputs)
    return train(model, rate, data, network.loss, seed, steps)


def search(network: Network, start: Start, data: Images | Text) -> dict[float, float]:
    """Return the mean loss at the end by rate, on a grid whose best rate is inside it."""
    means: dict[float, float] = {}
    rates = list(RATES)
    while rates:
        for rate in rates:
            runs = [losses(network, start, rate, data, seed, SHORT) for seed in SEARCHED]
            means[rate] = fmean(end for _, end in runs)
            say(f"rate {rate:.2g}: loss {means[rate]:.4g}")
        best, low, high = min(means, key=means.__getitem__), min(means), max(means)
        rates = []
        if best == low:
            rates.append(low / STEP)
        if best == high:
            rates.append(high * STEP)
    return means


def measured(name: str) -> Results:
    """Return of each start its search, and the losses of every judged seed."""
    network = NETWORKS[name]
    data = network.data()
    starts: Results = {}
    for label, start in network.starts().items():
        say(f"{name}, {label}")
        means = search(network, start, data)
        rate = min(means, key=means.__getitem__)
        runs = [losses(network, start, rate, data, seed) for seed in JUDGED]
        searched = {f"{key:.3g}": value for key, value in sorted(means.items())}
        starts[label] = {"search": searched, "rate": rate, "runs": runs}
    return {"what": network.what, "starts": starts}


def main() -> None:
    """Measure the networks of the command line, or all, and write the page."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("network", nargs="*", help="networks to measure again (default: all)")
    options = parser.parse_args()

    with cli_errors():
        for name in options.network:
            if name not in NETWORKS:
                raise InputError(f"{name} is not known; choose from: {', '.join(NETWORKS)}")

        results = read_numbers()
        for name in options.network or NETWORKS:
            results[name] = measured(name)
            ordered = {name: results[name] for name in NETWORKS if name in results}
            write_text(NUMBERS, json.dumps(ordered, indent=1) + "\n")
        write_page()


if __name__ == "__main__":
    main()
