"""The loggers of real runs: the record's numbers under their public names, and each epoch once."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.loggers import Logger

from cutting import cut
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.distributed import World
from rectifiers.tracking.loggers import open_loggers
from rectifiers.training.epoch_end import EpochEnd
from rectifiers.training.train import train
from tracking.reading import csv_rows, tensorboard_scalars, wandb_rows, wandb_summary

CHOICES = {"activation": "prelu", "init": "he", "model": "mlp", "data": "digits"}
ALL = ("logger=many_loggers", "logger.wandb.mode=offline")


def check_each_epoch_once(folder: Path, record: TrainingRecord) -> None:
    """Check that all three loggers hold the record's numbers, each epoch once."""
    epochs = list(range(1, record.epochs + 1))
    errors = record.curve("val/top1_error_pct")
    rows, scalars, sent = csv_rows(folder), tensorboard_scalars(folder), wandb_rows(folder)
    assert [int(row["epoch"]) for row in rows] == epochs
    assert [float(row["val/error_top1"]) for row in rows] == errors
    assert [step for step, _ in scalars["val/error_top1"]] == epochs
    single = [float(np.float32(error)) for error in errors]  # TensorBoard's precision
    assert [value for _, value in scalars["val/error_top1"]] == single
    assert [row["epoch"] for row in sent] == epochs
    assert [row["val/error_top1"] for row in sent] == errors
    summary = wandb_summary(folder)
    for name, result in record.protocols.items():
        tested = f"test/{name}/error_top1"
        assert float(rows[-1][tested]) == summary[tested] == result.top1_error_pct
        assert scalars[tested] == [(record.epochs, float(np.float32(result.top1_error_pct)))]


@pytest.mark.process
def test_three_loggers_hold_the_numbers_of_the_record(tiny, capfd) -> None:
    outcome = train(tiny(*ALL, "tags=[trial]", "trainer.max_epochs=2"), CHOICES)
    folder, record = outcome.path.parent, outcome.record
    check_each_epoch_once(folder, record)
    first, last = csv_rows(folder)
    assert not first["test/ten_view/error_top5"]
    assert float(last["test/ten_view/error_top5"]) == record.protocols["ten_view"].top5_error_pct
    for key in ("lr", "train/loss", "val/loss", "val/error_top5", "slope/fc_1"):
        assert key in last
        assert key in tensorboard_scalars(folder)
        assert key in wandb_rows(folder)[-1]
    assert "trial" in (folder / "tensorboard" / "hparams.yaml").read_text()
    assert "wandb sync " in capfd.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("moment", ["before the checkpoint", "before the loggers", "after them"])
def test_interrupted_run_logs_epochs_once(tiny, monkeypatch, moment: str) -> None:
    options = (*ALL, "evaluation=center")
    original = EpochEnd.on_train_epoch_end

    def interrupted(self: EpochEnd, trainer: Any, module: Any) -> None:
        if len(module.history) == 2 and moment == "before the checkpoint":
            raise KeyboardInterrupt
        original(self, trainer, module)
        if len(module.history) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(EpochEnd, "on_train_epoch_end", interrupted)
        if moment == "before the loggers":
            patched.setattr("rectifiers.training.epoch_end.log_history", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(*options), CHOICES)
    outcome = train(tiny(*options), CHOICES)
    check_each_epoch_once(outcome.path.parent, outcome.record)


def test_resumed_run_logs_earlier_epochs_first(tiny) -> None:
    config = tiny("logger=[csv,tensorboard]")
    for _ in range(2):
        cut(config, 20)  # after two epochs of ten steps
        folder = config.runs_dir / "latest"
        assert [step for step, _ in tensorboard_scalars(folder)["lr"]] == [1, 2]
        assert [row["epoch"] for row in csv_rows(folder)] == ["1", "2"]


def test_a_later_test_is_logged_beside_others(tiny) -> None:
    options = ("logger=[csv,tensorboard]", "trainer.max_epochs=1")
    folder = train(tiny(*options, "evaluation=center"), CHOICES).path.parent
    assert "test/ten_view/error_top1" not in csv_rows(folder)[0]
    train(tiny(*options, "evaluation=[center,ten_view]"), CHOICES)
    (row,) = csv_rows(folder)
    scalars = tensorboard_scalars(folder)
    for name in ("center", "ten_view"):
        assert row[f"test/{name}/error_top1"]
        assert len(scalars[f"test/{name}/error_top1"]) == 1
    assert len(scalars["val/error_top1"]) == 1


def test_callbacks_read_the_numbers_of_the_history(tiny) -> None:
    class Reads(Callback):
        def on_train_end(self, trainer: Any, module: Any) -> None:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            last = module.history[-1]
            named = {"val/error_top1": "val/top1_error_pct", "train/loss": "train_loss", "lr": "lr"}
            for name, key in named.items():
                seen[name] = metrics[name] == pytest.approx(last[key], rel=1e-6)

    seen: dict[str, bool] = {}
    stopping = EarlyStopping("val/error_top1", patience=1, min_delta=100.0)
    train(tiny("trainer.max_epochs=2"), CHOICES, callbacks=[Reads(), stopping])
    assert seen == {"val/error_top1": True, "train/loss": True, "lr": True}
    assert stopping.wait_count == 1


class Recorder(Logger):
    """A logger of a user's own, chosen by `_target_`."""

    calls: list[tuple[str, Any]]

    def __init__(self, save_dir: str, suffix: str = "") -> None:
        super().__init__()
        Recorder.calls = [("save_dir", Path(save_dir).name + suffix)]

    name = version = property(lambda self: "recorder")

    def log_hyperparams(self, *arguments: Any, **options: Any) -> None:
        self.calls.append(("config", arguments[0]["config"]["model"]["hidden"]))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.calls.append((min(metrics), step))

    def finalize(self, status: str) -> None:
        self.calls.append(("end", status))


def test_a_users_logger_gets_epochs_and_results(tiny, monkeypatch) -> None:
    config = tiny("trainer.max_epochs=2", "evaluation=center")
    target = {"_target_": "recorder_module.Recorder", "suffix": "!"}
    config = config.replaced({"logger": {"own": target}})
    monkeypatch.setitem(sys.modules, "recorder_module", SimpleNamespace(Recorder=Recorder))
    outcome = train(config, CHOICES)
    start, configured, *rest = Recorder.calls
    assert (start, configured) == (("save_dir", f"{outcome.record.run}!"), ("config", 32))
    assert [call for call in rest if call[0] != "end"] == [
        ("active_share/fc_1", 1),
        ("active_share/fc_1", 2),
        ("test/center/error_top1", 2),
    ]
    assert rest[-1] == ("end", "success")


def test_other_ranks_log_nothing(tiny, monkeypatch) -> None:
    monkeypatch.setattr("rectifiers.tracking.loggers.world", lambda: World(1, 2, 1))
    config = tiny("logger=[csv,tensorboard]")
    with open_loggers(config, {}, config.runs_dir, CHOICES, None) as loggers:  # type: ignore[arg-type]
        for logger in loggers:
            logger.log_metrics({"a": torch.tensor(1.0)}, 1)
    assert not config.runs_dir.exists()
