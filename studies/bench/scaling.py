"""Measure the weak scaling of a training step: two processes on two cores, or one per GPU, each
with the same batch size as a single process.

`python studies/bench/scaling.py [rounds] [batch]` prints a table and writes
results/bench/<machine>.json. The network has 14 layers and PReLU. Each process has one thread, and
they communicate by gloo over the loopback, or by NCCL between GPUs. Times are wall-clock times
between barriers. Five variants take turns: one process while the others sleep; all processes
without communication; DDP as in `train.py`, which sends gradients during the backward pass; one
all-reduce after the backward pass; and the all-reduce alone."""

import os
import sys
import time
from typing import Any

import harness
import torch
import torch.distributed as dist
import torch.nn.functional as F
from harness import DEVICE, PHOTO, Way, ratios
from torch import nn
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

PROCESSES, BATCH = (torch.cuda.device_count(), 64) if DEVICE == "cuda" else (2, 8)
ON_CORES = "Two processes on two cores, gloo over the loopback"
WHERE = f"{PROCESSES} GPUs, NCCL" if DEVICE == "cuda" else ON_CORES
ALL = "two" if PROCESSES == 2 else f"all {PROCESSES}"
ALONE, APART, BUCKETS, AFTERWARDS, REDUCING = (
    "one process alone",
    f"{ALL}, without communication",
    f"{ALL}, DDP",
    f"{ALL}, one all-reduce after the backward pass",
    "the all-reduce by itself",
)


def main(rounds: int, batch: int) -> dict[str, Any]:
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(rank)
    network = harness.paper_network("small14").to(DEVICE).to(memory_format=torch.channels_last)
    ddp = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = harness.sgd(network, fused=True)
    x = torch.randn(batch, *PHOTO, device=DEVICE)
    labels = torch.randint(1000, (batch,), device=DEVICE)
    gradients = torch.zeros(sum(p.numel() for p in network.parameters()), device=DEVICE)

    def step(module: nn.Module, reduced: bool = False) -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(x), labels).backward()
        if reduced:
            parts = [p.grad.flatten() for p in network.parameters() if p.grad is not None]
            torch.cat(parts, out=gradients)
            dist.all_reduce(gradients)
        optimizer.step()

    def together(way: Way) -> Way:
        finished = harness.waiting(way)

        def until_all_are_done() -> None:
            finished()
            dist.barrier()

        return until_all_are_done

    ways: dict[str, Way] = {
        ALONE: lambda: step(network) if rank == 0 else None,
        APART: lambda: step(network),
        BUCKETS: lambda: step(ddp),
        AFTERWARDS: lambda: step(network, reduced=True),
        REDUCING: lambda: dist.all_reduce(gradients),
    }

    timed = {name: together(way) for name, way in ways.items()}
    seconds = harness.interleave(timed, rounds, time.perf_counter)
    dist.destroy_process_group()

    middle = harness.medians(seconds)
    numbers = {
        "where": WHERE,
        "gradient_bytes": 4 * gradients.numel(),
        "times_alone": {name: ratios(seconds, name, ALONE) for name in ways},
        "seconds": middle,
        "efficiency": ratios(seconds, ALONE, BUCKETS),
        "waiting": {name: 1 - middle[APART] / middle[name] for name in (BUCKETS, AFTERWARDS)},
    }
    return numbers if rank == 0 else {}


if __name__ == "__main__":
    if "RANK" in os.environ:
        harness.measure(main, __doc__, DEVICE, rounds=7, batch=BATCH)
    else:
        torchrun(["--standalone", f"--nproc-per-node={PROCESSES}", *sys.argv])
