"""The report says when a network will not train, and mode="empirical" starts the ones it can."""

import math

import pytest
import torch
from torch import Tensor, nn

from rectifiers import activations as A
from rectifiers import initialize, stability
from rectifiers.activations.modules import outputs, pieces
from rectifiers.initialization.report import EXPLODED
from rectifiers.initializers import Layer
from refusals import refused

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
    "name",
    [
        *("relu", "tanh", "gelu", "silu", "mish", "hardswish", "glu", "noisy_relu"),
        *("learned_swish", "celu", "hardtanh", "softsign"),
    ],
)
def test_empirical_start_keeps_the_second_moment(name: str) -> None:
    """Of other inputs, and of larger ones."""
    model, x = chain(getattr(A, name)(WIDTH)), batch(64, WIDTH)
    report = initialize(model, x, mode="empirical", seed=0)
    for inputs in (x, batch(64, WIDTH, seed=10), 1.1 * x):
        assert 1 / 4 < second(model, inputs) < 4
    assert report.check() is report


def test_activations_whose_fixed_point_repels_are_warned_of() -> None:
    depth = 80
    model = chain(nn.SiLU(), depth)
    report = initialize(model, (64, WIDTH))
    assert second(model, batch(64, WIDTH)) > EXPLODED
    lost, unstable = report.warnings
    assert "explodes" in lost
    for word in ("not stable in depth", 'mode="empirical"', "normalisation", "residual", "SiLU"):
        assert word in unstable
    growth = max(row.growth for row in report.layers)
    assert growth == pytest.approx(stability("silu", depth).error_growth, rel=0.5)
    with refused("not stable in depth"):
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
    zeros = initialize(chain(nn.ReLU(), 2), (64, WIDTH), init="zeros").warnings
    assert "vanishes" in zeros[0]


@pytest.mark.parametrize(
    ("activation", "depth", "limit"),
    # E[f'^2] / E[f^2] of a layer: about 1/7 of a sigmoid, 1 of ReLU
    [(nn.Sigmoid(), 5, 1e-3), (nn.Sigmoid(), 9, 1e-6), (nn.ReLU(), 30, 10)],
)
def test_rows_have_gradient_and_correlation(
    activation: nn.Module, depth: int, limit: float
) -> None:
    report = initialize(chain(activation, depth), (64, WIDTH))
    first, last = report.layers[0], report.layers[-1]
    assert last.gradient == pytest.approx(1)
    assert limit / 20 < first.gradient < limit
    assert abs(first.correlation) < 0.01 < 0.5 < last.correlation <= 1
    assert "gradient  correlation" in str(report)


class Whole(nn.Module):
    """Gives whole numbers, of which nothing has a derivative."""

    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(1)


class InPlace(nn.Module):
    """Changes what the backward pass of a sigmoid needs."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid().mul_(2)


class Detached(nn.Module):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class Numpy(nn.Module):
    """Which autograd forbids on numbers with gradients."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)


@pytest.mark.parametrize("cut", [Whole(), InPlace(), Detached(), Numpy()], ids=repr)
def test_models_without_a_backward_pass_have_empty_columns(cut: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 16), cut)
    report = initialize(model, (64, WIDTH)).check()
    assert [row.gradient for row in report.layers] == [None, None]
    assert all(row.measured for row in report.layers)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_layers_behind_a_cut_have_a_gradient() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 16), Detached(), nn.Linear(16, 8))
    report = initialize(model, (64, WIDTH)).check()
    assert [row.gradient is None for row in report.layers] == [True, False]


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_remedies_name_the_rule_that_keeps_the_signal(factor: float) -> None:
    def fixed(weight: Tensor, layer: Layer, generator: torch.Generator) -> float:
        std = factor / math.sqrt(layer.fan_in)
        nn.init.normal_(weight, std=std, generator=generator)
        return std

    model = chain(nn.ReLU(), 20)
    (sentence,) = initialize(model, (64, WIDTH), fixed).warnings
    assert 'use init="he"' in sentence
    initialize(model, (64, WIDTH)).check()


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
