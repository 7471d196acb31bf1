"""Initialisation beside other libraries: results/LIBRARIES.md, from results/libraries.json.

    python studies/libraries.py                    everything: twenty minutes on one core
    python studies/libraries.py "50 layers, SiLU"  some networks; the others keep their numbers

Small networks of different kinds are initialised in eight ways, and trained for 200 steps of Adam
on handwritten digits of 8 px, with three seeds each. The program needs AnyInit, which is not a
dependency of this project: `pip install anyinit==0.4.0`."""

import copy
import importlib.util
import math
import time
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from libraries_page import BATCH, RATE, SEEDS, STEPS, page
from measured_page import Results, measure_main
from sklearn.datasets import load_digits
from torch import Tensor, nn

from rectifiers import activations, initialize
from rectifiers.parameters import LAYERS
from rectifiers.runtime.console import say
from rectifiers.runtime.errors import InputError

TRAINED = 1300  # images; the other 497 are for the test
DEPTH, WIDTH, CHANNELS = 50, 64, 16


class Bent(nn.Module):
    """An activation of a user's own."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.7 * x)


class Residual(nn.Module):
    """x + conv(relu(conv(x))), without normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(x)))


class Dense(nn.Module):
    """x beside gelu(conv(x))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, F.gelu(self.conv(x))], 1)


def chain(activation: Callable[[], nn.Module]) -> nn.Module:
    sizes = [(64, WIDTH), *[(WIDTH, WIDTH)] * (DEPTH - 2)]
    layers = [m for size in sizes for m in (nn.Linear(*size), activation())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(WIDTH, 10))


def maps(*blocks: nn.Module, channels: int = CHANNELS) -> nn.Module:
    """Return convolutional blocks between a first convolution and scores."""
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3, 2, 1), *blocks, *head)


def plain() -> nn.Module:
    layers = [(nn.GELU(), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)) for _ in range(19)]
    return maps(*(m for pair in layers for m in pair), nn.GELU())


def resnet() -> nn.Module:
    from timm.models.resnet import BasicBlock, ResNet

    blocks, channels = (1, 1, 1, 1), (16, 32, 64, 128)
    return ResNet(BasicBlock, blocks, 10, in_chans=1, channels=channels, stem_width=16)  # type: ignore[arg-type]  # their annotation


def transformer() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(8, 2, in_chans=1, num_classes=10, embed_dim=32, depth=6, num_heads=4)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "50 layers, ReLU": partial(chain, nn.ReLU),
    "50 layers, SiLU": partial(chain, nn.SiLU),
    "50 layers, own activation": partial(chain, Bent),
    "20 convolutions, GELU": plain,
    "20 residual blocks, no norm": lambda: maps(*(Residual() for _ in range(20))),
    "12 concatenations, GELU": lambda: maps(
        *(Dense(CHANNELS + 8 * n) for n in range(12)), channels=CHANNELS + 8 * 12
    ),
    "ResNet with batch norm (timm)": resnet,
    "transformer (timm)": transformer,
}
SHAPED = {  # the networks that deep kernel shaping, or its form for rectifiers, is for
    "50 layers, ReLU": partial(activations.tat_leaky_relu, WIDTH, depth=DEPTH - 1),
    "50 layers, SiLU": partial(activations.dks, WIDTH, function="silu", depth=DEPTH - 1),
}


def by_default(model: nn.Module, x: Tensor) -> None:
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()


def by_timm(model: Any, x: Tensor) -> None:
    if type(model).__module__.startswith("timm"):
        model.init_weights()
    else:
        builder = importlib.import_module("timm.models._efficientnet_builder")
        builder.efficientnet_init_weights(model)


def by_anyinit(model: nn.Module, x: Tensor, mode: str) -> None:
    anyinit = importlib.import_module("anyinit")
    if "bent" not in anyinit.registered_activations():
        anyinit.register_activation(Bent)
    anyinit.initialize(model, mode, x if mode == "empirical" else tuple(x.shape))


STARTS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "torch's default": by_default,
    "timm": by_timm,
    "AnyInit, analytic": partial(by_anyinit, mode="analytic"),
    "AnyInit, empirical": partial(by_anyinit, mode="empirical"),
    "LSUV": partial(initialize, init="lsuv"),
    "DKS or TAT": initialize,
    "rectifiers": initialize,
    "rectifiers, empirical": partial(initialize, mode="empirical"),
}


def digits(seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return images [N, 1, 8, 8] with mean 0 and mean square 1, and labels, each for training and
    for the test."""
    images, labels = map(torch.from_numpy, load_digits(return_X_y=True))
    x = images.float().view(-1, 1, 8, 8)
    x = (x - x.mean()) / x.std()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    parts = order[:TRAINED], order[TRAINED:]
    return [x[part] for part in parts], [labels[part] for part in parts]


def weights(model: nn.Module) -> list[Tensor]:
    return [m.weight for m in model.modules() if isinstance(m, LAYERS)]


def started(name: str, start: str, x: Tensor, seed: int) -> tuple[nn.Module, float, int]:
    """Return a network with its first weights, the CPU seconds that they took, and how many of its
    layers got them."""
    torch.manual_seed(seed)
    model = chain(SHAPED[name]) if start == "DKS or TAT" else NETWORKS[name]()
    before = [weight.detach().clone() for weight in weights(model)]

    began = time.process_time()
    STARTS[start](model.train(), x)
    seconds = time.process_time() - began

    pairs = zip(weights(model), before, strict=True)
    return model, seconds, sum(not torch.equal(now, then) for now, then in pairs)


def measure(name: str, start: str, seed: int) -> dict[str, Any]:
    """Return what one start makes of a network: its signal, its gradients, and where training
    takes it."""
    images, labels = digits(seed)
    batch, answers = images[0][-128:], labels[0][-128:]
    model, seconds, filled = started(name, start, batch, seed)
    trained = train(copy.deepcopy(model), images, labels)

    y = model(batch)
    F.cross_entropy(y, answers).backward()
    ends = weights(model)[0].grad, weights(model)[-1].grad
    first, last = (math.nan if grad is None else float(grad.norm()) for grad in ends)
    return {
        "second": float(y.detach().double().square().mean()),
        "gradient_ratio": first / last if last else math.nan,
        "cpu_s": seconds,
        "filled": filled,
        "layers": len(weights(model)),
        **trained,
    }


def train(model: nn.Module, images: list[Tensor], labels: list[Tensor]) -> dict[str, float]:
    """Train a network; return its loss of the last 20 steps, and its error of the test."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=RATE, fused=True), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        rows = torch.randint(TRAINED, (BATCH,), generator=generator)
        loss = F.cross_entropy(model(images[0][rows]), labels[0][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    with torch.no_grad():
        wrong = model.eval()(images[1]).argmax(1) != labels[1]
    return {"loss": fmean(losses[-20:]), "test_error_pct": 100 * float(wrong.double().mean())}


def measured(name: str) -> Results:
    """Return what each start makes of a network, for every seed."""
    if importlib.util.find_spec("anyinit") is None:
        raise InputError("AnyInit is not installed; call pip install anyinit==0.4.0")
    results = {}
    for start in STARTS:
        if start != "DKS or TAT" or name in SHAPED:
            say(f"{name}, {start}")
            results[start] = [measure(name, start, seed) for seed in range(SEEDS)]
    return results


if __name__ == "__main__":
    measure_main(__doc__, NETWORKS, measured, page, "libraries")
