"""Lightning as this project needs it; a version that works otherwise fails here first."""

import logging
import signal
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback

from rectifiers.runtime.signals import STOP_SIGNALS, deferring_signals
from rectifiers.training.lightning import LOGGERS, fit, quiet
from rectifiers.training.train import train


def test_lightning_has_the_private_name_that_is_replaced() -> None:
    trainer = Trainer(
        logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    assert callable(trainer._signal_connector.register_signal_handlers)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need the main thread"
)
def test_a_training_keeps_the_handlers_of_signals(tiny) -> None:
    handlers: list[Any] = []

    class Looks(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            handlers.append([signal.getsignal(asking) for asking in STOP_SIGNALS])

    with deferring_signals():
        before = [signal.getsignal(asking) for asking in STOP_SIGNALS]
        train(tiny("trainer.max_epochs=1"), {}, callbacks=[Looks()])
    assert handlers
    assert all(each == before for each in handlers)


def test_ctrl_c_stays_an_interrupt_and_other_exits_stay_exits() -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise SystemExit(1) from None  # as Lightning does

    def exits(*_: Any, **__: Any) -> None:
        raise SystemExit(3)

    parts: Any = (None, None, None)
    with pytest.raises(KeyboardInterrupt):
        fit(SimpleNamespace(fit=interrupted), *parts)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="3"):
        fit(SimpleNamespace(fit=exits), *parts)  # type: ignore[arg-type]


def test_quiet_hides_lightnings_advice_alone_and_puts_levels_back() -> None:
    levels = [logging.getLogger(name).level for name in LOGGERS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn(
                "The dataloader does not have many workers which may be a bottleneck", stacklevel=1
            )
            warnings.warn("another matter", stacklevel=1)
            assert not logging.getLogger("pytorch_lightning").isEnabledFor(logging.INFO)
    assert [str(each.message) for each in caught] == ["another matter"]
    assert [logging.getLogger(name).level for name in LOGGERS] == levels
