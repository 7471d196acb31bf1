"""What a training step holds in memory at most, for every network of the paper at its batch of 128.

`python scripts/bench/memory.py [batch]` prints a table and writes results/bench/<machine>.json.
Steps are made on tensors without numbers, which torch's tracker counts like real ones: that takes
seconds and no memory. ReLU stands for PReLU, since a step of small14 with real numbers and PReLU
holds as much. What a library of convolutions needs meanwhile is not counted."""

from typing import Any

import torch
import torch.nn.functional as F
from harness import measure, paper_network, sgd
from torch import nn

from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import ActivationFactory
from rectifiers.runtime.torch_internals import fake_tensor_mode, memory_tracker

MODELS = ("small14", "small30", "model_a", "model_b", "model_c", "vgg16", "vgg19")
RELU = "ReLU or PReLU"
WAYS: dict[str, tuple[ActivationFactory, bool]] = {
    RELU: (lambda _: nn.ReLU(), False),
    "torch's PReLU": (nn.PReLU, False),
    f"{RELU}, maps computed again": (lambda _: nn.ReLU(), True),
}


def peak_bytes(
    model: str, batch: int, activation: ActivationFactory, checkpointed: bool = False
) -> tuple[int, int]:
    """Return (the most bytes that a training step holds at a time, those of weights and
    momentum)."""
    network = paper_network(model, activation)
    network.activation_checkpointing = checkpointed
    optimizer = sgd(network)
    for parameter in network.parameters():  # momentum comes with the first step
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    x, labels = torch.randn(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
    tracker = memory_tracker()
    tracker.track_external(network, optimizer, x, labels)
    with tracker:
        F.cross_entropy(network(x), labels).backward()
        optimizer.step()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return peak["Total"], 8 * sum(p.numel() for p in network.parameters())


def main(batch: int) -> dict[str, Any]:
    peaks = {}
    with fake_tensor_mode():
        for model in MODELS:
            peaks[model] = {name: peak_bytes(model, batch, *way)[0] for name, way in WAYS.items()}
            peaks[model]["weights and momentum"] = peak_bytes(model, 1, *WAYS[RELU])[1]
        without_numbers, _ = peak_bytes("small14", 40, *WAYS[RELU])
    real, _ = peak_bytes("small14", 40, PReLU)
    return {"bytes": peaks, "real_prelu_of_relu": real / without_numbers}


if __name__ == "__main__":
    measure(main, __doc__, batch=128)
