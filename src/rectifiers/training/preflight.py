"""What is settled before a run starts: the processes asked for are there, and they agree on what is
run."""

import os
from collections import Counter
from collections.abc import Mapping
from os.path import isdir, isfile  # unlike Path's: False of a name too long for a path
from typing import Any

import torch

from rectifiers.data.sources import Source
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import without
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime import machine
from rectifiers.runtime.console import stderr
from rectifiers.runtime.distributed import World, all_gather, check_agreement, join_process_group
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import check_writable


def check_hardware(config: RunConfig, here: World) -> None:
    """Refuse hardware that is not there and processes that were not started."""
    trainer = config.trainer
    if trainer.accelerator == "gpu" and not torch.cuda.is_available():
        raise InputError(
            "trainer.accelerator=gpu needs a GPU, and torch sees none; choose trainer=cpu"
        )
    if trainer.accelerator == "cpu":
        for key, is_for_gpus in (
            ("trainer.precision=16-mixed", trainer.precision == "16-mixed"),
            ("fast=true", config.fast),
            ("trainer.benchmark=true", trainer.benchmark),
        ):
            if is_for_gpus:
                raise InputError(
                    f"{key} is for GPUs, and trainer.accelerator=cpu; choose trainer=gpu or leave "
                    "it out (trainer.precision=bf16-mixed is faster on a processor that has it)"
                )
    if config.fast and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise InputError(
            f"fast=true needs a GPU with bfloat16, which {torch.cuda.get_device_name()} has not; "
            "leave it out"
        )
    started = here.size // here.nodes
    nodes, devices = trainer.num_nodes, trainer.devices
    if nodes not in ("auto", 1, here.nodes) or devices not in ("auto", 1, started):
        raise InputError(
            f"trainer.num_nodes={nodes} trainer.devices={devices} asks for other processes than "
            f"were started: nodes={here.nodes} with {started} each; start as many on every node "
            "by scripts/slurm/train.sbatch, srun or torchrun, or leave the two keys out",
            on_all_ranks=True,
        )
    if trainer.accelerator == "gpu" and started > torch.cuda.device_count():
        raise InputError(
            f"{started} processes on this node share {torch.cuda.device_count()} GPUs; start "
            "one process a GPU"
        )


def check_places(config: RunConfig) -> None:
    """Refuse folders that cannot be written, before the data are opened; a cache that is there may
    be read alone."""
    check_writable("runs_dir", config.runs_dir)
    if config.ckpt_path is not None and not isfile(config.ckpt_path):
        raise InputError(
            f"ckpt_path={config.ckpt_path} is not a file; give a checkpoint, or leave it out to go "
            "on from the run's newest"
        )
    if not isdir(config.cache_dir):
        check_writable("cache_dir", config.cache_dir)


BACKEND = {
    "cpu": "gloo",
    "gpu": "cpu:gloo,cuda:nccl",
}  # what is no gradient is agreed on by the processors
OWN = (
    "data.root",
    "data.download",
    "cache_dir",
    "data.num_workers",
    "threads",
)  # may differ between machines


def init_distributed(config: RunConfig, here: World) -> None:
    """Meet the other processes of the run, before any of them waits for what another never does.

    Raises:
        InputError: where the hardware or the processes are not there, or the processes were not
            asked for the same thing: on every rank, with the key and both values.
    """
    accelerator = config.trainer.accelerator
    check_hardware(config, here)
    if accelerator == "gpu":
        torch.cuda.set_device(
            here.local_rank
        )  # before anything is put on "the" GPU, by NCCL and pinning too
    join_process_group(here, BACKEND[accelerator], config.timeout_s)
    if here.size > 1:
        check_agreement({"code": code_fingerprint(), **_flat(without(config.as_dict(), OWN))})


def _flat(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= (
            _flat(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else {f"{prefix}{key}": value}
        )
    return flat


def announce(
    config: RunConfig, source: Source, run: str, activation: str | None, here: World
) -> None:
    """Print what is about to run, on rank 0. activation: the module in words, None for a network
    without any."""
    trainer, batch = config.trainer, config.data.batch_size
    gpu = trainer.accelerator == "gpu"
    devices = Counter(
        all_gather(torch.cuda.get_device_name(here.local_rank) if gpu else machine.name())
    )
    if here.rank > 0:
        return
    shown = "" if activation is None else f"{activation}, "
    share = (
        f" = {here.size} x {batch // here.size}" if here.size > 1 and batch % here.size == 0 else ""
    )
    agreed = "; all have this configuration, data and code" if here.size > 1 else ""
    stderr.print(
        f"run {run}: {shown}data {source.name} {source.digest[:12]}, batch {batch}{share}, "
        f"{'fast, ' if config.fast else ''}{trainer.precision}, {_many(here.nodes, 'node')}, "
        f"{_many(here.size, 'process')} on "
        f"{', '.join(f'{n} x {name}' for name, n in devices.items())}{agreed}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    if "TORCHELASTIC_MAX_RESTARTS" in os.environ:
        warn_of_stale_addresses(os.environ)


def _many(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def warn_of_stale_addresses(environment: Mapping[str, str]) -> None:
    """Say once that torchrun's restarts will not work: its store keeps the addresses of processes
    that are gone."""
    if (
        int(environment["TORCHELASTIC_MAX_RESTARTS"]) > 0
        and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    ):
        stderr.print(
            "--max-restarts needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in torchrun's "
            "environment, on every node; "
            "without it a restart looks for the processes that are gone",
            soft_wrap=True,
        )
