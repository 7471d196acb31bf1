"""A claim of two arms, and records of its runs, made up so that the truth is known."""

from collections.abc import Sequence
from typing import Any

from made_up import NETWORK, SCIENCE, epoch, result, training
from rectifiers.runs.record import TrainingRecord

BASE = [5.0, 7.0, 6.0, 9.0, 4.0]  # seeds differ by more than arms do
DESCRIBED = """
statement: The better arm is better
source: nowhere
whose: ours
seeds: 5
arms: {better: [optim.lr=1], worse: []}
tests:
  - says: lower error
    measure: error
    of: better
    minus: worse
    supported: {below: -0.2}
    contradicted: {above: 0}
"""


LOST = {"status": "diverged", "diverged": {"step": 7, "layer": "out"}, "protocols": {}}
LOST |= {"history": [], "images_per_second": None}


def science(arm: str, seed: int) -> dict[str, Any]:
    data = {"crop_px": 8, "split_seed": seed, "batch_size": 128}
    return SCIENCE | {"seed": seed, "data": data, "optim": {"lr": float(len(arm))}}


def record(
    arm: str, seed: int, error: float, losses: Sequence[float | None] = (2.0, 1.0, 0.4), **more: Any
) -> TrainingRecord:
    curve = {"val/top1_error_pct": error}
    return training(
        **{
            "choices": {"claim": "made_up", "data": "digits8", "model": "mlp"},
            "science": science(arm, seed),
            "network": NETWORK | {"classes": 10, "depth": 3, "parameters": 1000},
            "history": [epoch(i + 1, train_loss=loss, **curve) for i, loss in enumerate(losses)],
            "protocols": {"center": result(10_000 - round(100 * error), 10_000)},
            "images": {"train": 1347, "val": 10_000, "test": None},
            "images_per_second": 100.0,
        }
        | more
    )


def runs(better: list[float], worse: list[float]) -> list[TrainingRecord]:
    own = [record("better", seed, error) for seed, error in enumerate(better)]
    return own + [record("worse", seed, error) for seed, error in enumerate(worse)]
