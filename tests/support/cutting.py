"""A training that ends before its time, as by a kill."""

from typing import Any

import pytest
from pytorch_lightning.callbacks import Callback

from rectifiers.runs.config import RunConfig
from rectifiers.training.train import train


class Cut(BaseException):
    """A kill: nothing catches it."""


class CutBefore(Callback):
    """Ends a training before a step, as a kill would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise Cut


def cut(config: RunConfig, step: int, *callbacks: Callback) -> None:
    """Train until a step, and end as a kill would."""
    with pytest.raises(Cut):
        train(config, {}, callbacks=[*callbacks, CutBefore(step)])
