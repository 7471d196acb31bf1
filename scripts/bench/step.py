"""A training step as `compute=` may have it: precision, layout of maps, compiled or not, optimiser in one pass or not.

`python scripts/bench/step.py [rounds] [batch]` prints a table and writes results/bench/<machine>.json. On a CPU the
14-layer network, one thread, CPU time; where there is a GPU, model A on it by the clock. Ratios are over the paper's
step, float32 and NCHW. Of each the share of the matrix products' rate, measured beside it in the same precision.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from pairs import interleave, keep, median_of, ratios, show, spread

from rectifiers.cli.composition import composed
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import expand, trace
from rectifiers.training.optim import build_sgd


class Way(NamedTuple):
    """What `compute=` has of a step."""

    bf16: bool = False
    last: bool = False
    fused: bool = False
    compiled: bool = False
    checkpointed: bool = False

    def __str__(self) -> str:
        parts = [
            "bfloat16" if self.bf16 else "float32",
            "channels last" if self.last else "NCHW",
            *["fused SGD"] * self.fused,
            *["compiled"] * self.compiled,
            *["maps computed again"] * self.checkpointed,
        ]
        return ", ".join(parts)


PAPERS = Way()
WAYS = (
    PAPERS,
    Way(last=True),
    Way(fused=True),
    Way(last=True, fused=True),
    Way(fused=True, compiled=True),
    Way(last=True, fused=True, compiled=True),
    Way(fused=True, checkpointed=True),
    Way(bf16=True, fused=True),
    Way(bf16=True, last=True, fused=True),
)
DEFAULT = Way(last=True, fused=True)  # of compute=cpu
ON_GPU = Way(bf16=True, last=True, fused=True, compiled=True)


def stepper(model: str, batch: int, way: Way, device: str) -> Callable[[], None]:
    """Forward, loss, backward and SGD on noise."""
    rows = expand(composed([f"model={model}"])["model"]["rows"], width=1.0, classes=1000)
    memory = torch.channels_last if way.last else torch.contiguous_format
    network = Network(rows, PReLU, channels=3, input_px=224).to(device, memory_format=memory)
    network.activation_checkpointing = way.checkpointed
    if way.compiled:
        network.compile(options={"fallback_random": True})
    optimizer = build_sgd(network, lr=1e-4, momentum=0.9, weight_decay=5e-4, bias_lr_factor=1.0, fused=way.fused)
    x = torch.randn(batch, 3, 224, 224, device=device)
    labels = torch.randint(1000, (batch,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16) if way.bf16 else contextlib.nullcontext():
            loss = F.cross_entropy(network(x), labels)
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def product(dtype: torch.dtype, device: str, side: int) -> Callable[[], None]:
    """A square matrix product."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        torch.mm(a, b)
        if device == "cuda":
            torch.cuda.synchronize()

    return multiply


def main(rounds: int, batch: int | None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, batch, side, clock = (
        ("model_a", batch or 128, 8192, time.perf_counter)
        if device == "cuda"
        else ("small14", batch or 8, 2048, time.process_time)
    )
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # as a run has it
    torch.manual_seed(0)
    chosen = (*WAYS, ON_GPU) if device == "cuda" else WAYS
    products = {"float32": product(torch.float32, device, side), "bfloat16": product(torch.bfloat16, device, side)}
    ways = {str(way): stepper(model, batch, way, device) for way in chosen}
    seconds = interleave({**ways, **products}, rounds, clock)
    faster = {name: ratios(seconds, str(PAPERS), name) for name in ways}
    middle = median_of(seconds, 1)
    rows = expand(composed([f"model={model}"])["model"]["rows"], width=1.0, classes=1000)
    operations = 6 * batch * sum(shape.multiply_adds for shape in trace(rows, channels=3, input_px=224))
    shares = {name: operations / middle[name] / (2 * side**3 / middle[name.partition(",")[0]]) for name in ways}
    shown = [(n, f"{middle[n] / batch:.1f}", spread(faster[n]), f"{100 * shares[n]:.0f} %") for n in ways]
    head = ("", "ms an image", "times as fast", "of the products' rate")
    show(f"a step of {model}, batch {batch}, {rounds} rounds", shown, head)
    larger = None
    if device == "cpu":  # the optimiser's part of a step falls with the batch
        pair = {str(way): stepper(model, 8 * batch, way, device) for way in (PAPERS, DEFAULT)}
        taken = interleave(pair, max(3, rounds // 2), clock)
        larger = {"batch": 8 * batch, "times_as_fast": ratios(taken, str(PAPERS), str(DEFAULT))}
        print(f"{DEFAULT}, batch {8 * batch}: {spread(larger['times_as_fast'])} times as fast")
    keep(
        "step",
        {
            "rounds": rounds,
            "model": model,
            "batch": batch,
            "times_as_fast": faster,
            "ms_an_image": {name: middle[name] / batch for name in ways},
            "larger": larger,
            "share_of_products": shares,
            "tflops_of_products": {name: 2 * side**3 / middle[name] / 1e9 for name in products},
        },
        torch.cuda.get_device_name() if device == "cuda" else "cpu",
    )


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:]]
    main(numbers[0] if numbers else 7, numbers[1] if len(numbers) > 1 else None)
