"""Where the time of a training step goes: every layer's share of what the processor can do at most.

`python scripts/bench/layers.py [rounds]` prints tables and writes results/bench/<machine>.json. The
steps are those of `make train` (digits) and of the 14-layer network on photos of 224 px, as
`trainer=cpu` makes them. A layer is timed on the numbers that it meets in the step, on one thread
and by CPU time; whole steps also on two threads, by the clock."""

import copy
import os
import time
from functools import partial
from typing import Any

import harness
import roof
import torch
from harness import Way, interleave, medians, spread_of
from torch import Tensor, nn

from rectifiers.cli.composition import composed
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import Network

STEPS = {  # by title: what is chosen, classes, channels and batch
    "digits, 32 px, width 0.25": (("activation=prelu", "init=he"), 10, 1, 128),
    "small14, 224 px": (("data.width=1", "data.resize_px=256", "data.crop_px=224"), 1000, 3, 64),
}


def inputs_of_layers(network: Network, x: Tensor) -> dict[str, Tensor]:
    """Return what each layer reads in a training step, by its name in the chain."""
    found: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        found[name] = given[0].detach()

    layers = {**dict(network.trunk.named_children()), **dict(network.head.named_children())}
    handles = [layer.register_forward_hook(partial(keep, name)) for name, layer in layers.items()]
    network.train()(x)
    for handle in handles:
        handle.remove()
    return found


def parts_of(layer: nn.Module, x: Tensor, *, is_first: bool) -> dict[str, Way]:
    """Return the layer's forward pass and its gradients; those of a layer without products are all
    "by input"."""

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    x, weights = (
        x.clone(memory_format=torch.preserve_format).requires_grad_(),
        list(layer.parameters()),
    )

    def gradient(inputs: list[Tensor]) -> Way:
        # a graph of these inputs alone: a function of ours makes all gradients that a graph needs
        leaves = [x, *weights]
        for leaf in leaves:
            leaf.requires_grad_(any(leaf is each for each in inputs))
        y = layer(x)
        for leaf in leaves:
            leaf.requires_grad_()
        return partial(
            torch.autograd.grad, y, inputs, grad_outputs=torch.randn_like(y), retain_graph=True
        )

    if not isinstance(layer, nn.Conv2d | nn.Linear):
        return {"forward": forward, "by input": gradient([x, *weights])}
    by_input = {} if is_first else {"by input": gradient([x])}
    return {"forward": forward, **by_input, "by weight": gradient(weights)}


def step_of(name: str) -> tuple[Network, Way, Tensor, float]:
    """Return a network, its training step, a batch of noise, and the operations of the products of
    a step."""
    choices, classes, channels, batch = STEPS[name]
    config = composed(list(choices))
    px = config.data.crop_px
    network = Network(config.model.layers(classes), PReLU, channels=channels, input_px=px)
    network.to(memory_format=torch.channels_last)
    optimizer = harness.sgd(network, fused=True)
    step = harness.training_step(
        network, optimizer, batch, image=(channels, px, px), classes=classes
    )
    count = 2.0 * batch * (3 * network.multiply_adds - network.shapes[0].multiply_adds)
    return network, step, torch.randn(batch, channels, px, px), count


def update_of(network: Network) -> Way:
    """Return SGD's part of a step, on a copy, because a step gives up the gradients."""
    network = copy.deepcopy(network)
    for weight in network.parameters():
        weight.grad = torch.randn_like(weight)
    return harness.sgd(network, fused=True).step


def shares(name: str, rounds: int) -> dict[str, Any]:
    """Return the time of one step and of its layers, and the rates of products, on one thread."""
    network, step, x, count = step_of(name)
    reads = inputs_of_layers(network, x)
    layers = {**dict(network.trunk.named_children()), **dict(network.head.named_children())}
    first = network.shapes[0].row.name
    parts = {
        layer: parts_of(module, reads[layer], is_first=layer == first)
        for layer, module in layers.items()
    }
    tried = roof.attempts("float32")
    ways = {f"{layer}: {part}": way for layer, each in parts.items() for part, way in each.items()}
    ways |= {"step": step, "SGD": update_of(network)} | {
        attempt: way for attempt, (way, _) in tried.items()
    }
    seconds = interleave(ways, rounds)
    middle, top = medians(seconds), max(roof.rates(seconds, tried).values())
    adds = {shape.row.name: 2.0 * len(x) * shape.multiply_adds for shape in network.shapes}
    rows = [
        {
            "layer": layer,
            "reads": "x".join(map(str, reads[layer].shape[1:])),
            "gflop": adds.get(layer, 0.0) / 1e9,
            "ms": {part: 1e3 * middle[f"{layer}: {part}"] for part in each},
            "share": {
                part: adds.get(layer, 0.0) / middle[f"{layer}: {part}"] / top for part in each
            },
        }
        for layer, each in parts.items()
    ]
    return {
        "batch": len(x),
        "layers": rows,
        "step_ms": 1e3 * middle["step"],
        "sgd_ms": 1e3 * middle["SGD"],
        "rest_ms": 1e3
        * (2 * middle["step"] - sum(middle[way] for way in ways if way not in tried)),
        "gflop": count / 1e9,
        "gflops": {attempt: rate / 1e9 for attempt, rate in roof.rates(seconds, tried).items()},
        "share": spread_of([count / a / top for a in seconds["step"]]),
    }


def on_threads(name: str, threads: int, rounds: int) -> dict[str, float]:
    """Return a step's share of the roof with that many threads, by the clock."""
    torch.set_num_threads(threads)
    _, step, _, count = step_of(name)
    tried = roof.attempts("float32", threads)
    seconds = interleave(
        {"step": step} | {attempt: way for attempt, (way, _) in tried.items()},
        rounds,
        time.perf_counter,
    )
    torch.set_num_threads(1)
    return spread_of(
        [count / a / max(roof.rates(seconds, tried).values()) for a in seconds["step"]]
    )


def main(rounds: int) -> dict[str, Any]:
    is_idle = os.getloadavg()[0] < 0.5  # other work would take a core of the two
    return {
        "steps": {
            name: shares(name, rounds)
            | {"two_threads": on_threads(name, 2, rounds) if is_idle else None}
            for name in STEPS
        }
    }


if __name__ == "__main__":
    harness.measure(main, __doc__, rounds=9)
