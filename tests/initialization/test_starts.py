"""Warnings about signal, gradient and correlation: none for starts that train, one for starts at
fault.

Both lists were written down before the limits were tried on them. `test_starts_learn_as_listed`
trains every network: 200 steps of Adam at the best of three rates."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers import initialize, initializers
from rectifiers.initialization.report import InitReport

WIDTH, BATCH, STEPS, RATES = 64, 64, 200, (3e-4, 1e-3, 3e-3)
LEARNED = 0.8  # of the loss of guessing
Data = Callable[[int], tuple[Tensor, Tensor]]


def images(seed: int) -> tuple[Tensor, Tensor]:
    """Noisy images of ten classes, [BATCH, 1, 8, 8], and the classes."""
    templates = torch.randn(10, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    draws = torch.Generator().manual_seed(1000 + seed)
    classes = torch.randint(10, (BATCH,), generator=draws)
    noise = torch.randn(BATCH, 1, 8, 8, generator=draws)
    return templates[classes] + 0.5 * noise, classes


def vectors(seed: int) -> tuple[Tensor, Tensor]:
    x, classes = images(seed)
    return x.flatten(1), classes


def tokens(seed: int) -> tuple[Tensor, Tensor]:
    """The pixels of an image as numbers from 0 to 15."""
    x, classes = vectors(seed)
    return (4 * x + 8).clamp(0, 15).long(), classes


def codes(seed: int) -> tuple[Tensor, Tensor]:
    """Codes of the classes, [BATCH, 16, 1, 1], and their images, between -1 and 1."""
    table = torch.randn(10, 16, 1, 1, generator=torch.Generator().manual_seed(1))
    templates = torch.randn(10, 1, 16, 16, generator=torch.Generator().manual_seed(0)).tanh()
    _, classes = images(seed)
    return table[classes], templates[classes]


def noisy(seed: int) -> tuple[Tensor, Tensor]:
    x, _ = images(seed)
    return x, x - x.mean()


def chain(
    activation: Callable[[], nn.Module],
    depth: int,
    norm: Callable[[int], nn.Module] | None = None,
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth - 1):
        layers.append(nn.Linear(WIDTH, WIDTH))
        layers += [norm(WIDTH)] if norm else []
        layers.append(activation())
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def conv_chain(activation: Callable[[], nn.Module], depth: int, pool: int = 1) -> nn.Sequential:
    layers: list[nn.Module] = [nn.MaxPool2d(pool)]
    channels = 1
    for _ in range(depth - 1):
        layers += [nn.Conv2d(channels, 16, 3, padding=1), activation()]
        channels = 16
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * (8 // pool) ** 2, 10))


class Residual(nn.Module):
    """x + branch(x)."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def resnet(blocks: int, *, norm: bool) -> nn.Sequential:
    def block() -> Iterator[nn.Module]:
        for _ in range(2):
            if norm:
                yield nn.BatchNorm2d(16)
            yield nn.ReLU()
            yield nn.Conv2d(16, 16, 3, padding=1)

    body = [Residual(*block()) for _ in range(blocks)]
    head = (nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), *body, *head)


class Attention(nn.Module):
    """Self-attention of four heads, [N, tokens, 32]."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.is_causal = nn.Linear(32, 96), nn.Linear(32, 32), is_causal

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


def transformer(blocks: int, *, is_causal: bool) -> list[nn.Module]:
    def perceptron() -> tuple[nn.Module, ...]:
        return nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)

    return [
        part
        for _ in range(blocks)
        for part in (
            Residual(nn.LayerNorm(32), Attention(is_causal=is_causal)),
            Residual(nn.LayerNorm(32), *perceptron()),
        )
    ]


class Apply(nn.Module):
    """A function, as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Places(nn.Module):
    """Adds learned positions of 16 or 64 tokens."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(count, 32))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


def vit() -> nn.Sequential:
    patches = (nn.Conv2d(1, 32, 2, stride=2), Apply(lambda x: x.flatten(2).transpose(1, 2)))
    head = (nn.LayerNorm(32), Apply(lambda x: x.mean(1)), nn.Linear(32, 10))
    return nn.Sequential(*patches, Places(16), *transformer(4, is_causal=False), *head)


def gpt() -> nn.Sequential:
    head = (nn.LayerNorm(32), Apply(lambda x: x[:, -1]), nn.Linear(32, 10))
    return nn.Sequential(nn.Embedding(16, 32), Places(64), *transformer(4, is_causal=True), *head)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 16), (16, 32), (32, 64))
        self.down = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in sizes)
        self.rise = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in ((64, 32), (32, 16)))
        self.up = nn.ModuleList(nn.Conv2d(2 * o, o, 3, padding=1) for o in (32, 16))
        self.last = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = F.relu(layer(x if not kept else F.max_pool2d(x, 2)))
            kept.append(x)
        for rise, up, skip in zip(self.rise, self.up, kept[-2::-1], strict=True):
            x = F.relu(up(torch.cat([rise(x), skip], 1)))
        return self.last(x)


def generator() -> nn.Sequential:
    """DCGAN's: from 1 x 1 to 16 x 16."""
    return nn.Sequential(
        *(nn.ConvTranspose2d(16, 64, 4, 1, 0, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 1, 4, 2, 1, bias=False), nn.Tanh()),
    )


def discriminator() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(32, 10, 2, 1, 0, bias=False), nn.Flatten()),
    )


def mixer() -> nn.Sequential:
    def perceptron(size: int) -> tuple[nn.Module, ...]:
        return nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)

    turn = partial(Apply, lambda x: x.transpose(1, 2))
    blocks = (
        part
        for _ in range(4)
        for part in (
            Residual(nn.LayerNorm(32), turn(), *perceptron(16), turn()),
            Residual(nn.LayerNorm(32), *perceptron(32)),
        )
    )
    patches = (nn.Conv2d(1, 32, 2, stride=2), Apply(lambda x: x.flatten(2).transpose(1, 2)))
    head = (nn.LayerNorm(32), Apply(lambda x: x.mean(1)), nn.Linear(32, 10))
    return nn.Sequential(*patches, *blocks, *head)


class Recurrent(nn.Module):
    """An LSTM over the rows of an image, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.lstm = nn.Linear(8, 32), nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.first(x.squeeze(1)))[0][:, -1])


class Dense(nn.Module):
    """Every layer reads all maps before it."""

    def __init__(self, layers: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(16 + 8 * i, 8, 3, padding=1) for i in range(layers))
        self.head = nn.Linear((16 + 8 * layers) * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.stem(x)]
        for layer in self.layers:
            maps.append(layer(F.relu(torch.cat(maps, 1))))
        return self.head(F.max_pool2d(torch.cat(maps, 1), 2).flatten(1))


class Gated(nn.Module):
    """A gated perceptron, silu(gate(x)) * up(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(64, 96), nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu() ** 2


class Recycled(nn.Module):
    """One layer with SiLU, used thirty times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(30):
            x = F.silu(self.layer(x))
        return self.head(x)


def fixed(factor: float) -> initializers.Rule:
    """std = factor / sqrt(fan_in), whatever a layer reads."""

    def rule(weight: Tensor, layer: initializers.Layer, generator: torch.Generator) -> float:
        std = factor / math.sqrt(layer.fan_in)
        nn.init.normal_(weight, std=std, generator=generator)
        return std

    return rule


Start = tuple[Callable[[], nn.Module], Data, dict[str, Any]]
TRAIN: dict[str, Start] = {
    "relu 30": (lambda: chain(nn.ReLU, 30), vectors, {}),
    "tanh 20": (lambda: chain(nn.Tanh, 20), vectors, {}),
    "selu 20": (lambda: chain(nn.SELU, 20), vectors, {}),
    "prelu 30": (lambda: chain(nn.PReLU, 30), vectors, {}),
    "gelu 10": (lambda: chain(nn.GELU, 10), vectors, {}),
    "silu 50 empirical": (lambda: chain(nn.SiLU, 50), vectors, {"mode": "empirical"}),
    "sigmoid 3": (lambda: chain(nn.Sigmoid, 3), vectors, {}),
    "silu 20 layer norm": (lambda: chain(nn.SiLU, 20, nn.LayerNorm), vectors, {}),
    "relu 10 batch norm": (lambda: chain(nn.ReLU, 10, nn.BatchNorm1d), vectors, {}),
    "conv relu 8": (lambda: conv_chain(nn.ReLU, 8), images, {}),
    "resnet 16 norm": (lambda: resnet(8, norm=True), images, {}),
    "resnet 40 no norm": (lambda: resnet(20, norm=False), images, {}),
    "vit": (vit, images, {}),
    "gpt": (gpt, tokens, {}),
    "u-net": (UNet, noisy, {}),
    "dcgan generator": (generator, codes, {}),
    "dcgan discriminator": (discriminator, images, {}),
    "mlp-mixer": (mixer, images, {}),
    "lstm head": (Recurrent, images, {}),
    "densenet": (Dense, images, {}),
    "gated mlp": (
        lambda: nn.Sequential(*(Residual(Gated()) for _ in range(6)), nn.Linear(64, 10)),
        vectors,
        {},
    ),
}
FAULT: dict[str, Start] = {
    "sigmoid 30": (lambda: chain(nn.Sigmoid, 30), vectors, {}),
    "sigmoid 100": (lambda: chain(nn.Sigmoid, 100), vectors, {}),
    "softplus 30": (lambda: chain(nn.Softplus, 30), vectors, {}),
    "softplus 50 empirical": (lambda: chain(nn.Softplus, 50), vectors, {"mode": "empirical"}),
    "logsigmoid 50": (lambda: chain(nn.LogSigmoid, 50), vectors, {}),
    "conv sigmoid 20": (lambda: conv_chain(nn.Sigmoid, 20), images, {}),
    "gelu 60": (lambda: chain(nn.GELU, 60), vectors, {}),
    "silu 60": (lambda: chain(nn.SiLU, 60), vectors, {}),
    "hardswish 60": (lambda: chain(nn.Hardswish, 60), vectors, {}),
    "relu 60 batch norm": (lambda: chain(nn.ReLU, 60, nn.BatchNorm1d), vectors, {}),
    "tanh 100 batch norm": (lambda: chain(nn.Tanh, 100, nn.BatchNorm1d), vectors, {}),
    "gelu 80 batch norm": (lambda: chain(nn.GELU, 80, nn.BatchNorm1d), vectors, {}),
    "squared relu 30": (lambda: chain(Squared, 30), vectors, {}),
    "relu 30 std 0.01": (lambda: chain(nn.ReLU, 30), vectors, {"init": "gaussian"}),
    "relu 30 xavier": (lambda: chain(nn.ReLU, 30), vectors, {"init": "xavier"}),
    "tanh 20 std / 10": (
        lambda: chain(nn.Tanh, 20),
        vectors,
        {"init": fixed(0.1)},
    ),
    "relu 30 std x 2": (
        lambda: chain(nn.ReLU, 30),
        vectors,
        {"init": fixed(2 * math.sqrt(2))},
    ),
    "tanh 50 std x 4": (
        lambda: chain(nn.Tanh, 50),
        vectors,
        {"init": fixed(6.0)},
    ),
    "resnet 80 without shares": (
        lambda: resnet(40, norm=False),
        images,
        {"init": fixed(math.sqrt(2))},
    ),
    "conv relu 20 on 1 x 1": (lambda: conv_chain(nn.ReLU, 20, pool=8), images, {}),
    "recycled silu": (Recycled, vectors, {}),
}


def started(start: Start) -> tuple[nn.Module, Data, InitReport]:
    """Return the network as it starts, its data, and what `initialize` says."""
    build, data, settings = start
    torch.manual_seed(0)
    model = build()
    return model, data, initialize(model, data(0)[0], **settings)


def learned(start: Start, rate: float) -> float:
    """Return the loss after training, as a part of what guessing has."""
    model, data, _ = started(start)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=rate)
    losses = []
    for step in range(STEPS):
        x, target = data(step)
        out = model(x)
        if target.is_floating_point():
            guess = float(target.var(0, correction=0).mean())
            loss = F.mse_loss(out, target)
        else:
            guess, loss = math.log(10), F.cross_entropy(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()) / guess)
    mean = sum(losses[-20:]) / 20
    return mean if math.isfinite(mean) else math.inf


# Adam, whose steps do not shrink with the gradient, gets these off the ground all the same.
ADAM_LEARNS = {
    *("softplus 30", "relu 30 xavier", "hardswish 60", "tanh 100 batch norm"),
    "resnet 80 without shares",
}


@pytest.mark.parametrize("name", TRAIN)
def test_starts_that_train_cause_no_warning(name: str) -> None:
    assert not started(TRAIN[name])[2].start_warnings


@pytest.mark.parametrize("name", FAULT)
def test_starts_at_fault_cause_a_warning(name: str) -> None:
    assert started(FAULT[name])[2].start_warnings


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRAIN, *FAULT])
def test_starts_learn_as_listed(name: str) -> None:
    start = TRAIN.get(name) or FAULT[name]
    is_learned = any(learned(start, rate) < LEARNED for rate in RATES)
    assert is_learned is (name in TRAIN or name in ADAM_LEARNS)
