"""Lightning as this project needs it; a version that works otherwise fails here first."""

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Callback
from torch import nn

from conftest import compose_config, numbers, places
from photos import write_folder
from rectifiers.models.network import ImageNetwork
from rectifiers.runtime.distributed import SINGLE_PROCESS, World
from rectifiers.runtime.stopping import STOP_SIGNALS, deferring_signals
from rectifiers.training import lightning, recording
from rectifiers.training.lightning import check_hardware, fit, isolated
from rectifiers.training.train import train
from refusals import refused


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
    with refused(place):
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
    with refused(f"^{override} is for GPUs, .*; choose trainer=gpu"):
        train(tiny(override), {})


@pytest.mark.parametrize("more", [(), ("activation=silu", "model.depth=3")])
def test_compiled_validation_runs_the_network_once(tiny, monkeypatch, more) -> None:
    """With the scores and the responses of a run that is not compiled."""
    plain = train(tiny("trainer.max_epochs=1", *more), {}).record
    monkeypatch.setattr(nn.Module, "compile", lambda *_, **__: None)
    seen: list[int] = []

    class Counts(Callback):
        def on_train_start(self, _: Any, module: Any) -> None:
            module.network.head[-1].register_forward_pre_hook(self.count)

        def count(self, layer: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            if not layer.training:
                seen.append(len(inputs[0]))

        def on_validation_end(self, *_: Any) -> None:
            assert sum(seen) == plain.images.val

    asked = ("trainer.max_epochs=1", "compile=true", "rerun=true", *more)
    compiled = train(tiny(*asked), {}, callbacks=[Counts()]).record
    assert seen
    assert numbers(compiled)["history"] == numbers(plain)["history"]


@pytest.mark.parametrize("protocol", ["center", "ten_view", "dense", "multi_view"])
def test_cudnn_searches_where_shapes_are_fixed(monkeypatch, tmp_path, protocol: str) -> None:
    monkeypatch.setattr(lightning, "check_hardware", lambda *_: None)  # on the processor, for once
    searches: list[bool] = []

    def evaluate(*arguments: Any, **settings: Any) -> Any:
        searches.append(torch.backends.cudnn.benchmark)
        return original(*arguments, **settings)

    original = recording.evaluate
    monkeypatch.setattr(recording, "evaluate", evaluate)
    root = write_folder(tmp_path / "photos")
    options = f"""model=mini data=folder data.root={root} data.batch_size=4 data.resize_px=10
        data.crop_px=8 optim=plain trainer.max_epochs=1 trainer.benchmark=true logger=none
        evaluation={protocol}"""
    train(compose_config(*options.split(), *places(tmp_path)), {})
    assert searches == [protocol in ("center", "ten_view")]
    assert not torch.backends.cudnn.benchmark


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
