"""How three initialisations carry the signal through six networks of torchvision:
results/INITIALIZATION.md.

    python scripts/initialization.py                   all of them, some twenty minutes on one core
    python scripts/initialization.py resnet18 vgg16_bn again, beside what is there
    python scripts/initialization.py --check           exit with 1 where the page is stale

Every ReLU, GELU and Hardswish of a network is replaced by PReLU or by GELU. The mean square of what
enters its last block, of what leaves it, and of the scores is measured on standard normal images,
in training mode without dropout, over 8 seeds.
"""

import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from rectifiers import PReLU, initialize
from rectifiers.report import table
from rectifiers.results.documents import write_or_check
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text

RESULTS = Path(__file__).parents[1] / "results"
NUMBERS, PAGE = RESULTS / "initialization.json", RESULTS / "INITIALIZATION.md"
SEEDS, IMAGES = 8, 8
BLOCKS = {  # each network with its last block and the side of its images, px
    "resnet18": ("layer4.1", 64),
    "vgg16_bn": ("features.40", 64),
    "mobilenet_v3_small": ("features.11", 64),
    "convnext_tiny": ("features.7.2", 64),
    "densenet121": ("features.denseblock4", 64),
    "vit_b_16": ("encoder.layers.encoder_layer_11", 224),
}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"PReLU": lambda: PReLU(1), "GELU": nn.GELU}
METHODS = ("torch's default", "Kaiming, gain √2", "rectifiers")


def build(name: str, activation: str, seed: int) -> nn.Module:
    """Return a network with another activation in every place and torchvision's own weights."""
    torch.manual_seed(seed)
    model: nn.Module = torchvision.models.get_model(name, weights=None)
    for place, module in list(model.named_modules()):
        if isinstance(module, nn.ReLU | nn.GELU | nn.Hardswish):
            parent, _, last = place.rpartition(".")
            setattr(model.get_submodule(parent), last, ACTIVATIONS[activation]())
        elif "Dropout" in type(module).__name__ or "StochasticDepth" in type(module).__name__:
            module.p = 0.0
    return model.train()


@torch.no_grad()
def measure(name: str, activation: str, method: str, seed: int) -> list[float]:
    """Return the mean squares of the last block's input, of its output, and of the scores."""
    block, px = BLOCKS[name]
    model = build(name, activation, seed)
    images = torch.randn(IMAGES, 3, px, px, generator=torch.Generator().manual_seed(seed))
    if method == "rectifiers":
        initialize(model, example_input=images, seed=seed)
    elif method != METHODS[0]:  # He's gain for ReLU everywhere
        for key, weight in model.named_parameters():
            if weight.dim() > 1 and not any(
                word in key for word in ("embedding", "scale", "token")
            ):
                nn.init.kaiming_normal_(weight)
    signals: list[Tensor] = []
    model.get_submodule(block).register_forward_hook(
        lambda _, inputs, output: signals.extend([inputs[0], output])
    )
    signals.append(model(images))
    return [float(x.double().square().mean()) for x in signals]


def page(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of the networks that were measured."""
    lines = []
    for name in (name for name in BLOCKS if name in results):
        for row in results[name]:
            columns = zip(*row["values"], strict=True)
            cells = [f"{mean(column):.3g} ± {stdev(column):.1g}" for column in columns]
            lines.append((name, row["activation"], row["init"], *cells))
    head = ("network", "activation", "initialisation", "into the last block", "out of it", "scores")
    return (
        "# What initialisation does to the signal of six networks\n\n"
        f"Mean squares, mean ± standard deviation over {SEEDS} seeds, of {IMAGES} standard "
        "normal images, in training\nmode without dropout: normalisation uses the batch. Made by "
        f"`python scripts/initialization.py`.\n\n{table(head, lines)}\n"
    )


def main(arguments: list[str]) -> None:
    check = arguments == ["--check"]
    names = [] if check else arguments or list(BLOCKS)
    if unknown := [name for name in names if name not in BLOCKS]:
        raise InputError(f"{unknown[0]} is not known; choose from: {', '.join(BLOCKS)}")
    results = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for name in names:
        results[name] = []
        for activation, method in product(ACTIVATIONS, METHODS):
            print(f"{name}, {activation}, {method}", file=sys.stderr)
            values = [measure(name, activation, method, seed) for seed in range(SEEDS)]
            results[name].append({"activation": activation, "init": method, "values": values})
        write_text(NUMBERS, json.dumps(results, indent=1) + "\n")
    write_or_check({PAGE: page(results)}, check, "python scripts/initialization.py")


if __name__ == "__main__":
    with cli_errors():
        main(sys.argv[1:])
