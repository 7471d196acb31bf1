"""What a card measures agrees with what is known of rectifiers."""

import math

import pytest
from torch import nn

from conftest import compose_config
from rectifiers.activations.modules import CReLU
from rectifiers.benchmark import measurements
from rectifiers.benchmark.measurements import cost, theory
from rectifiers.gains import gain


@pytest.mark.process
def test_gelu_repels_and_tanh_attracts() -> None:
    gelu, tanh = (theory(module, gain(module) ** 2) for module in (nn.GELU(), nn.Tanh()))
    assert (gelu["fixed_point"], tanh["fixed_point"]) == ("repels", "attracts")


def test_function_of_several_numbers_has_gain_alone() -> None:
    assert theory(CReLU(), 1.0)["gain"] == pytest.approx(math.sqrt(2))


def test_activation_that_keeps_more_costs_more(monkeypatch, fitted) -> None:
    monkeypatch.setattr(measurements, "ROUNDS", 3)
    network = ("model=mlp", "model.depth=3", "model.hidden=16", "data=digits8", "data.split_seed=0")
    relu, mish = (
        compose_config(*network, f"activation={name}", f"cache_dir={fitted}")
        for name in ("relu", "mish")
    )
    assert cost({"entry": relu, "relu": relu})["bytes_ratio"] == 1
    ratios = cost({"entry": mish, "relu": relu})
    assert ratios["bytes_ratio"] > 1
    seconds = ratios["seconds_ratio"]
    assert 0 < seconds["low"] <= seconds["median"] <= seconds["high"]
