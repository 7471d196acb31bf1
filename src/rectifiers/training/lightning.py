"""Lightning's Trainer for a run and the processes around it, and everything that works around
Lightning 2.6; its one private name stands here.

The Trainer has one process, or its place among several that were started from outside.
"""

import datetime
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    Callback,
    ModelCheckpoint,
    ProgressBar,
    RichProgressBar,
    StochasticWeightAveraging,
    WeightAveraging,
)
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch.nn.parallel import DistributedDataParallel

from rectifiers.data.datamodule import ImageData
from rectifiers.data.sources import Source
from rectifiers.runs.config import KEYS, RunConfig
from rectifiers.runs.identity import without
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime import machine
from rectifiers.runtime.console import say, stderr
from rectifiers.runtime.distributed import World, all_gather, check_agreement, join_process_group
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.machine import keep_freed_memory
from rectifiers.runtime.schema import JsonObject, flat
from rectifiers.training.build import Run
from rectifiers.training.checkpoints import AtomicCheckpointIO
from rectifiers.training.epoch_end import EpochEnd, ProgressLines
from rectifiers.training.module import Classifier
from rectifiers.training.targets import KNOWN_CALLBACKS, Functions

# what is no gradient is agreed on by the processors
BACKEND = {"cpu": "gloo", "gpu": "cpu:gloo,cuda:nccl"}
AVERAGING = (StochasticWeightAveraging, WeightAveraging)
# Keys that may differ between the ranks of a run.
OF_A_RANK = tuple(name for name, key in KEYS.items() if key.ranks_differ)
FREEZES = re.compile(r"\.(\w*Finetuning|LambdaCallback)$")  # callbacks
# Advice that does not hold here: loading is deterministic by design and cheap for small images.
UNHELPFUL = (
    ".*does not have many workers.*",
    ".*is smaller than the logging interval.*",
    ".*overfit but enabled val dataloader shuffling.*",  # which they are not
    ".*LeafSpec.*",
    ".*`broadcast_buffers` is deprecated.*",
    ".*sync_dist=True.*",  # what is logged is summed over the ranks already
    ".*`srun` command is available.*",
)


for _name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # notes, such as how many GPUs are there


def check_hardware(config: RunConfig, place: World) -> None:
    """Refuse hardware that is not there and processes that were not started."""
    trainer, per_node = config.trainer, place.size // place.nodes
    gpus = torch.cuda.device_count() if trainer.accelerator == "gpu" else None
    if gpus is not None and per_node > gpus:
        raise InputError(
            f"trainer.accelerator=gpu needs a GPU for each of the {per_node} process(es) on this "
            f"node, and torch finds {gpus or 'none'}; choose trainer=cpu, or fewer processes"
        )
    if trainer.accelerator == "cpu":
        for_gpus = {
            "trainer.precision=16-mixed": trainer.precision == "16-mixed",
            "fast=true": config.fast,
            "trainer.benchmark=true": trainer.benchmark,
        }
        for typed, is_asked in for_gpus.items():
            key = typed.partition("=")[0]
            if is_asked:
                raise InputError(
                    f"{typed} is for GPUs, but trainer.accelerator=cpu; choose trainer=gpu, or "
                    f"leave out {key}"
                )
    if config.fast and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise InputError(
            f"fast=true needs a GPU with bfloat16, which {torch.cuda.get_device_name()} has not; "
            "leave it out"
        )
    nodes, devices = trainer.num_nodes, trainer.devices
    if nodes not in ("auto", 1, place.nodes) or devices not in ("auto", 1, per_node):
        raise InputError(
            f"trainer.num_nodes={nodes} trainer.devices={devices} asks for other processes than "
            f"were started: nodes={place.nodes} with {per_node} each; start as many on every node "
            "by scripts/slurm/train.sbatch, srun or torchrun, or leave the two keys out",
            on_all_ranks=True,
        )


def init_distributed(config: RunConfig, place: World) -> None:
    """Join the other processes of the run, before any of them waits for what another never does.
    All must have been given the same configuration."""
    accelerator = config.trainer.accelerator
    check_hardware(config, place)
    if accelerator == "gpu":
        # before anything is put on "the" GPU, by NCCL and pinning too
        torch.cuda.set_device(place.local_rank)
    join_process_group(place, BACKEND[accelerator], config.timeout_s)
    if place.size > 1:
        shared = without(config.as_dict(), OF_A_RANK)
        check_agreement({"code": code_fingerprint(), **flat(shared)})


def announce(
    config: RunConfig, source: Source, run: str, activation: str | None, place: World
) -> None:
    """Print what is about to run, on rank 0. activation: the module in words, None for a network
    without any."""
    on_gpu, batch = config.trainer.accelerator == "gpu", config.data.batch_size
    name = torch.cuda.get_device_name(place.local_rank) if on_gpu else machine.name()
    devices = ", ".join(f"{count} x {name}" for name, count in Counter(all_gather(name)).items())
    if place.rank > 0:
        return

    is_shared = place.size > 1 and batch % place.size == 0
    share = f" = {place.size} x {batch // place.size}" if is_shared else ""
    nodes = "node" if place.nodes == 1 else "nodes"
    processes = "process" if place.size == 1 else "processes"
    parts = (
        activation,
        f"data {source.name} {source.digest[:12]}",
        f"batch {batch}{share}",
        "fast" if config.fast else None,
        config.trainer.precision,
        f"{place.nodes} {nodes}",
        f"{place.size} {processes} on {devices}",
    )
    say(f"run {run}: {', '.join(filter(None, parts))}")


class FixedBuckets(DDPStrategy):
    """DDP whose buckets of gradients stay as they are from the first step on.

    After that step DDP builds them again, by the order of the gradients, so that a run which goes
    on from a checkpoint would begin with others, and three ranks would add in another order. Here
    they are built again before it, from a pass over zeros in which the last layer's gradients are
    first."""

    def configure_ddp(self) -> None:
        super().configure_ddp()
        ddp = self.model
        assert isinstance(ddp, DistributedDataParallel)
        if ddp.find_unused_parameters:  # DDP keeps its first buckets
            return
        parameters = [p for p in ddp.parameters() if p.requires_grad]
        ddp.reducer.prepare_for_forward()
        ddp.reducer.prepare_for_backward([])
        torch.stack([0.0 * parameter.sum() for parameter in parameters]).sum().backward()
        ddp.reducer._rebuild_buckets()
        for parameter in parameters:
            parameter.grad = None


def may_leave_out_parameters(config: RunConfig) -> bool:
    """Return whether a step may give no gradient to some parameter, which DDP then looks for: in a
    network of the user's own, and where a callback may freeze layers."""
    model, callbacks = config.model.target or "rectifiers.", (config.callbacks or {}).values()
    names = [callback.target for callback in callbacks]
    is_free = any(not name.startswith(KNOWN_CALLBACKS) for name in names)
    return is_free or not model.startswith("rectifiers.") or any(map(FREEZES.search, names))


def build_trainer(run: Run, loggers: Sequence[Logger], more: Sequence[Callback] = ()) -> pl.Trainer:
    """Return a Trainer that starts no process, injects no sampler and keeps the run's own
    checkpoints.

    loggers: get each epoch's row after its checkpoint. more: callbacks that change nothing."""
    config, folder, place = run.config, run.folder, run.place
    settings = config.trainer

    is_watched = sys.stderr.isatty() and not stderr.quiet
    chosen = build_callbacks(config, run.functions, folder)
    has_own = any(isinstance(callback, ProgressBar) for callback in chosen)
    has_bar = has_own or settings.more.get("enable_progress_bar", is_watched)
    shown: list[Callback] = [RichProgressBar()] if has_bar and not has_own else []
    if not has_bar and place.rank == 0:
        shown = [ProgressLines(config.data.batch_size)]

    kept = [c.dirpath for c in chosen if isinstance(c, ModelCheckpoint) and c.dirpath]
    epoch_end = EpochEnd(folder, every_n_steps=config.checkpoint.every_n_steps)
    display: JsonObject = {"enable_progress_bar": has_bar, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator=settings.accelerator,
        devices=place.size // place.nodes,
        num_nodes=place.nodes,
        strategy=_ddp(config) if place.size > 1 else "auto",
        precision=settings.precision,
        benchmark=settings.benchmark,
        max_epochs=settings.max_epochs,
        logger=list(loggers),
        callbacks=[*shown, *chosen, *more, epoch_end],
        plugins=[AtomicCheckpointIO(*kept)],
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **display | settings.more,
    )
    # The handlers of `runtime.stopping` stay. Lightning has no switch for its own of SIGTERM, which
    # would broadcast while other ranks are within another collective.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


def _ddp(config: RunConfig) -> Strategy:
    """Return the strategy of several processes, which have joined their group already."""
    return FixedBuckets(
        # reads RANK and the like, which `join_process_group` has set
        cluster_environment=TorchElasticEnvironment(),
        process_group_backend=BACKEND[config.trainer.accelerator],
        timeout=datetime.timedelta(seconds=config.timeout_s),
        gradient_as_bucket_view=True,
        find_unused_parameters=may_leave_out_parameters(config),
        # training reads none but `TransformedUnits`', which are equal; `Classifier` sends all
        # before validation
        broadcast_buffers=False,
    )


def fit(trainer: pl.Trainer, module: Classifier, data: ImageData, checkpoint: Path | None) -> None:
    """Train to the end, from `checkpoint` where there is one. Ctrl-C stays a KeyboardInterrupt,
    which Lightning turns into `exit(1)`."""
    try:
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    except SystemExit as exiting:
        if isinstance(exiting.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def build_callbacks(config: RunConfig, functions: Functions, folder: Path) -> list[Callback]:
    """Return the callbacks that `callbacks=` chooses: ours, and Lightning's. Checkpoints of
    Lightning's go to `<folder>/checkpoints`."""
    callbacks = []
    # by name, because an id does not tell their order
    for name, target in sorted((config.callbacks or {}).items()):
        callback = functions[f"callbacks.{name}"]()
        if not isinstance(callback, Callback):
            raise InputError(
                f"callbacks.{name}._target_={target.target} gives {type(callback).__name__}; it "
                "must return a callback of Lightning"
            )
        if isinstance(callback, AVERAGING):
            raise InputError(
                f"callbacks.{name}._target_={target.target} averages the weights after the last "
                "checkpoint, so a later test would use other weights; leave it out"
            )
        if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
            callback.dirpath = str(folder / "checkpoints")
        callbacks.append(callback)
    return callbacks


@contextmanager
def isolated(config: RunConfig) -> Iterator[None]:
    """Run the body with the threads and the float32 that `config` asks for, and restore what it
    changes in a process.

    That is: torch's random state, thread count, determinism flags, the environment (Lightning
    leaves LOCAL_RANK there), warning filters, and the process group. Float32 means float32 unless
    the run is `fast`: by default cuDNN's convolutions keep only ten of its 23 bits (TF32) where a
    GPU can. Memory that a step has freed is kept for the next one."""
    cudnn, cuda, dist = torch.backends.cudnn, torch.backends.cuda.matmul, torch.distributed
    environment, count = dict(os.environ), torch.get_num_threads()
    deterministic, benchmark = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark
    tf32 = cudnn.allow_tf32, cuda.allow_tf32
    interrupt = signal.getsignal(signal.SIGINT)  # Lightning ignores the signal once it has seen it
    had_group = dist.is_available() and dist.is_initialized()
    try:
        # this process' device only: reading another device's state would take memory there
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        keep_freed_memory()
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            for message in UNHELPFUL:
                warnings.filterwarnings("ignore", message)
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            cudnn.allow_tf32 = cuda.allow_tf32 = config.fast
            yield
    finally:
        if not had_group and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
        torch.set_num_threads(count)
        torch.use_deterministic_algorithms(deterministic)
        cudnn.benchmark = benchmark
        cudnn.allow_tf32, cuda.allow_tf32 = tf32
        for key in os.environ.keys() - environment.keys():
            del os.environ[key]
        os.environ.update(environment)
