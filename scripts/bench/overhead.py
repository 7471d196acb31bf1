"""What stands around a training step: Lightning, callbacks, metrics, logging, checkpoints.

`python scripts/bench/overhead.py [rounds]` prints a table and writes results/bench/<machine>.json.
The real run of `train.py` with the 14-layer network at full width on photos of 224 px, one thread,
two epochs of eight batches of 8. CPU time of a step that is spent in forward, backward, optimiser
and reading, and the rest, which is the answer; and of an epoch's end."""

import importlib
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from harness import Stopwatch, measure, train
from pytorch_lightning import Trainer
from torch.utils.data import DataLoader

from photos import write_photos
from rectifiers.data.preprocess import Preprocess
from rectifiers.nn.networks.network import Network
from rectifiers.training.checkpoints import AtomicCheckpointIO

RUN = (
    "activation=prelu",
    "init=he",
    "data=folder",
    "model.width=1",
    "data.resize_px=256",
    "data.crop_px=224",
    "data.batch_size=8",
    "trainer.max_epochs=2",
    "optim.lr=0.0001",
    "evaluation=center",
    "logger=csv",
    "threads=1",
)
PARTS = {
    "forward": [(Network, "forward"), (Preprocess, "forward"), (F, "cross_entropy")],
    "backward": [(torch.Tensor, "backward")],
    "optimiser": [
        (importlib.import_module("torch.optim.sgd"), "sgd"),
        (torch.optim.Optimizer, "zero_grad"),
    ],
    "reading images": [(type(iter(DataLoader([0]))), "__next__")],
}
REST = "Lightning, callbacks, metrics, logging"
STEPS, EPOCHS = 16, 2


def once(place: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return milliseconds of the parts (a training step, what comes once an epoch), each with its
    rest."""
    parts, steps, ends, whole = (Stopwatch() for _ in range(4))
    epoch_loop = Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False
    ).fit_loop.epoch_loop
    with ExitStack() as patched:
        for part, functions in PARTS.items():
            for owner, name in functions:
                patched.enter_context(parts.timed(part, owner, name))
        for watch in (parts, ends):  # the forward passes of the validation are its own
            patched.enter_context(watch.timed("validation", type(epoch_loop.val_loop), "run"))
        patched.enter_context(ends.timed("checkpoint", AtomicCheckpointIO, "save_checkpoint"))
        patched.enter_context(steps.timed("steps", type(epoch_loop), "run"))
        patched.enter_context(whole.timed("fit", Trainer, "fit"))
        train(place, *RUN, f"data.root={place}/plain")
    a_step = {part: 1e3 * parts.seconds[part] / STEPS for part in PARTS}
    a_step[REST] = 1e3 * (steps.seconds["steps"] - parts.seconds["validation"]) / STEPS - sum(
        a_step.values()
    )
    an_epoch = {part: 1e3 * seconds / EPOCHS for part, seconds in ends.seconds.items()}
    an_epoch["the rest"] = (
        1e3 * (whole.seconds["fit"] - steps.seconds["steps"]) / EPOCHS - an_epoch["checkpoint"]
    )
    return a_step, an_epoch


def main(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        write_photos(Path(place), 64)
        runs = [once(place) for _ in range(rounds + 1)][1:]  # the first warms up
    a_step, an_epoch = (
        {part: statistics.median(run[part] for run in of_runs) for part in of_runs[0]}
        for of_runs in zip(*runs, strict=True)
    )
    shares = [
        parts[REST] / sum(parts[part] for part in ("forward", "backward", "optimiser"))
        for parts, _ in runs
    ]
    return {"run": RUN, "ms_a_step": a_step, "ms_an_epoch": an_epoch, "shares": shares}


if __name__ == "__main__":
    measure(main, __doc__, rounds=5)
