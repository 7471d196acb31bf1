"""Lightning as this project needs it; a version that works otherwise fails here first."""

import itertools
import logging
import re
import signal
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Callback

from conftest import compose_config
from rectifiers.models.network import ImageNetwork
from rectifiers.runtime.distributed import SINGLE_PROCESS, World
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import STOP_SIGNALS, deferring_signals
from rectifiers.training import lightning
from rectifiers.training.checkpoints import ProgressLines
from rectifiers.training.lightning import LOGGERS, check_hardware, fit, isolated, quiet
from rectifiers.training.train import train


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


@pytest.mark.parametrize(
    ("overrides", "here"),
    [
        (["trainer.devices=4"], SINGLE_PROCESS),
        (["trainer.num_nodes=2", "trainer.devices=8"], SINGLE_PROCESS),
        (["trainer.devices=3"], World(1, 4, 1, 2)),
    ],
)
def test_other_processes_than_were_started_are_refused(overrides: list[str], here: World) -> None:
    place = rf"{overrides[-1]} .* nodes={here.nodes} with {here.size // here.nodes} each"
    with pytest.raises(InputError, match=place):
        check_hardware(compose_config(*overrides), here)


def tf32() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_float32_is_float32_unless_a_run_is_fast() -> None:
    before = tf32()
    for fast in (False, True):
        with isolated(compose_config("trainer=gpu", f"fast={str(fast).lower()}")):
            assert tf32() == (fast, fast)
        assert tf32() == before


@pytest.mark.parametrize(
    "override", ["fast=true", "trainer.benchmark=true", "trainer.precision=16-mixed"]
)
def test_what_is_for_gpus_is_refused_elsewhere(override: str, tiny) -> None:
    with pytest.raises(InputError, match=f"^{override} is for GPUs, .*; choose trainer=gpu"):
        train(tiny(override), {})


def test_a_missing_gpu_is_named(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"^trainer\.accelerator=gpu needs a GPU"):
        check_hardware(compose_config("trainer=gpu"), SINGLE_PROCESS)


def test_a_gpu_without_bfloat16_is_named(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    for supported in (True, False):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda *, including_emulation, is_so=supported: is_so
        )
        config = compose_config("trainer=gpu", "fast=true")
        if supported:
            check_hardware(config, SINGLE_PROCESS)
        else:
            with pytest.raises(InputError, match=r"needs a GPU with bfloat16, which.*leave it out"):
                check_hardware(config, SINGLE_PROCESS)


def test_a_fast_run_is_compiled_into_graphs_in_bfloat16_and_its_record_says_so(
    tiny, monkeypatch
) -> None:
    compiled: list[dict] = []
    monkeypatch.setattr(lightning, "check_hardware", lambda *_: None)  # on the processor, for once
    monkeypatch.setattr(ImageNetwork, "compile", lambda _, **how: compiled.append(how))
    seen: set[torch.dtype] = set()
    forward = ImageNetwork.__call__

    def watched(network: ImageNetwork, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = forward(network, x)
        seen.add(scores.dtype)
        return scores

    monkeypatch.setattr(ImageNetwork, "__call__", watched)
    plain = train(tiny("trainer.max_epochs=1"), {}).record
    assert seen == {torch.float32}
    assert not compiled
    seen.clear()
    fast = train(tiny("trainer.max_epochs=1", "fast=true"), {}).record
    assert seen == {torch.bfloat16}
    assert compiled == [{"options": {"fallback_random": True, "triton.cudagraphs": True}}]
    assert fast.run != plain.run
    assert fast.compute["fast"] is True
    assert {
        key: fast.compute[key]
        for key in ("precision", "channels_last", "fused", "compile", "benchmark")
    } == {
        "precision": "bf16-mixed",
        "channels_last": True,
        "fused": True,
        "compile": True,
        "benchmark": True,
    }
