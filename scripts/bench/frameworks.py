"""A training step of VGG-19 with PReLU here and as others would write it: torchvision, timm, Keras
on JAX.

`python scripts/bench/frameworks.py [rounds] [batch]` prints a table and writes
results/bench/<machine>.json. The same layers, float32, SGD with momentum 0.9 and weight decay 5e-4,
noise for images, CPU time of one thread. torchvision and timm come twice: as their documentation
has them; and tuned, with the layout of maps and the fused SGD of trainer=cpu, and compiled, as ours
is in a row of its own. XLA compiles Keras' step and chooses its layouts in any case. Libraries that
are not installed are left out; none of them is a requirement (`uv pip install timm keras jax`)."""

import os

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "KERAS_BACKEND": "jax",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

from importlib import metadata
from importlib.util import find_spec
from typing import Any

import torch
import torchvision
from harness import (
    Way,
    composed,
    interleave,
    measure,
    medians,
    paper_network,
    ratios,
    sgd,
    training_step,
)
from torch import nn
from torch.optim import SGD

OURS = "rectifiers, trainer=cpu"
TUNED = ", tuned and compiled"
CONVS = (64, 64, None, 128, 128, None, *[256] * 4, None, *[512] * 4, None, *[512] * 4, None)


def tuned(network: nn.Module, batch: int, compiled: bool, *changes: str) -> Way:
    """Return a step as trainer=cpu tunes it, its layout of maps and its optimiser, and compiled
    where asked for."""
    compute = composed(["model=vgg19", "data=imagenet", *changes]).compute
    memory = torch.channels_last if channels_last else torch.contiguous_format
    network = network.to(memory_format=memory)
    optimizer = sgd(network, optim.fused)
    return training_step(torch.compile(network) if compiled else network, optimizer, batch)


def torchvision_network() -> nn.Module:
    """torchvision.models.vgg19, its ReLUs replaced."""
    network = torchvision.models.vgg19()
    for part in (network.features, network.classifier):
        before: nn.Module = part[0]
        for place, module in enumerate(part):
            if isinstance(module, nn.ReLU):
                part[place] = nn.PReLU(
                    before.out_channels if isinstance(before, nn.Conv2d) else before.out_features
                )
            elif isinstance(module, nn.Conv2d | nn.Linear):
                before = module
    return network


def of_torchvision(batch: int) -> Way:
    """The network with the optimiser of torchvision's training script: torch.optim.SGD as it
    comes."""
    network = torchvision_network()
    return training_step(
        network, SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4), batch
    )


def timm_network() -> nn.Module:
    """timm's vgg19. It calls `act_layer(inplace=True)`, without a number of channels."""
    import timm

    return timm.create_model("vgg19", act_layer=lambda *_, **__: nn.PReLU(), drop_rate=0.5)


def of_timm(batch: int) -> Way:
    """The network with timm's factory of optimisers."""
    from timm.optim import create_optimizer_v2

    network = timm_network()
    optimizer = create_optimizer_v2(network, "momentum", lr=1e-4, momentum=0.9, weight_decay=5e-4)
    return training_step(network, optimizer, batch)


def of_keras(batch: int) -> Way:
    """Layers of Keras on JAX, compiled by XLA, which `train_on_batch` does by itself."""
    import keras
    import numpy as np
    from keras import layers

    network = keras.Sequential([keras.Input((224, 224, 3))])
    for channels in CONVS:
        if channels is None:
            network.add(layers.MaxPooling2D())
        else:
            network.add(layers.Conv2D(channels, 3, padding="same"))
            network.add(
                layers.PReLU(
                    alpha_initializer=keras.initializers.Constant(0.25), shared_axes=[1, 2]
                )
            )
    network.add(layers.Flatten())
    for _ in range(2):
        network.add(layers.Dense(4096))
        network.add(layers.PReLU(alpha_initializer=keras.initializers.Constant(0.25)))
        network.add(layers.Dropout(0.5))
    network.add(layers.Dense(1000))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.SGD(1e-4, momentum=0.9, weight_decay=5e-4), loss)
    x = np.random.default_rng(0).standard_normal((batch, 224, 224, 3), dtype=np.float32)
    labels = np.arange(batch)
    return lambda: network.train_on_batch(x, labels)


def main(rounds: int, batch: int) -> dict[str, Any]:
    ways = {
        OURS: tuned(paper_network("vgg19"), batch, compiled=False),
        "the same, channels_last=false": tuned(
            paper_network("vgg19"), batch, False, "channels_last=false"
        ),
        "the same, compiled": tuned(paper_network("vgg19"), batch, compiled=True),
        "the same with torch's PReLU": tuned(
            paper_network("vgg19", nn.PReLU), batch, compiled=False
        ),
        "the same with ReLU": tuned(
            paper_network("vgg19", lambda _: nn.ReLU()), batch, compiled=False
        ),
        "torchvision's vgg19, torch's PReLU": of_torchvision(batch),
        f"torchvision's vgg19, torch's PReLU{TUNED}": tuned(
            torchvision_network(), batch, compiled=True
        ),
    }
    if find_spec("timm"):
        ways["timm's vgg19, torch's PReLU (a slope per layer)"] = of_timm(batch)
        ways[f"timm's vgg19, torch's PReLU (a slope per layer){TUNED}"] = tuned(
            timm_network(), batch, compiled=True
        )
    if find_spec("keras") and find_spec("jax"):
        ways["Keras on JAX"] = of_keras(batch)
    seconds = interleave(ways, rounds)
    return {
        "times_ours": {name: ratios(seconds, name, OURS) for name in ways},
        "ms_an_image": medians(seconds, 1e3 / batch),
        "libraries": {
            name: metadata.version(name)
            for name in ("torchvision", "timm", "keras", "jax")
            if find_spec(name)
        },
    }


if __name__ == "__main__":
    measure(main, __doc__, rounds=5, batch=8)
