"""What a training step holds in memory at most, for every network of the paper at its batch of 128.

`python scripts/bench/memory.py` prints a table and writes results/bench/<machine>.json. Steps are done on tensors
without numbers, which torch's tracker counts like real ones, so it takes seconds and needs no memory; ReLU stands for
PReLU, since the step of small14 with real numbers that is done beside it holds the same. What a library needs for
a convolution meanwhile is not counted.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from pairs import keep, show
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from rectifiers.cli.composition import composed
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import ActivationFactory, Network
from rectifiers.nn.networks.rows import expand
from rectifiers.training.optim import build_sgd

MODELS = ("small14", "small30", "model_a", "model_b", "model_c", "vgg16", "vgg19")
WAYS = {
    "ReLU or PReLU": (lambda channels: nn.ReLU(), False),
    "torch's PReLU": (nn.PReLU, False),
    "ReLU or PReLU, maps computed again": (lambda channels: nn.ReLU(), True),
}


def peak_bytes(model: str, batch: int, activation: ActivationFactory, again: bool) -> tuple[int, int]:
    """Return (the most bytes that a training step holds at a time, those of weights and momentum)."""
    rows = expand(composed([f"model={model}"])["model"]["rows"], width=1.0, classes=1000)
    network = Network(rows, activation, channels=3, input_px=224)
    network.activation_checkpointing = again
    optimizer = build_sgd(network, lr=1e-3, momentum=0.9, weight_decay=5e-4, bias_lr_factor=1.0)
    for parameter in network.parameters():  # momentum comes with the first step
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    x, labels = torch.randn(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)
    tracker = MemTracker()
    tracker.track_external(network, optimizer, x, labels)
    with tracker:
        F.cross_entropy(network(x), labels).backward()
        optimizer.step()
    (found,) = tracker.get_tracker_snapshot("peak").values()
    return found["Total"], 8 * sum(p.numel() for p in network.parameters())


def main(batch: int) -> None:
    found = {}
    for model in MODELS:
        with FakeTensorMode():
            found[model] = {name: peak_bytes(model, batch, *way)[0] for name, way in WAYS.items()}
            found[model]["weights and momentum"] = peak_bytes(model, 1, *WAYS["ReLU or PReLU"])[1]
    with FakeTensorMode():
        fake, _ = peak_bytes("small14", 40, *WAYS["ReLU or PReLU"])
    real, _ = peak_bytes("small14", 40, PReLU, False)
    columns = ("weights and momentum", *WAYS)
    rows = [(model, *[f"{peaks[name] / 2**30:.2f}" for name in columns]) for model, peaks in found.items()]
    show(f"GiB at most, batch {batch}", rows, ("", *columns))
    print(f"small14 with PReLU and real numbers, batch 40: {real / fake:.4f} times ReLU's without numbers")
    keep("memory", {"batch": batch, "bytes": found, "real_prelu_of_relu": real / fake})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 128)
