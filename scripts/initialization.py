"""How three initialisations carry the signal through six networks of torchvision:
results/INITIALIZATION.md.

    python scripts/initialization.py                   all of them, some twenty minutes on one core
    python scripts/initialization.py resnet18 vgg16_bn again, beside what is there
    python scripts/initialization.py --check           exit with 1 where the page is not what
                                                       initialization.json says

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

import torch
import torchvision
from torch import Tensor, nn

from rectifiers import PReLU, initialize
from rectifiers.initialization import table
from rectifiers.results.documents import write_or_check
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.programs import cli_errors

RESULTS = Path(__file__).parents[1] / "results"
KEPT, PAGE = RESULTS / "initialization.json", RESULTS / "INITIALIZATION.md"
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
REPLACED = (nn.ReLU, nn.GELU, nn.Hardswish)


def torch_default(model: nn.Module, images: Tensor, seed: int) -> None:
    """What torchvision's constructor leaves."""


def kaiming(model: nn.Module, images: Tensor, seed: int) -> None:
    """He's gain for ReLU, the square root of 2, everywhere."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and not any(word in name for word in ("embedding", "scale", "token")):
            nn.init.kaiming_normal_(weight)


def ours(model: nn.Module, images: Tensor, seed: int) -> None:
    """`rectifiers.initialize`."""
    initialize(model, example_input=images, seed=seed)


METHODS = {"torch's default": torch_default, "Kaiming, gain √2": kaiming, "rectifiers": ours}


def build(name: str, activation: str, seed: int) -> nn.Module:
    """Return a network with another activation in every place, as its constructor leaves the
    weights."""
    torch.manual_seed(seed)
    model: nn.Module = torchvision.models.get_model(name, weights=None)
    for place, module in list(model.named_modules()):
        if isinstance(module, REPLACED):
            parent, _, last = place.rpartition(".")
            setattr(model.get_submodule(parent), last, ACTIVATIONS[activation]())
    for module in model.modules():
        if "Dropout" in type(module).__name__ or "StochasticDepth" in type(module).__name__:
            module.p = 0.0
    return model.train()


@torch.no_grad()
def measure(name: str, activation: str, method: str, seed: int) -> list[float]:
    """Return the mean squares of the last block's input, of its output, and of the scores."""
    block, px = BLOCKS[name]
    model = build(name, activation, seed)
    images = torch.randn(IMAGES, 3, px, px, generator=torch.Generator().manual_seed(seed))
    METHODS[method](model, images, seed)
    signals: list[Tensor] = []
    model.get_submodule(block).register_forward_hook(
        lambda _, inputs, output: signals.extend([inputs[0], output])
    )
    signals.append(model(images))
    return [float(x.double().square().mean()) for x in signals]


def main(names: list[str]) -> None:
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in names:
        results[name] = []
        for activation, method in product(ACTIVATIONS, METHODS):
            print(f"{name}, {activation}, {method}", file=sys.stderr)
            values = [measure(name, activation, method, seed) for seed in range(SEEDS)]
            results[name].append({"activation": activation, "init": method, "values": values})
        write_text(KEPT, json.dumps(results, indent=1) + "\n")
        write_text(PAGE, page(results))
    print(page(results))


def page(results: dict[str, list[dict]]) -> str:
    """Return the table of the networks that were measured."""
    lines = []
    for name in (name for name in BLOCKS if name in results):
        for row in results[name]:
            columns = list(zip(*row["values"], strict=True))
            cells = [f"{mean(column):.3g} ± {stdev(column):.1g}" for column in columns]
            lines.append((name, row["activation"], row["init"], *cells))
    head = ("network", "activation", "initialisation", "into the last block", "out of it", "scores")
    return (
        "# What initialisation does to the signal of six networks\n\n"
        f"Mean squares, mean ± standard deviation over {SEEDS} seeds, of {IMAGES} standard "
        "normal images, in training\n"
        "mode without dropout: normalisation uses the batch. Made by `python "
        "scripts/initialization.py`.\n\n"
        f"{table(head, lines)}\n"
    )


if __name__ == "__main__":
    names = sys.argv[1:]
    with cli_errors():
        if names == ["--check"]:
            write_or_check(
                {PAGE: page(json.loads(KEPT.read_text()))}, True, "python scripts/initialization.py"
            )
        elif unknown := [name for name in names if name not in BLOCKS]:
            raise InputError(f"{unknown[0]} is not known; choose from: {', '.join(BLOCKS)}")
        else:
            main(names or list(BLOCKS))
