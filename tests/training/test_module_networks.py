"""A run of a network that is no chain of rows."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from conftest import compose_config, places, same_bits
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.quadrature import Moments
from rectifiers.runs import record as records
from rectifiers.training.checks import checked_functions
from rectifiers.training.train import train
from refusals import refused

RESNET = ("data=digits8", "model=resnet20", "model.width=0.25", "model.blocks=1")
RESNET += ("optim=plain", "trainer.max_epochs=1", "logger=none")


def test_a_residual_network_is_trained_tested_and_recorded(tmp_path: Path) -> None:
    config = compose_config(*RESNET, "activation=prelu", *places(tmp_path))
    record = records.load(train(config, {"model": "resnet20"}).path)
    assert record.network.depth == 8
    names = ["act1", *(f"stage{i}_1.act{j}" for i in (1, 2, 3) for j in (1, 2))]
    assert list(record.slopes) == names
    layers = [entry.layer for entry in record.init_report][:3]
    assert layers == ["conv1", "stage1_1.conv1", "stage1_1.conv2"]
    assert set(record.protocols) == {"center", "ten_view"}


class BiasPerElement(nn.Module):
    """An activation whose state is known when the first map arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.UninitializedParameter()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.bias, nn.UninitializedParameter):
            self.bias.materialize(x.shape[1:])
            nn.init.zeros_(self.bias)
        return (x + self.bias).relu()

    def moments(self) -> Moments:
        return Moments(0.5, 0.5, 1.0)


def bias_per_element(channels: int) -> nn.Module:
    return BiasPerElement()


@pytest.mark.parametrize(
    "activation", ["crelu", "glu", "relu activation._target_=test_module_networks.bias_per_element"]
)
def test_activations_of_several_numbers_are_trained(tmp_path, activation, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    # glu's fixed point repels: no deep chain of it
    small = ("data=digits8", "model=mini", "model.stage2=2", "model.stage3=2")
    options = (*small, "optim=plain", "trainer.max_epochs=1", "logger=none", "evaluation=[dense]")
    config = compose_config(*options, *f"activation={activation}".split(), *places(tmp_path))
    record = records.load(train(config, {}).path)
    # ten classes; the network has learned something
    assert record.protocols["dense"].top1_error_pct < 88


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("evaluation=[dense]", "evaluation.dense .*network of rows"),
        ("evaluation=[dense_and_multi_view]", "evaluation.dense_and_multi_view .*network of rows"),
        ("init.fc_std=[0.1]", "init.fc_std .*networks of rows"),
        ("callbacks=greedy", "callbacks.greedy .*networks of rows"),
    ],
)
def test_a_module_refuses_what_needs_rows(override: str, named: str) -> None:
    with refused(named):
        checked_functions(compose_config(*RESNET, override))


@pytest.mark.parametrize(
    "settings", [("model=mlp",), ("model=mini",), ("model=resnet20", "model.width=0.5")], ids=str
)
def test_run_with_empirical_start_has_unit_responses(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    start = ("activation=gelu", "init.mode=empirical", "init.fc_std=null")
    config = compose_config("data=digits8", *settings, *start, f"cache_dir={tmp_path}")
    setup = AnalysisSetup(config)
    network, report = setup.initial_network(config.seed)
    again, _ = setup.initial_network(config.seed)
    assert same_bits(network.state_dict(), again.state_dict())
    assert len(report) == sum(p.dim() > 1 for p in network.parameters())
    json.dumps([vars(entry) for entry in report])
    x = setup.preprocess(setup.data.first_batch(config.seed))
    with torch.no_grad():
        second_moment = float(network.train()(x).double().square().mean())
    assert second_moment == pytest.approx(1, rel=0.05)
    assert all(math.isfinite(entry.std_asked) for entry in report)
