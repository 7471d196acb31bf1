"""The report says when a network will not train, and mode="empirical" starts the ones it can."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conftest import compose_config, same_bits
from rectifiers import InputError, initialize, stability
from rectifiers import activations as A
from rectifiers.activations.modules import outputs, pieces
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.runs.identity import run_id, science

DEPTH, WIDTH = 50, 256


def batch(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Cube(nn.Module):
    """max(0, y)^3, whose variance map repels too strongly for any start."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() ** 3


def chain(activation: nn.Module, depth: int = DEPTH, *, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    size = WIDTH
    for _ in range(depth - 1):
        layers += [nn.Linear(size, WIDTH * pieces(activation), bias=bias), activation]
        size = WIDTH * outputs(activation)
    return nn.Sequential(*layers, nn.Linear(size, WIDTH, bias=bias)).eval()


@torch.no_grad()
def second(model: nn.Module, x: Tensor) -> float:
    return float(model(x).double().square().mean())


@pytest.mark.parametrize(
    "name", ["relu", "tanh", "gelu", "silu", "mish", "hardswish", "glu", "noisy_relu"]
)
def test_empirical_start_keeps_the_second_moment(name: str) -> None:
    """Of other inputs, and of larger ones."""
    model, x = chain(getattr(A, name)(WIDTH)), batch(64, WIDTH)
    report = initialize(model, x, mode="empirical", seed=0)
    for inputs in (x, batch(64, WIDTH, seed=10), 1.1 * x):
        assert 1 / 4 < second(model, inputs) < 4
    assert report.check() is report


def test_activations_whose_fixed_point_repels_are_warned_of() -> None:
    model = chain(nn.SiLU())
    report = initialize(model, (64, WIDTH))
    assert second(model, batch(64, WIDTH)) > 1e3
    lost, unstable = report.warnings
    assert "explodes" in lost
    for word in ("not stable in depth", 'mode="empirical"', "normalisation", "residual", "SiLU"):
        assert word in unstable
    growth = max(row.growth for row in report.layers)
    assert growth == pytest.approx(stability("silu", DEPTH).error_growth, rel=0.5)
    with pytest.raises(InputError, match="not stable in depth"):
        report.check()
    assert "warning: " in str(report)
    assert not initialize(chain(nn.SiLU(), 6), (64, WIDTH)).warnings
    normed = nn.Sequential(
        *(m for _ in range(40) for m in (chain(nn.SiLU(), 1), nn.LayerNorm(WIDTH), nn.SiLU()))
    )
    assert not initialize(normed, (64, WIDTH)).warnings


@pytest.mark.parametrize("mode", ["forward", "empirical"])
def test_what_no_start_cures_is_said(mode: str) -> None:
    sentences = initialize(chain(Cube()), (64, WIDTH), mode=mode).warnings
    assert any("no start cures it" in sentence for sentence in sentences)
    assert all('mode="empirical"' not in s for s in sentences if "no start" in s)
    without = initialize(chain(nn.SiLU(), bias=False), (64, WIDTH), mode=mode).warnings
    assert any("without biases" in sentence for sentence in without)


def test_vanishing_responses_and_skipped_layers_are_warned_of() -> None:
    report = initialize(chain(nn.ReLU()), (64, WIDTH), init="lecun")
    assert ["vanishes" in sentence for sentence in report.warnings] == [True]
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU())
    model.register_parameter("table", nn.Parameter(torch.ones(4, 4)))
    report = initialize(model, (64, WIDTH))
    assert list(report.left) == ["table"]
    assert not report.warnings  # no layer
    model[0].unused = nn.Linear(4, 4)
    (sentence,) = initialize(model, (64, WIDTH)).warnings
    assert all(word in sentence for word in ("left as they were", "0.unused.weight", "report.left"))
    zeros = initialize(nn.Linear(WIDTH, 8), (64, WIDTH), init="zeros").warnings
    assert "vanishes" in zeros[0]


class Shared(nn.Module):
    """One layer that is used twenty times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(20):
            x = nn.functional.silu(self.layer(x))
        return x


@pytest.mark.parametrize("mode", ["forward", "empirical"])
def test_shared_layer_is_warned_of_at_last_use(mode: str) -> None:
    (sentence,) = initialize(Shared(), (64, WIDTH), mode=mode).warnings
    assert all(word in sentence for word in ("vanishes", "layer.weight", "at its last use"))
    assert "mode=" not in sentence  # which changes nothing of it


def test_borders_are_measured_and_corrected() -> None:
    model = nn.Sequential(
        *(m for _ in range(12) for m in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()))
    )
    closed, empirical = (
        initialize(model, (16, 32, 2, 2), mode=mode) for mode in ("forward", "empirical")
    )
    assert closed.layers[-1].measured < 0.05
    for row in empirical.layers:
        assert row.measured == pytest.approx(1, rel=1e-4)
    assert empirical.layers[-1].std == pytest.approx(closed.layers[-1].std * 1.5, rel=0.3)


def test_a_norm_by_hand_settles_what_came_before() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(40))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = nn.functional.silu(layer(x))
                x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return x

    report = initialize(Normed(), (64, WIDTH), mode="empirical")
    assert max(row.growth for row in report.layers) < 2
    assert not report.warnings


def test_a_residual_network_needs_no_biases() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(40))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + layer(nn.functional.silu(x))
            return x

    model = Residual()
    assert not initialize(model, (64, WIDTH), mode="empirical").warnings
    assert not any(layer.bias.any() for layer in model.layers)


DIGITS = ("data=digits8", "logger=none", "data.num_workers=0")


@pytest.mark.parametrize(
    "settings", [("model=mlp",), ("model=mini",), ("model=resnet20", "model.width=0.5")], ids=str
)
def test_run_with_empirical_start_has_unit_responses(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    given = (*DIGITS, *settings, "activation=gelu", "init.mode=empirical", "init.fc_std=null")
    config = compose_config(*given, f"cache_dir={tmp_path}")
    setup = AnalysisSetup(config)
    network, report = setup.initial_network(config.seed)
    again, _ = setup.initial_network(config.seed)
    assert same_bits(network.state_dict(), again.state_dict())
    assert len(report) == sum(p.dim() > 1 for p in network.parameters())
    json.dumps([vars(entry) for entry in report])
    x = setup.preprocess(setup.data.first_batch(config.seed))
    assert second(network.train(), x) == pytest.approx(1, rel=0.05)
    assert all(math.isfinite(entry.std_asked) for entry in report)


def test_empirical_mode_alone_is_part_of_the_id() -> None:
    usual, same, other = (
        science(compose_config(*DIGITS, "model=mlp", "init.fc_std=null", *more))
        for more in ((), ("init.mode=closed_form",), ("init.mode=empirical",))
    )
    assert run_id(usual) == run_id(same) != run_id(other)
    assert "mode" not in usual["init"]
    with pytest.raises(InputError, match=r"init.fc_std=null"):
        compose_config(*DIGITS, "init.mode=empirical", "init.fc_std=[.01,.01,.001]")
