"""The signal through ResNet-56 without normalisation, by three initialisations:
results/RESIDUAL.md.

    python scripts/residual.py              half a minute on one core
    python scripts/residual.py --check      exit with 1 where the page is not what residual.json
                                            says

The mean square of what leaves some blocks, and of the scores, on standard normal images of 32 px,
over 8 seeds.
"""

import json
import sys
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import Tensor, nn

from rectifiers import activations, initialize
from rectifiers.nn.initialization import table
from rectifiers.nn.networks.residual import resnet
from rectifiers.results.generated import write_or_check
from rectifiers.runtime.files import write_text
from rectifiers.runtime.programs import one_sentence

RESULTS = Path(__file__).parents[1] / "results"
KEPT, PAGE = RESULTS / "residual.json", RESULTS / "RESIDUAL.md"
SEEDS, IMAGES, BLOCKS = 8, 8, 9  # blocks: in each of three stages
MEASURED = ("act1", "stage1_1", "stage1_9", "stage2_9", "stage3_9", "scores")


def torch_default(model: nn.Module, images: Tensor, seed: int) -> None:
    """What the layers' constructors leave."""


def without(model: nn.Module, images: Tensor, seed: int) -> None:
    """He's std in every layer, as if there were no sums; biases are 0."""
    for name, value in model.named_parameters():
        nn.init.kaiming_normal_(value) if name.endswith("weight") else nn.init.zeros_(value)


def with_sums(model: nn.Module, images: Tensor, seed: int) -> None:
    """`rectifiers.initialize`, which gives the last layer of each branch 1/K of the variance, K
    sums on the way."""
    initialize(model, example_input=images, seed=seed)


METHODS = {"torch's default": torch_default, "He, sums left out": without, "rectifiers": with_sums}


@torch.no_grad()
def measure(model: nn.Module, images: Tensor) -> list[float]:
    """Return the mean square of what leaves each of MEASURED."""
    found: dict[str, float] = {}
    for name, module in model.named_children():
        images = module(images)
        found[name] = float(images.double().square().mean())
    found["scores"] = found[name]
    return [found[name] for name in MEASURED]


def main() -> dict[str, list[list[float]]]:
    """Return what was measured by each method with each seed, and keep it."""
    results: dict[str, list[list[float]]] = {}
    for method, fill in METHODS.items():
        results[method] = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model = resnet(activations.relu, classes=10, channels=3, input_px=32, blocks=BLOCKS)
            images = torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
            fill(model, images, seed)
            results[method].append(measure(model, images))
    write_text(KEPT, json.dumps(results, indent=1) + "\n")
    return results


def page(results: dict[str, list[list[float]]]) -> str:
    """Return the table of what was measured."""
    rows = [
        (
            method,
            *(f"{mean(column):.2g} ± {stdev(column):.1g}" for column in zip(*values, strict=True)),
        )
        for method, values in results.items()
    ]
    return (
        "# The signal through ResNet-56 without normalisation\n\n"
        f"Mean squares, mean ± standard deviation over {SEEDS} seeds, of {IMAGES} standard "
        "normal images of 32 px,\n"
        "with ReLU. Made by `python "
        f"scripts/residual.py`.\n\n{table(('initialisation', *MEASURED), rows)}\n"
    )


if __name__ == "__main__":
    check = sys.argv[1:] == ["--check"]
    with one_sentence():
        write_or_check(
            {PAGE: page(json.loads(KEPT.read_text()) if check else main())},
            check,
            "python scripts/residual.py",
        )
