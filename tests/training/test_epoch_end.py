"""What follows an epoch happens in one order."""

import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytorch_lightning.callbacks import Callback

from rectifiers.runtime.stopping import Stopped, deferring_signals
from rectifiers.training.epoch_end import EpochEnd, EpochMeasure


class Measure(EpochMeasure):
    def measure(self, module: Any) -> dict[str, float]:
        return {"measured": module.weight}


def stand_ins(events: list[Any], rank: int) -> tuple[Any, Any]:
    module = SimpleNamespace(history=[{"epoch": 1}], weight=0.5)
    facts = {"loggers": [], "should_stop": False, "max_epochs": 3, "global_step": 7}
    save = lambda path: events.append((path.name, dict(module.history[-1])))  # noqa: E731
    facts |= {"callbacks": [Callback(), Measure()], "save_checkpoint": save}
    return SimpleNamespace(is_global_zero=rank == 0, **facts), module


@pytest.mark.parametrize(("rank", "shows"), [(0, [("logged", 1)]), (1, [])])
def test_an_epoch_is_measured_then_kept_then_logged(tmp_path, monkeypatch, rank, shows) -> None:
    """A signal is acted on last."""
    events: list[Any] = []
    log = lambda loggers, history: events.append(("logged", len(history)))  # noqa: E731
    monkeypatch.setattr("rectifiers.training.epoch_end.log_history", log)

    def end_of_an_epoch() -> None:
        with deferring_signals():
            signal.raise_signal(signal.SIGTERM)
            EpochEnd(tmp_path).on_train_epoch_end(*stand_ins(events, rank))

    with pytest.raises(Stopped, match="75"):
        end_of_an_epoch()
    assert events == [("last.ckpt", {"epoch": 1, "measured": 0.5}), *shows]


@pytest.mark.parametrize(
    ("step", "is_last", "is_asked", "is_saved"),
    [
        (6, False, False, True),
        (7, False, False, False),
        (7, False, True, True),
        (6, True, False, False),
        (6, True, True, False),
    ],
)
def test_within_an_epoch(tmp_path, step, is_last, is_asked, is_saved) -> None:
    """Every third step is kept, and the one after which a signal ends the run; an epoch's last
    waits for its end."""
    saved: list[Path] = []
    trainer: Any = SimpleNamespace(
        is_last_batch=is_last, global_step=step, save_checkpoint=saved.append
    )

    def step_of_an_epoch() -> None:
        with deferring_signals():
            if is_asked:
                signal.raise_signal(signal.SIGTERM)
            EpochEnd(tmp_path, every_n_steps=3).on_train_batch_end(trainer, Any)

    where = "at its end" if is_last else f"after step {step}"
    with pytest.raises(Stopped) if is_asked else nullcontext() as stopped:
        step_of_an_epoch()
    assert not stopped or stopped.value.where == where
    assert saved == [tmp_path / "last.ckpt"] * is_saved
