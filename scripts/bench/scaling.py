"""Weak scaling of the training step: two processes on two cores, each with a batch as large as one alone.

`python scripts/bench/scaling.py [rounds] [batch]` prints a table and writes results/bench/<machine>.json. The 14-layer
network with PReLU, a thread a process, gloo over the loopback, wall clock between barriers, interleaved: one process
alone while the other one sleeps; both at once without communication; both with DDP as `train.py` has it, whose
buckets of gradients travel while the backward pass goes on; the same with one all-reduce after it; and that
all-reduce by itself.
"""

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from harness import Way, interleave, measure, medians, paper_network, ratios, sgd
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

ALONE, APART, BUCKETS, AFTERWARDS, REDUCING = (
    "one process alone",
    "two, no word between them",
    "two, DDP",
    "two, one all-reduce after the backward pass",
    "the all-reduce by itself",
)


def main(rounds: int, batch: int) -> dict[str, Any]:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    network = paper_network("small14").to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = sgd(network, fused=True)
    x, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    gradients = torch.zeros(sum(p.numel() for p in network.parameters()))

    def alone() -> None:
        if rank == 0:
            step(network)

    def step(module: torch.nn.Module, reduced: bool = False) -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(x), labels).backward()
        if reduced:
            torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None], out=gradients)
            dist.all_reduce(gradients)
        optimizer.step()

    def until_all_are_done(way: Way) -> Way:
        def waiting() -> None:
            way()
            dist.barrier()

        return waiting

    ways: dict[str, Way] = {
        ALONE: alone,
        APART: lambda: step(network),
        BUCKETS: lambda: step(ddp),
        AFTERWARDS: lambda: step(network, reduced=True),
        REDUCING: lambda: dist.all_reduce(gradients),
    }
    seconds = interleave({name: until_all_are_done(way) for name, way in ways.items()}, rounds, time.perf_counter)
    dist.destroy_process_group()
    middle = medians(seconds)
    numbers = {
        "gradient_bytes": 4 * gradients.numel(),
        "times_alone": {name: ratios(seconds, name, ALONE) for name in ways},
        "seconds": middle,
        "efficiency": ratios(seconds, ALONE, BUCKETS),
        "waiting": {name: 1 - middle[APART] / middle[name] for name in (BUCKETS, AFTERWARDS)},
    }
    return numbers if rank == 0 else {}


if __name__ == "__main__":
    if "RANK" in os.environ:
        measure(main, __doc__, rounds=7, batch=8)
    else:
        torchrun(["--standalone", "--nproc-per-node=2", *sys.argv])
