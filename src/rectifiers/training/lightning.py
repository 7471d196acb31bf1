"""Lightning's Trainer for a run, and everything that works around Lightning 2.6; its one private
name stands here.

The Trainer has one process, or its place among several that were started from outside.
"""

import datetime
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, RichProgressBar
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy, Strategy

from rectifiers.data.datamodule import ImageData
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import stderr
from rectifiers.runtime.machine import keep_freed_memory
from rectifiers.training.build import Run, build_callbacks
from rectifiers.training.checkpoints import (
    AtomicCheckpointIO,
    EpochEnd,
    ProgressLines,
    print_progress,
)
from rectifiers.training.module import Classifier
from rectifiers.training.preflight import BACKEND

LOGGERS = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric")
# Advice that does not hold here: loading is deterministic by design and cheap for small images.
UNHELPFUL = (
    ".*does not have many workers.*",
    ".*is smaller than the logging interval.*",
    ".*LeafSpec.*",
    ".*`srun` command is available.*",
)


def build_trainer(run: Run, loggers: Sequence[Logger], more: Sequence[Callback] = ()) -> pl.Trainer:
    """Return a Trainer that starts no process, injects no sampler and keeps the run's own
    checkpoints.

    loggers: get each epoch's row after its checkpoint. more: callbacks that change nothing."""
    config, folder, here = run.config, run.folder, run.here
    settings, epochs = config.trainer, config.trainer.max_epochs
    strategy: str | Strategy = "auto"
    if here.size > 1:
        strategy = DDPStrategy(
            # reads RANK and the like, which `distributed.join` has set
            cluster_environment=TorchElasticEnvironment(),
            process_group_backend=BACKEND[settings.accelerator],
            timeout=datetime.timedelta(seconds=config.timeout_s),
            gradient_as_bucket_view=True,
            # keeps the buckets of the first step. Without it DDP builds them again, by the order of
            # the gradients, and three ranks add in another order after a resumption
            find_unused_parameters=True,
            # no forward pass of training reads one; `Classifier` sends them before validation
            broadcast_buffers=False,
        )
    has_bar = sys.stderr.isatty() and not stderr.quiet
    lines = [] if has_bar else [partial(print_progress, epochs)]
    epoch_end = EpochEnd(folder, every_n_steps=config.checkpoint.every_n_steps, receivers=lines)
    bars: list[Callback] = [RichProgressBar()] if has_bar else []
    if not has_bar and here.rank == 0:
        bars = [ProgressLines(config.data.batch_size)]
    arguments: dict[str, Any] = {
        "enable_progress_bar": has_bar,
        "enable_model_summary": False,
    } | settings.more
    trainer = pl.Trainer(
        accelerator=settings.accelerator,
        devices=here.size // here.nodes,
        num_nodes=here.nodes,
        strategy=strategy,
        precision=settings.precision,
        benchmark=settings.benchmark,
        max_epochs=epochs,
        logger=list(loggers),
        callbacks=[*bars, *build_callbacks(config, folder), *more, epoch_end],
        plugins=[AtomicCheckpointIO()],
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **arguments,
    )
    _leave_signals_alone(trainer)
    return trainer


def _leave_signals_alone(trainer: pl.Trainer) -> None:
    """Keep the handlers of `runtime.signals` while `trainer` runs.

    Lightning has no switch for its own handler of SIGTERM, which would broadcast while other ranks
    are within another collective."""
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]


def fit(trainer: pl.Trainer, module: Classifier, data: ImageData, checkpoint: Path | None) -> None:
    """Train to the end, from `checkpoint` where there is one.

    Raises:
        KeyboardInterrupt: on Ctrl-C, which Lightning turns into `exit(1)`.
    """
    try:
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    except SystemExit as exiting:
        if isinstance(exiting.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


@contextmanager
def quiet() -> Iterator[None]:
    """Hide Lightning's notes, and its advice that does not hold here, while the body runs."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    with warnings.catch_warnings():
        for message in UNHELPFUL:
            warnings.filterwarnings("ignore", message)
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


@contextmanager
def isolated(config: RunConfig) -> Iterator[None]:
    """Run the body with the threads and the float32 that `config` asks for, and restore what it
    changes in a process.

    That is: random states (torch, numpy, random), thread count, default dtype, determinism flags,
    the environment (Lightning leaves LOCAL_RANK there), Lightning's log levels, warning filters,
    and the process group. Float32 means float32 unless the run is `fast`: by default cuDNN's
    convolutions keep only ten of its 23 bits (TF32) where a GPU can. Memory that a step has freed
    is kept for the next one."""
    environment, count, dtype = dict(os.environ), torch.get_num_threads(), torch.get_default_dtype()
    deterministic, benchmark = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
    )
    tf32 = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    interrupt = signal.getsignal(signal.SIGINT)  # Lightning ignores the signal once it has seen it
    numpy_state, python_state = np.random.get_state(), random.getstate()
    group_before = torch.distributed.is_available() and torch.distributed.is_initialized()
    try:
        # this process' device only: reading another device's state would take memory there
        own = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        keep_freed_memory()
        with torch.random.fork_rng(own), quiet():
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = config.fast
            yield
    finally:
        if (
            not group_before
            and torch.distributed.is_available()
            and torch.distributed.is_initialized()
        ):
            torch.distributed.destroy_process_group()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
        torch.set_num_threads(count)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = benchmark
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = tf32
        np.random.set_state(numpy_state)
        random.setstate(python_state)
        for key in os.environ.keys() - environment.keys():
            del os.environ[key]
        os.environ.update(environment)
