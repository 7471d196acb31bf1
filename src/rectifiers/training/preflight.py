"""What is settled before a run starts: the processes asked for are there, and they agree on what is run."""

from typing import Any

import torch

from rectifiers.config import InputError
from rectifiers.data.sources import Source
from rectifiers.distributed import World, command, refuse_disagreement
from rectifiers.reporting.console import stderr
from rectifiers.runs.provenance import code_fingerprint


def check_compute(compute: dict[str, Any], here: World) -> None:
    """Refuse hardware that is not there and processes that were not started; the message has the command to type."""
    if compute["accelerator"] == "gpu" and not torch.cuda.is_available():
        raise InputError("compute.accelerator=gpu needs a GPU, and torch sees none; choose compute=cpu")
    if compute["accelerator"] == "cpu" and compute["precision"] == "16-mixed":
        raise InputError("compute.precision=16-mixed works on a GPU only; choose 32-true or bf16-mixed")
    started = here.size // here.nodes
    nodes, devices = compute["nodes"] or here.nodes, compute["devices"] or started
    if (nodes, devices) != (here.nodes, started):
        raise InputError(
            f"compute.nodes={nodes} compute.devices={devices} asks for {nodes * devices} processes, and "
            f"{here.size} on {here.nodes} {'node was' if here.nodes == 1 else 'nodes were'} started; type: "
            f"{command(nodes, devices)}"
        )
    if compute["accelerator"] == "gpu" and started > torch.cuda.device_count():
        raise InputError(
            f"{started} processes on this node share {torch.cuda.device_count()} GPUs; start one process a GPU"
        )


def preflight(config: dict[str, Any], source: Source, run: str, here: World) -> None:
    """Refuse processes that disagree, and print what is about to run, on rank 0.

    Raises:
        InputError: on every rank, where one has another configuration, other data or other code than rank 0.
    """
    refuse_disagreement({"configuration": run, "data": source.digest, "code": code_fingerprint()})
    if here.rank > 0:
        return
    compute, batch = config["compute"], config["optim"]["global_batch"]
    started = here.size // here.nodes
    share, many = "", ""
    if here.size > 1:
        share = f" = {here.size} x {batch // here.size}"
        many = f", {here.nodes} x {started} processes, all with this configuration, data and code"
    stderr.print(
        f"run {run}: data {source.name} {source.digest[:12]}, batch {batch}{share}, {compute['precision']} on "
        f"{compute['accelerator']}{many}",
        highlight=False,
        soft_wrap=True,
    )
