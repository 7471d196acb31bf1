"""torch's private names mean what this project takes them for; a torch without one fails here
first."""

import ctypes

import torch
from torch import Tensor

from rectifiers.runtime.torch_internals import (
    base,
    functorch_is_active,
    is_batched,
    memory_tracker,
    onednn_linear,
    shared_bytes,
)


def test_transforms_of_functions_are_noticed_while_they_run() -> None:
    seen: list[bool] = []

    def look(x: Tensor) -> Tensor:
        seen.append(functorch_is_active())
        return x.sum()

    torch.func.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(torch.ones(3))
    look(torch.ones(3))
    assert seen == [True, True, False]


def test_a_batch_of_gradients_is_noticed() -> None:
    seen: list[bool] = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            seen.append(is_batched(grad))
            return grad

    x = torch.ones(3, requires_grad=True)
    for many in (True, False):
        grads = torch.eye(3) if many else torch.ones(3)
        torch.autograd.grad(Identity.apply(x), x, grads, is_grads_batched=many)
    assert seen == [True, False]


def test_shared_bytes_are_in_shared_memory() -> None:
    made = shared_bytes(12)
    assert (made.dtype, made.shape, made.is_shared()) == (torch.uint8, (12,), True)
    made.fill_(7)
    assert ctypes.string_at(made.data_ptr(), 12) == b"\7" * 12


def test_the_tracker_counts_the_bytes_of_tensors() -> None:
    layer, x, tracker = torch.nn.Linear(100, 100, bias=False), torch.ones(10, 100), memory_tracker()
    tracker.track_external(layer, x)
    with tracker:
        layer(x)
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    assert peak["Total"] == 4 * (100 * 100 + 2 * 10 * 100)


def test_a_view_knows_its_tensor() -> None:
    x = torch.ones(4)
    with torch.no_grad():
        assert base(x[:2]) is x
    assert base(x) is None


def test_onednn_multiplies_whole_numbers_exactly() -> None:
    x, weight = (torch.arange(n * 5).view(n, 5).float() % 7 for n in (3, 4))
    bias = torch.arange(4).float()
    assert torch.equal(onednn_linear(x, weight, bias), x @ weight.T + bias)
    assert torch.equal(onednn_linear(x, weight.T.contiguous().T), x @ weight.T)
