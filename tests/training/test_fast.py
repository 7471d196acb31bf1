"""`fast`: the fastest way that a GPU has, which is a run of its own; what of it can be seen
without a GPU."""

from collections.abc import Callable

import pytest
import torch

from conftest import compose_config
from rectifiers.models.network import ImageNetwork
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.distributed import SINGLE_PROCESS
from rectifiers.runtime.errors import InputError
from rectifiers.training import preflight
from rectifiers.training.lightning import isolated
from rectifiers.training.preflight import check_hardware
from rectifiers.training.train import train

Tiny = Callable[..., RunConfig]


def tf32() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_float32_is_float32_unless_a_run_is_fast() -> None:
    before = tf32()
    for fast in (False, True):
        with isolated(compose_config("trainer=gpu", f"fast={str(fast).lower()}")):
            assert tf32() == (fast, fast)
        assert tf32() == before


@pytest.mark.parametrize("key", ["fast", "trainer.benchmark"])
def test_what_is_for_gpus_is_refused_elsewhere(key: str, tiny: Tiny) -> None:
    with pytest.raises(
        InputError, match=rf"^{key}=true is for GPUs, .*; choose trainer=gpu or leave"
    ):
        train(tiny(f"{key}=true"), {})


def test_a_gpu_without_bfloat16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
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
            with pytest.raises(
                InputError, match="needs a GPU with bfloat16, which Tesla T4 has not; leave it out"
            ):
                check_hardware(config, SINGLE_PROCESS)


def test_a_fast_run_is_compiled_into_graphs_in_bfloat16_and_its_record_says_so(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[dict] = []
    monkeypatch.setattr(preflight, "check_hardware", lambda *_: None)  # on the processor, for once
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
