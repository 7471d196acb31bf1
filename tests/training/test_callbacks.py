"""Callbacks of Lightning and of the user, from the configuration."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from conftest import compose_config, same_bits, weights
from cutting import cut
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.training.checks import BY_LAYER, LOGGED, checked_functions
from rectifiers.training.train import first_checkpoint, train
from refusals import refused

STOPPING = ("callbacks=early_stopping", "callbacks.early_stopping.patience=2")
STOPPING += ("optim.lr=1e-9", "trainer.max_epochs=9", "evaluation=center")  # no error falls


class Counter(Callback):
    """A callback of a user's own."""


def test_early_stopping_stands_in_the_record(tiny) -> None:
    record = train(tiny(*STOPPING), {}).record
    assert (record.status, record.stopped_by, record.epochs) == ("finished", "EarlyStopping", 3)
    assert records.load(tiny().runs_dir / record.run / "record.json") == record
    assert train(tiny("trainer.max_epochs=1"), {}).record.stopped_by is None


def test_stopped_run_trains_no_further(tiny, tmp_path, monkeypatch) -> None:
    whole = train(tiny(*STOPPING, f"runs_dir={tmp_path}/whole"), {})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rectifiers.training.train.test", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(*STOPPING), {})
    outcome = train(tiny(*STOPPING), {})
    assert outcome.record.epochs == whole.record.epochs
    assert outcome.record.stopped_by == "EarlyStopping"
    assert same_bits(weights(whole), weights(outcome))


def test_model_checkpoint_keeps_the_best_weights(tiny) -> None:
    outcome = train(tiny("callbacks=[model_checkpoint,early_stopping]", "logger=none"), {})
    (kept,) = (outcome.path.parent / "checkpoints").iterdir()
    assert kept.suffix == ".ckpt"


def test_ckpt_path_continues_the_same_run(tiny, tmp_path: Path) -> None:
    whole = train(tiny("evaluation=center"), {})
    last = whole.path.with_name("last.ckpt").rename(tmp_path / "kept.ckpt")
    whole.path.unlink()
    again = train(tiny("evaluation=center", f"ckpt_path={last}"), {})
    assert again.record.history[-1]["train_loss"] == whole.record.history[-1]["train_loss"]
    assert again.record.epochs == whole.record.epochs
    with refused(f"belongs to run {whole.record.run}, and this"):
        train(tiny("evaluation=center", "seed=1", f"ckpt_path={last}"), {})


def test_killed_command_with_ckpt_path_continues(tiny, tmp_path: Path) -> None:
    asked = ("evaluation=center", "checkpoint.every_n_steps=2")
    cut(tiny(*asked), 9)
    folder = tiny().runs_dir / run_id(science(tiny(*asked)))
    early = shutil.copy(folder / "last.ckpt", tmp_path / "early.ckpt")
    cut(tiny(*asked, f"ckpt_path={early}"), 25)
    other = shutil.copy(early, tmp_path / "other.ckpt")
    last = folder / "last.ckpt"
    # what began at `early` wrote the last one; with `other` the user goes back
    for chosen, path in ((None, last), (str(early), last), (str(other), other)):
        first, content = first_checkpoint(folder, chosen)  # type: ignore[misc]
        assert first == str(path)
        assert content["global_step"] == torch.load(path, weights_only=True)["global_step"]


class Stopper(Callback):
    """A callback that ends the training without a word."""

    def on_train_epoch_end(self, trainer: Trainer, *_: object) -> None:
        trainer.should_stop = True


def timer(duration: str, interval: str) -> tuple[str, ...]:
    return (
        "+callbacks.timer._target_=pytorch_lightning.callbacks.Timer",
        f"+callbacks.timer.duration={{{duration}}}",
        f"+callbacks.timer.interval={interval}",
    )


def test_whoever_stops_a_run_is_named(tiny) -> None:
    own = f"+callbacks.mine._target_={Stopper.__module__}.{Stopper.__name__}"
    at_once = (*STOPPING, "+callbacks.early_stopping.stopping_threshold=100")
    late = timer("hours: 1", "epoch")
    for stopping, name in (
        (timer("milliseconds: 1", "epoch"), "Timer"),
        ((own, *late), "a callback"),
        ((*at_once, *late), "EarlyStopping"),
        ((*STOPPING, *timer("milliseconds: 1", "epoch")), "Timer"),
    ):
        record = train(tiny("trainer.max_epochs=3", *stopping), {}).record
        assert (record.epochs, record.stopped_by) == (1, name)


@pytest.mark.parametrize(
    ("interval", "epochs", "stopped_by"),
    [("epoch", 3, "Timer"), ("step", 1, "Timer"), ("epoch", 1, None)],
)
def test_run_without_time_has_an_epoch(tiny, interval: str, epochs: int, stopped_by) -> None:
    asked = (f"trainer.max_epochs={epochs}", *timer("seconds: 0", interval))
    record = train(tiny(*asked), {}).record
    assert (record.epochs, record.stopped_by) == (1, stopped_by)


def test_time_may_be_over_on_continuing(tiny, monkeypatch) -> None:
    asked = ("checkpoint.every_n_steps=2", *timer("seconds: 1", "step"))
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=0.0)
    monkeypatch.setattr("pytorch_lightning.callbacks.timer.time", clock)

    class Slow(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
            if trainer.global_step == 14:  # of the second epoch
                clock.now = 2.0

    cut(tiny(*asked), 14, Slow())
    record = train(tiny(*asked), {}).record
    assert (record.epochs, record.stopped_by) == (2, "Timer")


def test_own_callback_may_log_the_monitored() -> None:
    own = f"+callbacks.mine._target_={Counter.__module__}.{Counter.__name__}"
    monitored = "callbacks.early_stopping.monitor=mine/number"
    checked_functions(compose_config("callbacks=early_stopping", monitored, own))


def test_number_that_no_layer_has_is_named(tiny) -> None:
    config = tiny("callbacks=early_stopping", "callbacks.early_stopping.monitor=slope/nowhere")
    with refused("metric `slope/nowhere` which is not available"):
        train(config, {})


@pytest.mark.parametrize("kind", ["TQDMProgressBar", "RichProgressBar"])
def test_progress_bar_may_be_chosen(tiny, kind: str) -> None:
    name = f"+callbacks.bar._target_=pytorch_lightning.callbacks.{kind}"
    assert train(tiny("trainer.max_epochs=1", "evaluation=center", name), {}).record.epochs == 1


@pytest.mark.parametrize(
    ("kind", "setting"), [("StochasticWeightAveraging", "swa_lrs"), ("EMAWeightAveraging", "decay")]
)
def test_averages_that_no_checkpoint_holds_are_refused(tiny, kind: str, setting: str) -> None:
    name = f"+callbacks.mine._target_=pytorch_lightning.callbacks.{kind}"
    with refused(r"averages the weights .*; leave it out"):
        train(tiny(name, f"callbacks.mine.{setting}=0.01"), {})


def test_callbacks_may_freeze_what_another_measures(tiny) -> None:
    greedy = (
        "callbacks=[greedy,zigzag]",
        "callbacks.greedy.epochs_a_layer=1",
        "trainer.max_epochs=2",
        "evaluation=center",
    )
    first, _ = train(tiny(*greedy), {}).record.history
    assert sum(first[name] is None for name in first if name.startswith("signs/")) == 1


def test_what_may_be_monitored_is_what_is_logged(tiny) -> None:
    seen: set[str] = set()

    class Look(Callback):
        def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
            seen.update(trainer.callback_metrics)

    train(tiny("trainer.max_epochs=1", "evaluation=center"), {}, callbacks=[Look()])
    assert set(LOGGED) <= seen
    assert {name for name in seen if "/" in name and not name.startswith(BY_LAYER)} <= set(LOGGED)
