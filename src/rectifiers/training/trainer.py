"""Lightning's Trainer for a run: one process, or its place among several that were started from outside."""

import datetime
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, RichProgressBar
from pytorch_lightning.plugins.environments import TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy, Strategy

from rectifiers.runtime.distributed import World
from rectifiers.training.assembly import build_interventions
from rectifiers.training.checkpoints import AtomicCheckpointIO
from rectifiers.training.epoch_end import EpochEnd, History, print_progress, write_metrics

BACKEND = {"cpu": "gloo", "gpu": "cpu:gloo,cuda:nccl"}  # what is no gradient is agreed on by the processors


def build_trainer(
    config: dict[str, Any], folder: Path, mirror: Callable[[History], None], here: World, more: Sequence[Callback] = ()
) -> pl.Trainer:
    """Return a Trainer that starts no process, injects no sampler and keeps the run's own checkpoints.

    mirror: called on rank 0 with all epochs' rows, after each one's checkpoint. more: callbacks that change nothing.
    """
    compute, epochs = config["compute"], config["optim"]["epochs"]
    strategy: str | Strategy = "auto"
    if here.size > 1:
        strategy = DDPStrategy(
            cluster_environment=TorchElasticEnvironment(),  # reads RANK and the like, which `distributed.join` has set
            process_group_backend=BACKEND[compute["accelerator"]],
            timeout=datetime.timedelta(seconds=compute["timeout_s"]),
            gradient_as_bucket_view=True,
        )
    metrics = [] if config["logger"]["name"] == "none" else [partial(write_metrics, folder / "metrics.csv")]
    has_bar = sys.stderr.isatty()
    lines = [] if has_bar else [partial(print_progress, epochs)]
    epoch_end = EpochEnd(folder, every_n_steps=config["checkpoint"]["every_n_steps"], tell=[*metrics, mirror, *lines])
    bars = [RichProgressBar()] if has_bar else []
    trainer = pl.Trainer(
        accelerator=compute["accelerator"],
        devices=here.size // here.nodes,
        num_nodes=here.nodes,
        strategy=strategy,
        precision=compute["precision"],
        max_epochs=epochs,
        logger=False,
        callbacks=[*bars, *build_interventions(config), *more, epoch_end],
        plugins=[AtomicCheckpointIO()],
        enable_progress_bar=has_bar,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    # Lightning's handler of SIGTERM would broadcast while the others are within another collective; see `stopping`.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer
