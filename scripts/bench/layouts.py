"""The order of maps in memory: a training step and a forward pass with channels last beside NCHW.

`python scripts/bench/layouts.py [rounds]` prints a table and writes results/bench/<machine>.json.
Networks as the tables and claims have them, PReLU, float32, fused SGD, noise for images, one
thread, CPU time. They say whether `channels_last=true`, which trainer=cpu has, is right for
a network on this processor."""

from typing import Any

import torch
from harness import Way, interleave, measure, medians, ratios, sgd, training_step
from torch import nn

from rectifiers.cli.composition import composed
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import Network
from rectifiers.training.functions import import_function

NETWORKS = {  # by title: what is chosen, channels, classes and batch
    "small14, digits of 32 px, width 0.25": (("model=small14",), 1, 10, 128),
    "small30, digits of 32 px, width 0.25": (("model=small30",), 1, 10, 128),
    "small14_32, CIFAR-10": (("model=small14_32", "data=cifar10"), 3, 10, 128),
    "resnet20, CIFAR-10": (("model=resnet20", "data=cifar10"), 3, 10, 128),
    "small14, 224 px": (("model=small14", "data=imagenet"), 3, 1000, 8),
    "VGG-19, 224 px": (("model=vgg19", "data=imagenet"), 3, 1000, 8),
}
LAYOUTS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}


def ways_of(name: str) -> dict[str, Way]:
    """Return a step and a forward pass of a network in each layout."""
    choices, channels, classes, batch = NETWORKS[name]
    config = composed(list(choices))
    px = config.data.crop_px
    ways: dict[str, Way] = {}
    for layout, memory in LAYOUTS.items():
        if (target := config.model.builder()) is None:
            network: nn.Module = Network(
                config.model.layers(classes), PReLU, channels=channels, input_px=px
            )
        else:
            network = import_function("model", target)(
                PReLU, classes=classes, channels=channels, input_px=px
            )
        network.to(memory_format=memory)
        x = torch.randn(batch, channels, px, px)

        def forward(network: nn.Module = network, x: torch.Tensor = x) -> None:
            with torch.no_grad():
                network(x)

        ways[f"forward, {layout}"] = forward
        ways[f"step, {layout}"] = training_step(
            network, sgd(network, fused=True), batch, image=(channels, px, px), classes=classes
        )
    return ways


def main(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (*_, batch) in NETWORKS.items():
        seconds = interleave(ways_of(name), rounds)
        found[name] = {
            "batch": batch,
            "ms_an_image": medians(seconds, 1e3 / batch),
            "times": {
                part: ratios(seconds, f"{part}, channels last", f"{part}, NCHW")
                for part in ("step", "forward")
            },
        }
    return {"networks": found}


if __name__ == "__main__":
    measure(main, __doc__, rounds=7)
