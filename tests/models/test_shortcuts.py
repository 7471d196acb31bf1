"""Perceptrons with shortcuts: what the transformations make zero, what they leave as it is, and the
Fisher matrix."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.gains import moments
from rectifiers.models.external import ModuleNetwork
from rectifiers.models.shortcuts import ShortcutBlock, TransformedUnits, mlp_shortcuts
from rectifiers.quadrature import normal_rule
from rectifiers.theory.fisher import SHORTCUT, measure
from refusals import refused

SIZES = {"name": "mlp_shortcuts", "classes": 3, "channels": 1, "input_px": 3}


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network(transformation: str, activation=A.relu, **more: int) -> ModuleNetwork:
    build = partial(mlp_shortcuts, hidden=6, transformation=transformation, **more)
    made = ModuleNetwork(build, activation, **SIZES)
    made.initialize(I.he, seed=0, name="he", bias=0.0)
    return made


@pytest.mark.parametrize("activation", [A.relu, A.prelu, A.tanh, A.noisy_relu, A.gelu])
def test_units_start_with_zero_mean_and_slope(activation) -> None:
    units = TransformedUnits(activation(4), 4, has_unit_variance=True).double().eval()
    nodes, weights = normal_rule()
    z = nodes[:, None].repeat(1, 4).requires_grad_()
    t = units(z)
    (slope,) = torch.autograd.grad(t.sum(), z)
    mean, mean_slope, second, second_slope = (
        (weights[:, None] * x).sum(0) for x in (t, slope, t**2, slope**2)
    )
    assert mean.abs().max().item() < 1e-6
    assert mean_slope.abs().max().item() < 1e-6
    torch.testing.assert_close(second * second_slope, torch.ones(4).double(), rtol=1e-5, atol=0)


def test_transformed_relu_is_half_the_distance() -> None:
    units = TransformedUnits(nn.ReLU(), 1, has_unit_variance=False)
    s = torch.tensor([[-2.0], [0.0], [2.0]])
    mean = math.sqrt(2 / math.pi)
    torch.testing.assert_close(units(s), (s.abs() - mean) / 2)
    said = moments(TransformedUnits(nn.ReLU(), 5, has_unit_variance=False), 5)
    assert said.second == pytest.approx((1 - 2 / math.pi) / 4, rel=1e-6)
    assert said.derivative_second == pytest.approx(1 / 4, rel=1e-6)


@pytest.mark.parametrize("transformation", ["zero_mean_slope", "unit_variance"])
@pytest.mark.parametrize("activation", [A.relu, A.prelu, A.tanh])
def test_block_keeps_its_function_while_units_move(activation, transformation) -> None:
    torch.manual_seed(0)  # with few draws a unit fires so seldom that 60 steps are not enough
    block = ShortcutBlock(activation, 5, 7, 4, transformation).double()
    x = 2 * numbers(50, 5) + 1
    before, weights = (
        block.eval()(x),
        {name: p.detach().clone() for name, p in block.named_parameters()},
    )
    for _ in range(60):
        block.train()(x)
    torch.testing.assert_close(block.eval()(x), before, rtol=1e-9, atol=1e-9)
    changed = {name for name, p in block.named_parameters() if not torch.equal(p, weights[name])}
    scaled = {"out.weight"} if transformation == "unit_variance" else set()
    assert changed == {"shortcut.weight", "out.bias"} | scaled
    s = block.hidden(x).detach().requires_grad_()
    t = block.act(s)
    (slope,) = torch.autograd.grad(t.sum(), s)
    assert t.mean(0).abs().max().item() < 0.02
    assert slope.mean(0).abs().max().item() < 0.02
    if transformation == "unit_variance":
        torch.testing.assert_close(
            (t**2).mean(0) * (slope**2).mean(0), torch.ones(7).double(), rtol=0.1, atol=0
        )


def test_neither_tests_nor_an_initialisation_move_the_units() -> None:
    made = network("unit_variance")
    state = {name: x.clone() for name, x in made.state_dict().items()}
    made.eval()(made.example())
    with torch.no_grad():
        made.train()(made.example())
    assert all(torch.equal(x, state[name]) for name, x in made.state_dict().items())


@pytest.mark.parametrize("transformation", ["none", "zero_mean_slope", "unit_variance"])
def test_the_initialiser_reads_the_transformed_units(transformation: str) -> None:
    build = partial(mlp_shortcuts, hidden=400, transformation=transformation, depth=3)
    made = ModuleNetwork(build, A.relu, **SIZES)
    report = made.initialize(I.he, seed=0, name="he", bias=0.0)
    assert not made.left
    assert len(report) == 9
    assert made.depth == 6
    out = next(row for row in report if row.layer == "block1.out")
    second = {"none": 1 / 2, "zero_mean_slope": (1 - 2 / math.pi) / 4}
    second["unit_variance"] = math.sqrt(1 - 2 / math.pi)  # gamma^2 = (second / 4)^(-1/2)
    shares = 3  # of the three sums
    # as drawn
    expected = 1 / math.sqrt(400 * shares * second[transformation])
    assert out.std_asked == pytest.approx(expected, rel=0.05)


def test_information_of_the_shortcuts_is_measured() -> None:
    x, labels = numbers(300, 1, 3, 3), torch.zeros(300, dtype=torch.long)
    assert 0 < measure(network("none"), x, labels)[SHORTCUT] < 1


def test_slopes_are_found_within_the_units() -> None:
    assert list(network("unit_variance", A.prelu).slopes()) == ["block1.act.activation"]


def test_of_a_linear_activation_nothing_would_remain() -> None:
    with refused(r"is linear, .* give another activation, or"):
        mlp_shortcuts(A.identity, 3, 1, 3)
    mlp_shortcuts(A.identity, 3, 1, 3, transformation="none")
