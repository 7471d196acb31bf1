"""Fully connected layers by oneDNN are torch's: its numbers to rounding, and its own products where
ours do not fit."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap

from rectifiers.models import linear
from rectifiers.models.linear import (
    MIN_MULTIPLY_ADDS,
    MIN_VECTORS,
    Linear,
    onednn_is_faster,
)
from rectifiers.models.network import Network
from rectifiers.models.rows import Row
from rectifiers.runtime import machine

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)
SIZES = [(32, 1024, 256), (33, 517, 263), (128, 800, 256)]  # vectors, inputs, units


@pytest.fixture
def _on_such_a_processor(monkeypatch) -> None:
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: True)


def on_onednn(test: Callable) -> Callable:
    """Run a test as on a processor on which oneDNN is the faster library."""
    return needs_onednn(pytest.mark.usefixtures("_on_such_a_processor")(test))


def given(vectors: int, inputs: int, units: int, seed: int = 0) -> tuple[Tensor, Linear, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    layer = Linear(inputs, units)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    x, dy = (torch.randn(vectors, size, generator=generator) for size in (inputs, units))
    return x.requires_grad_(), layer, dy


def is_ours(y: Tensor) -> bool:
    return type(y.grad_fn).__name__ == "_LinearBackward"


def as_torch(layer: Linear) -> nn.Linear:
    """torch's layer with the same numbers in double precision."""
    exact = nn.Linear(layer.in_features, layer.out_features).double()
    exact.load_state_dict(layer.state_dict())
    return exact


def assert_rounded(found: Tensor, exact: Tensor) -> None:
    # sums of at most 1,024 products of normal numbers, each rounded to 1 in 2**24
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-3)


@on_onednn
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_strided", [False, True])
def test_outputs_and_gradients_are_torchs(size: tuple[int, int, int], is_strided: bool) -> None:
    x, layer, dy = given(*size)
    if is_strided:
        x, dy = (v.detach().T.contiguous().T.requires_grad_() for v in (x, dy))
    y, exact = layer(x), as_torch(layer)
    assert is_ours(y)
    y_exact = exact(x.double())
    assert_rounded(y, y_exact)

    found = torch.autograd.grad(y, [x, *layer.parameters()], dy)
    expected = torch.autograd.grad(y_exact, [x, *exact.parameters()], dy.double())
    for one, other in zip(found, expected, strict=True):
        assert_rounded(one, other.double())
    assert found[1].is_contiguous()
    with torch.no_grad():
        assert torch.equal(layer(x), y)


@on_onednn
def test_gradients_are_differentiable() -> None:
    x, layer, _ = given(*SIZES[0])

    def penalty(module: nn.Module, x: Tensor) -> list[Tensor]:
        (dx,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(dx.square().sum(), [x, *module.parameters()]))

    exact = penalty(as_torch(layer), x.detach().double().requires_grad_())
    for found, expected in zip(penalty(layer, x), exact, strict=True):
        # four products, each of about 1e-6
        assert float((found - expected).norm() / expected.norm()) < 1e-5


@on_onednn
def test_what_needs_no_gradient_gets_none() -> None:
    x, layer, dy = given(*SIZES[0])
    layer(x.detach()).backward(dy)  # the first layer of a network
    assert x.grad is None
    layer.bias = None
    layer.weight.requires_grad_(False)
    (dx,) = torch.autograd.grad(layer(x), x, dy)
    assert_rounded(dx, dy.double() @ layer.weight.double())


@on_onednn
def test_equal_numbers_give_equal_bits() -> None:
    x, layer, dy = given(*SIZES[1])
    # as a tensor elsewhere in memory
    moved = torch.empty(x.numel() + 1)[1:].view_as(x).copy_(x.detach()).requires_grad_()
    assert moved.data_ptr() % 64
    found = []
    for inputs in (x, moved):
        y = layer(inputs)
        found.append([y, *torch.autograd.grad(y, [inputs, *layer.parameters()], dy)])
    assert all(map(torch.equal, *found))


@on_onednn
def test_transforms_are_torchs() -> None:
    x, layer, _ = given(*SIZES[0])
    dys = torch.randn(3, 32, 256, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(layer(x), x, dys, is_grads_batched=True)[0]
    assert_rounded(found, dys.double() @ layer.weight.double())

    def score(weight: Tensor, one: Tensor) -> Tensor:
        return (
            functional_call(layer, {"weight": weight}, (one.expand(MIN_VECTORS, -1),)).mean(0).sum()
        )

    each = vmap(grad(score), in_dims=(None, 0))(layer.weight, x.detach()[:3])
    assert_rounded(each, x.detach()[:3, None].expand_as(each).double())
    with forward_ad.dual_level():
        out = layer(forward_ad.make_dual(x.detach(), torch.ones_like(x)))
        tangent = forward_ad.unpack_dual(out).tangent
    assert_rounded(tangent, layer.weight.double().sum(1).expand_as(tangent))
    exported = torch.export.export(layer, (x.detach(),))
    assert torch.ops.aten.linear.default in {node.target for node in exported.graph.nodes}


@pytest.mark.parametrize(
    ("maker", "instructions", "expected"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
        ("", "DEFAULT", False),
    ],
)
def test_the_processor_decides(maker: str, instructions: str, expected: bool, monkeypatch) -> None:
    monkeypatch.setattr(machine, "vendor", lambda: maker)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    for library in (torch.backends.mkldnn, torch.backends.mkl):
        monkeypatch.setattr(library, "is_available", lambda: True)
    onednn_is_faster.cache_clear()
    try:
        assert onednn_is_faster() == expected
    finally:
        onednn_is_faster.cache_clear()


@on_onednn
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((MIN_VECTORS, 512, MIN_MULTIPLY_ADDS // 512 // MIN_VECTORS), True),
        ((MIN_VECTORS - 1, 4096, 512), False),
        ((128, 1024, 10), False),
    ],
)
def test_small_products_are_torchs(size: tuple[int, int, int], expected: bool) -> None:
    x, layer, _ = given(*size)
    assert is_ours(layer(x)) == expected


def in_double(layer: Linear, x: Tensor) -> Tensor:
    return layer.double()(x.double())


def in_bfloat16(layer: Linear, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return layer(x)


def with_a_dimension_more(layer: Linear, x: Tensor) -> Tensor:
    return layer(x[None])


def with_transposed_weights(layer: Linear, x: Tensor) -> Tensor:
    layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)
    return layer(x)


@on_onednn
@pytest.mark.parametrize(
    "way", [in_double, in_bfloat16, with_a_dimension_more, with_transposed_weights]
)
def test_other_layers_are_torchs(way: Callable[[Linear, Tensor], Tensor]) -> None:
    x, layer, _ = given(*SIZES[0])
    plain = nn.Linear(*SIZES[0][1:])
    plain.load_state_dict(layer.state_dict())
    found, expected = way(layer, x), way(plain, x)
    assert not is_ours(found)
    assert torch.equal(found, expected)


def test_rows_of_a_network_are_such_layers() -> None:
    rows = [Row("fc1", "linear", 8), Row("fc2", "linear", 4)]
    network = Network(rows, lambda _: nn.ReLU(), channels=3, input_px=2)
    assert [type(m) for m in network.head if isinstance(m, nn.Linear)] == [Linear, Linear]
    names = [f"head.{layer}.{kind}" for layer in ("fc1", "fc2") for kind in ("weight", "bias")]
    assert list(network.state_dict()) == names
