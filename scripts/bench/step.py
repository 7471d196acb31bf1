"""A training step of the 14-layer network with PReLU as `compute=` may have it: precision, layout of maps, optimiser.

`python scripts/bench/step.py [rounds] [batch]` prints a table and writes results/bench/step.json. Ratios are of CPU
time on one thread, interleaved, over the paper's step: float32, NCHW.
"""

import contextlib
import os
import sys
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from pairs import interleave, keep, ratios, show

from rectifiers.composition import composed
from rectifiers.kernels import PReLU
from rectifiers.models.network import Network
from rectifiers.models.spec import expand

PAPERS = "float32, NCHW"


def stepper(batch: int, *, bf16: bool, last: bool, fused: bool = False) -> Callable[[], None]:
    """Forward, loss, backward and SGD on noise."""
    rows = expand(composed(["model=small14"])["model"]["rows"], width=1.0, classes=1000)
    memory = torch.channels_last if last else torch.contiguous_format
    network = Network(rows, PReLU, channels=3, input_px=224).to(memory_format=memory)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4, fused=fused)
    x, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = F.cross_entropy(network(x), labels)
        loss.backward()
        optimizer.step()

    return step


def main(rounds: int, batch: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ways = {
        f"{'bfloat16' if bf16 else 'float32'}, {'channels last' if last else 'NCHW'}": stepper(
            batch, bf16=bf16, last=last
        )
        for bf16 in (False, True)
        for last in (False, True)
    }
    ways["float32, NCHW, fused SGD"] = stepper(batch, bf16=False, last=False, fused=True)
    seconds = interleave(ways, rounds)
    faster = {name: ratios(seconds, PAPERS, name) for name in ways}
    middle = {name: 1e3 * sorted(taken)[len(taken) // 2] / batch for name, taken in seconds.items()}
    rows = [
        (name, f"{middle[name]:.1f}", f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})")
        for name, ratio in faster.items()
    ]
    show(f"a step of small14, batch {batch}, {rounds} rounds", rows, ("", "ms an image", "times as fast"))
    keep("step", {"rounds": rounds, "batch": batch, "times_as_fast": faster, "ms_an_image": middle})


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:]]
    main(*(numbers + [9, 8][len(numbers) :]))
