"""Lightning as this project needs it; a version that works otherwise fails here first."""

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Callback

from conftest import compose_config
from rectifiers.models.network import ImageNetwork
from rectifiers.runtime.distributed import SINGLE_PROCESS, World
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.stopping import STOP_SIGNALS, deferring_signals
from rectifiers.training import lightning
from rectifiers.training.lightning import check_hardware, fit, isolated
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


def test_ctrl_c_stays_an_interrupt() -> None:
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


def test_fast_run_is_compiled_in_bfloat16(tiny, monkeypatch) -> None:
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
    assert fast.compute["precision"] == "bf16-mixed"
    for key in ("fast", "channels_last", "fused", "compile", "benchmark"):
        assert fast.compute[key] is True
