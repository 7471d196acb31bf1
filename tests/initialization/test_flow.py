"""One forward and one backward pass: signal, correlation and gradient of every layer."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rectifiers.initialization.example import arguments
from rectifiers.initialization.flow import measure, tensors_in


def orthogonal(*layers: nn.Module) -> nn.Sequential:
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    return nn.Sequential(*layers)


def test_orthogonal_layers_keep_signal_and_gradient() -> None:
    layers = [nn.Linear(32, 32, bias=False) for _ in range(10)]
    flow = measure(orthogonal(*layers), (torch.randn(8, 32),))
    assert [layer.gradient for layer in flow.layers.values()] == pytest.approx([1.0] * 10)
    assert len({round(layer.second, 4) for layer in flow.layers.values()}) == 1


def test_derivatives_of_outputs_differ_from_a_drawn_example() -> None:
    """Where a normalised output repeats the input, a derivative along it would change nothing."""
    (example,), _ = arguments(nn.Linear(64, 64), (8, 64))
    net = orthogonal(nn.Linear(64, 64, bias=False), nn.RMSNorm(64))
    nn.init.eye_(net[0].weight)
    assert measure(net, (example,)).layers["0.weight"].gradient == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize(("activation", "factor"), [(nn.Sigmoid(), 1 / 16), (nn.Tanh(), 1.0)])
def test_gradient_shrinks_by_the_slope_of_activations(activation: nn.Module, factor: float) -> None:
    """Small numbers see the slope at 0: 1/4 of a sigmoid, 1 of tanh."""
    first, second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
    model = orthogonal(first, activation, second)
    with torch.no_grad():
        first.weight.mul_(1e-4)
    flow = measure(model, (torch.randn(8, 16),))
    assert flow.layers["0.weight"].gradient == pytest.approx(factor, rel=1e-3)


def test_correlation_is_of_different_examples() -> None:
    common = torch.randn(1, 64)
    own = torch.randn(32, 64)
    own -= own @ common.T / common.square().sum() @ common
    layer = orthogonal(nn.Linear(64, 64, bias=False))
    for share in (0.0, 0.25, 1.0):
        x = math.sqrt(share) * common / common.norm() + math.sqrt(1 - share) * own / own.norm(
            dim=1, keepdim=True
        )
        correlation = measure(layer, (x,)).layers["0.weight"].correlation
        assert correlation == pytest.approx(share, abs=0.05)
    assert measure(layer, (common,)).layers["0.weight"].correlation is None
    for sign in (1, -1):  # the mean over pairs, of which two examples have one
        pair = torch.cat([common, sign * common])
        assert measure(layer, (pair,)).layers["0.weight"].correlation == pytest.approx(sign)


def test_layer_is_measured_at_its_first_use() -> None:
    layer = nn.Linear(16, 16, bias=False)
    nn.init.eye_(layer.weight)
    flow = measure(nn.Sequential(layer, nn.Hardtanh(-0.1, 0.1), layer), (torch.randn(8, 16),))
    assert flow.layers["0.weight"].second > 0.5


@pytest.mark.parametrize("shape", [(8,), (3, 6, 6)], ids=["vector", "map"])
def test_example_may_have_no_batch_dimension(shape: tuple[int, ...]) -> None:
    layer = nn.Linear(8, 4) if len(shape) == 1 else nn.Conv2d(3, 4, 3)
    flow = measure(nn.Sequential(layer), (torch.randn(shape),)).layers["0.weight"]
    assert flow.gradient == pytest.approx(1)
    assert flow.alive.tolist() == [True] * 4
    assert len(shape) > 1 or flow.correlation is None


def test_frozen_layers_have_gradients() -> None:
    layer = nn.Linear(8, 4).requires_grad_(False)
    assert measure(nn.Sequential(layer), (torch.randn(8, 8),)).layers["0.weight"].gradient > 0
    assert layer.weight.grad is None


def test_results_may_be_dictionaries_and_objects() -> None:
    class Result:
        def __init__(self, scores: torch.Tensor) -> None:
            self.scores = scores
            self.me = self  # objects may name each other

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, *, x: torch.Tensor) -> dict:
            return {"a": [self.one(x)], "b": Result(self.two(x * 2))}

    flow = measure(Model(), (), {"x": torch.randn(8, 4)})
    assert set(flow.layers) == {"one.weight", "two.weight"}
    assert all(gradient for gradient in flow.gradients.values())


class Node:
    """An object with fields, such as a result or a cache."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


def linked(x: Tensor) -> Node:
    nodes = [Node(x=x) for _ in range(40)]
    for node in nodes:
        node.nodes = nodes
    return nodes[0]


def shared(x: Tensor) -> Node:
    node = Node(x=x)
    for _ in range(60):
        node = Node(one=node, other=node)
    return node


def deep(x: Tensor) -> list[Any]:
    result: list[Any] = [x]
    for _ in range(5000):
        result = [result]
    return result


def own_dictionary(x: Tensor) -> dict[str, Any]:
    result: dict[str, Any] = {"x": x}
    result["result"] = result
    return result


def own_list(x: Tensor) -> list[Any]:
    result: list[Any] = [x]
    result.append((result, Node(result=result)))
    return result


@pytest.mark.parametrize("result", [linked, shared, deep, own_dictionary, own_list])
def test_results_may_hold_each_other(result: Callable[[Tensor], Any]) -> None:
    x = torch.randn(2)
    assert [id(y) for y in tensors_in(result(x))] == [id(x)]


def test_tensors_of_results_keep_their_order() -> None:
    a, b, c, d = (torch.randn(1) for _ in range(4))
    result = (a, [Node(b=b), {"a": a, "c": c}], torch.arange(2), d)
    assert [id(y) for y in tensors_in(result)] == [id(a), id(b), id(c), id(d)]


def test_modules_of_results_are_not_searched() -> None:
    module = ModuleType("module")
    vars(module).update(x=torch.randn(2))
    assert not list(tensors_in({"module": module, "layer": nn.Linear(2, 2), "type": Node}))


def test_parameters_that_are_cut_off_have_no_gradient() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.never = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x).detach())

    flow = measure(Cut(), (torch.randn(8, 4),))
    cut = {name for name, gradient in flow.gradients.items() if gradient is None}
    assert cut == {f"{layer}.{name}" for layer in ("one", "never") for name in ("weight", "bias")}
    assert flow.used & cut == {"one.weight", "one.bias"}
