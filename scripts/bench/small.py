"""An epoch of a small run beside a plain loop over the same network, images and settings.

`python scripts/bench/small.py [rounds]` prints a table and writes results/bench/<machine>.json. One
thread, CPU time. A run's epoch is a fifth of what six epochs take more than one. The loop does
forward, loss, backward, SGD and the error on the validation images after every epoch, and nothing
of a run's: no record, checkpoint, log or progress, no responses of units, no look for losses that
are not finite."""

import itertools
import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from harness import Way, interleave, measure, medians, spread_of, train

from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.cli.composition import composed
from rectifiers.training.build import initial_network
from rectifiers.training.optim import build_sgd

EPOCHS = 6
RUNS = {
    "make train: 14 layers on digits": ("activation=prelu", "init=he"),
    "an MLP on digits of 8 px": ("model=mlp", "data=digits8", "optim=plain"),
}


def epoch_of_a_loop(*overrides: str) -> Way:
    """Return a function that trains and validates for an epoch."""
    config = composed(list(overrides))
    setup, optim = AnalysisSetup(config), config.optim
    network, _ = initial_network(config, setup.data, setup.preprocess)
    optimizer = build_sgd(
        network,
        lr=optim.lr,
        momentum=optim.momentum,
        weight_decay=optim.weight_decay,
        bias_lr_factor=optim.bias_lr_factor,
        slope_weight_decay=optim.slope_weight_decay,
        fused=config.compute.fused,
    )
    epochs = itertools.count()

    def epoch() -> None:
        setup.data.batches.set_epoch(next(epochs))
        network.train()
        for batch in setup.data.train_dataloader():
            optimizer.zero_grad()
            F.cross_entropy(
                network(setup.preprocess(batch.images, batch.shifts)), batch.labels
            ).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            for batch in setup.data.val_dataloader():
                (network(setup.preprocess(batch.images)).argmax(1) != batch.labels).sum().item()

    return epoch


def main(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, overrides in RUNS.items():
        with tempfile.TemporaryDirectory() as place:
            short = (
                *overrides,
                "scheduler=multistep",
                "scheduler.milestones=[]",
                "evaluation=center",
                "logger=csv",
                "threads=1",
            )
            loop = epoch_of_a_loop(*short)

            def run(epochs: int, short: tuple[str, ...] = short, place: str = place) -> Way:
                return lambda: train(place, *short, f"trainer.max_epochs={epochs}")

            ways = {
                "one": run(1),
                "six": run(EPOCHS),
                "loop": lambda loop=loop: [loop() for _ in range(EPOCHS)],
            }
            seconds = interleave(ways, rounds)
        parts = zip(seconds["six"], seconds["one"], seconds["loop"], strict=True)
        times = [(six - one) / (EPOCHS - 1) / (loop / EPOCHS) for six, one, loop in parts]
        found[name] = {
            "loop_ms": 1e3 * medians(seconds)["loop"] / EPOCHS,
            "times_the_loop": spread_of(times),
        }
    return {"runs": found}


if __name__ == "__main__":
    measure(main, __doc__, rounds=5)
