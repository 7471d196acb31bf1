"""The lines that stand for a bar where stderr is no terminal."""

import itertools
import re

import pytest

from rectifiers.training import lightning
from rectifiers.training.checkpoints import ProgressLines
from rectifiers.training.train import train


@pytest.mark.parametrize("seconds_per_reading", [0.001, 7.0])
def test_a_line_every_minute_tells_where_the_epoch_is(
    tiny, monkeypatch, capsys, seconds_per_reading: float
) -> None:
    """The clock moves on by so much with every step: 10 steps and 450 images of validation per
    epoch."""
    readings = itertools.count()
    monkeypatch.setattr(
        lightning,
        "ProgressLines",
        lambda batch: ProgressLines(batch, lambda: next(readings) * seconds_per_reading),
    )
    train(tiny("trainer.max_epochs=2", "optim.lr=0.05", "activation=relu"), {})
    lines = capsys.readouterr().err.splitlines()
    epochs = [
        line
        for line in lines
        if re.match(r"epoch \d/2  loss .* val top-1 error .* images per second  learning", line)
    ]
    assert len(epochs) == 2
    assert epochs[-1].endswith("learning rate 0.05  0:00:00 left")
    number = r"[\d.,e+]+"
    shown = [
        re.fullmatch(
            rf"epoch \d/2, step (\d+) of (\d+): loss {number}, {number} images per second, "
            r"learning rate 0\.05, "
            r"[\d:]+ left",
            line,
        )
        for line in lines
        if ", step " in line
    ]
    assert all(shown)
    assert len(shown) == (0 if seconds_per_reading < 1 else pytest.approx(3, abs=1))
