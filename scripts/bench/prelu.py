"""What PReLU costs: the operation, and a whole training step of the 14-layer network, beside ReLU and torch's PReLU.

`python scripts/bench/prelu.py [rounds] [batch]` prints tables and writes results/bench/<machine>.json. Ratios are of
CPU time on one thread, interleaved; where there is a GPU, of the clock on that. The step is forward, loss, backward and
SGD; its network is the paper's at full width.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from pairs import interleave, keep, median_of, ratios, show, spread
from torch import Tensor, nn

from rectifiers.cli.composition import composed
from rectifiers.nn.kernels import PReLU, cpu
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import expand

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLOCK = time.perf_counter if DEVICE == "cuda" else time.process_time
BATCH = 128 if DEVICE == "cuda" else 8
SHAPES = ((BATCH, 64, 112, 112), (BATCH, 256, 18, 18))
FORMATS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}
KINDS: dict[str, Callable[[int], nn.Module]] = {
    "ReLU": lambda channels: nn.ReLU(),
    "PReLU, torch's": nn.PReLU,
    "PReLU, torch's, compiled": lambda channels: torch.compile(nn.PReLU(channels)),
    "PReLU": PReLU,
    "PReLU, shared": lambda channels: PReLU(1),
    "PReLU, torch's, shared": lambda channels: nn.PReLU(1),
}


COPY = "a copy of as many bytes"


def waited(way: Callable[[], object]) -> Callable[[], None]:
    """Return `way`, and the wait for what it asked of a GPU."""

    def done() -> None:
        way()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return done


def once(module: nn.Module, x: Tensor, dy: Tensor) -> None:
    torch.autograd.grad(module(x), [x, *module.parameters()], dy)


def operation(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Forward and backward of the activation alone, over ReLU's; and a copy of the five tensors that they touch."""
    found = {}
    for shape in SHAPES:
        for form, memory in FORMATS.items():
            x = torch.randn(shape, device=DEVICE).to(memory_format=memory).requires_grad_()
            dy = torch.randn(shape, device=DEVICE).to(memory_format=memory)
            ways = {name: partial(once, make(shape[1]).to(DEVICE), x, dy) for name, make in KINDS.items()}
            source = torch.randn(5 * x.numel() // 2, device=DEVICE)
            ways[COPY] = partial(torch.empty_like(source).copy_, source)
            seconds = interleave({name: waited(way) for name, way in ways.items()}, 4 * rounds, CLOCK)
            found[f"{'x'.join(map(str, shape))}, {form}"] = {n: ratios(seconds, n, "ReLU") for n in ways}
    return found


def stepper(make: Callable[[int], nn.Module], batch: int, memory: torch.memory_format) -> Callable[[], None]:
    """A training step of small14 on noise."""
    model = composed(["model=small14"])["model"]
    rows = expand(model["rows"], width=1.0, classes=1000)
    network = Network(rows, make, channels=3, input_px=224).to(DEVICE, memory_format=memory)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4, fused=True)
    x = torch.randn(batch, 3, 224, 224, device=DEVICE).to(memory_format=memory)
    labels = torch.randint(1000, (batch,), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(network(x), labels).backward()
        optimizer.step()

    return waited(step)


def kept_bytes(make: Callable[[int], nn.Module], batch: int) -> float:
    """Bytes of activations an image that a forward pass keeps for the backward pass, parameters apart."""
    model = composed(["model=small14"])["model"]
    network = Network(expand(model["rows"], width=1.0, classes=1000), make, channels=3, input_px=224)
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        answer = network(torch.randn(batch, 3, 224, 224))
    del answer
    return sum(kept.values()) / batch


def main(rounds: int, batch: int) -> None:
    if cpu.unavailable_reason():
        sys.exit(f"error: there is no C library ({cpu.unavailable_reason()}); call make native")
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # as a run has it
    torch.manual_seed(0)
    operations = operation(rounds)
    ways = {
        f"{name}, {form}": stepper(KINDS[name], batch, memory)
        for name in ("ReLU", "PReLU, torch's", "PReLU")
        for form, memory in FORMATS.items()
    }
    seconds = interleave(ways, rounds, CLOCK)
    steps = {name: ratios(seconds, name, f"ReLU, {name.rpartition(', ')[2]}") for name in ways}
    memory = {name: kept_bytes(KINDS[name], 2) for name in ("ReLU", "PReLU, torch's", "PReLU")}

    for shape, by_kind in operations.items():
        show(f"forward and backward, {shape}", [(n, spread(r)) for n, r in by_kind.items()], ("", "times ReLU's"))
    middle = median_of(seconds, batch)
    show(
        f"a step of small14, batch {batch}, {rounds} rounds",
        [(name, f"{middle[name]:.1f}", spread(ratio)) for name, ratio in steps.items()],
        ("", "ms an image", "times ReLU's of that layout"),
    )
    show("kept for the backward pass", [(n, f"{b / 2**20:.2f}") for n, b in memory.items()], ("", "MiB an image"))
    keep(
        "prelu",
        {
            "rounds": rounds,
            "batch": batch,
            "operation": operations,
            "step": steps,
            "step_ms_an_image": middle,
            "kept_bytes_an_image": memory,
        },
        torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
    )


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:]]
    main(*(numbers + [9, BATCH][len(numbers) :]))
