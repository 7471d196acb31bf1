"""Weak scaling of the training step: two processes on two cores, each with a batch as large as one alone.

`python scripts/bench/scaling.py [rounds] [batch]` prints a table and writes results/bench/<machine>.json. The 14-layer
network with PReLU, a thread a process, gloo over the loopback, wall clock between barriers, interleaved: one process
alone while the other one sleeps; both at once without a word to each other; both with DDP as `train.py` has it, whose
buckets of gradients travel while the backward pass goes on; the same with one all-reduce after it; and that
all-reduce by itself.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pairs import interleave, keep, ratios, show, spread
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

from rectifiers.cli.composition import composed
from rectifiers.nn.kernels import PReLU
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import expand
from rectifiers.training.optim import build_sgd

ALONE, APART, BUCKETS, AFTERWARDS, REDUCING = (
    "one process alone",
    "two, no word between them",
    "two, DDP",
    "two, one all-reduce after the backward pass",
    "the all-reduce by itself",
)


def main(rounds: int, batch: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    rows = expand(composed(["model=small14"])["model"]["rows"], width=1.0, classes=1000)
    network = Network(rows, PReLU, channels=3, input_px=224).to(memory_format=torch.channels_last)
    together = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = build_sgd(network, lr=1e-4, momentum=0.9, weight_decay=5e-4, bias_lr_factor=1.0, fused=True)
    x, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    everything = torch.zeros(sum(p.numel() for p in network.parameters()))

    def step(module: torch.nn.Module) -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(x), labels).backward()

    def reduce() -> None:
        dist.all_reduce(everything)

    def alone() -> None:
        if rank == 0:
            apart()

    def apart() -> None:
        step(network)
        optimizer.step()

    def buckets() -> None:
        step(together)
        optimizer.step()

    def afterwards() -> None:
        step(network)
        torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None], out=everything)
        reduce()
        optimizer.step()

    def timed(way: Callable[[], None]) -> Callable[[], None]:
        def between_barriers() -> None:
            way()
            dist.barrier()

        return between_barriers

    ways = {ALONE: alone, APART: apart, BUCKETS: buckets, AFTERWARDS: afterwards, REDUCING: reduce}
    seconds = interleave({name: timed(way) for name, way in ways.items()}, rounds, time.perf_counter)
    if rank == 0:
        over = {name: ratios(seconds, name, ALONE) for name in ways}
        middle = {name: statistics.median(taken) for name, taken in seconds.items()}
        rows = [(name, f"{middle[name]:.2f}", spread(over[name])) for name in ways]
        show(f"small14, batch {batch} a process, {rounds} rounds", rows, ("", "s a step", "times one alone"))
        efficiency = ratios(seconds, ALONE, BUCKETS)
        share = {name: 1 - middle[APART] / middle[name] for name in (BUCKETS, AFTERWARDS)}
        print(f"weak scaling {spread(efficiency)}; waiting for gradients is {100 * share[BUCKETS]:.0f} % of a step")
        told = {"times_alone": over, "seconds": middle, "efficiency": efficiency, "waiting": share}
        keep("scaling", {"rounds": rounds, "batch": batch, "gradient_bytes": 4 * everything.numel(), **told})
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        numbers = [int(given) for given in sys.argv[1:]]
        main(*(numbers + [7, 8][len(numbers) :]))
    else:
        torchrun(["--standalone", "--nproc-per-node=2", *sys.argv])
