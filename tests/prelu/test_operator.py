"""PReLU is one operation of torch to whatever looks at a network, with the same numbers to each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rectifiers.prelu import PReLU, cpu, swap_prelu
from rectifiers.prelu.operator import prelu, prelu_backward, prelu_forward

pytestmark = pytest.mark.skipif(
    cpu.unavailable_reason() is not None,
    reason=f"there is no C library to test: {cpu.unavailable_reason()}",
)


def given(*shape: int, seed: int = 0, last: bool = False) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x.to(memory_format=torch.channels_last) if last else x


def layer(slopes: Tensor) -> PReLU:
    made = PReLU(len(slopes))
    with torch.no_grad():
        made.weight.copy_(slopes)
    return made


@pytest.mark.parametrize("from_output", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("count", [1, 6])
def test_torchs_opcheck_passes(from_output: bool, last: bool, count: int) -> None:
    x, slopes = given(2, 6, 4, 5, last=last), torch.linspace(0.25, 1, count)
    if not from_output:
        slopes -= 0.5  # for which the input is kept
    torch.library.opcheck(prelu, (x.requires_grad_(), slopes.requires_grad_()))
    torch.library.opcheck(
        prelu_backward, (x.detach(), given(2, 6, 4, 5, seed=1), slopes.detach(), from_output)
    )


class Seen(TorchDispatchMode):
    """The operations that a dispatch mode sees."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.operations.append(operation)
        return operation(*args, **(kwargs or {}))


class Asked(TorchFunctionMode):
    """The operations that a function mode sees."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_function__(self, operation, types, args=(), kwargs=None):
        self.operations.append(operation)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("mode", "expected"), [(Seen, prelu_forward), (Asked, prelu)])
@pytest.mark.parametrize("autocast", [False, True])
def test_modes_see_the_operation(mode: Callable[[], Any], expected: Any, autocast: bool) -> None:
    x, module = given(2, 4, 64, 64).requires_grad_(), layer(torch.linspace(0.25, 1, 4))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        alone = module(x)
        with mode() as seen:
            y = module(x)
            found = torch.autograd.grad(y.sum(), [x, module.weight])
    assert expected in seen.operations
    assert torch.equal(y, alone)
    for one, other in zip(found, torch.autograd.grad(alone.sum(), [x, module.weight]), strict=True):
        assert torch.equal(one, other)
    if mode is Seen:
        assert prelu_backward in seen.operations


def test_fake_gradients_have_the_real_layout() -> None:
    for x in (
        given(3, 5, 4, 6),
        given(3, 5, 4, 6, last=True),
        given(3, 5),
        given(0, 5, 2, 2),
        given(5, 4, 3)[:, ::2],
    ):
        for dtype in (torch.float32, torch.bfloat16):
            arguments = (
                x.to(dtype),
                given(*x.shape).to(dtype),
                torch.full((x.shape[1],), 0.25),
                True,
            )
            with FakeTensorMode() as mode:
                found = prelu_backward(
                    *(mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments)
                )
            for one, other in zip(found, prelu_backward(*arguments), strict=True):
                assert (one.shape, one.dtype, one.stride()) == (
                    other.shape,
                    other.dtype,
                    other.stride(),
                )


@pytest.mark.process
@pytest.mark.parametrize("low", [0.25, -0.5])
@pytest.mark.parametrize("swapped", [False, True])
def test_compiled_layer_has_one_operation_and_equal_numbers(low: float, swapped: bool) -> None:
    graphs: list[list[Any]] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph.forward)

    module, x, dy = (
        layer(torch.tensor([low, 0.5])),
        given(3, 2, 4).requires_grad_(),
        given(3, 2, 4, seed=1),
    )
    if swapped:
        swap_prelu(module)
    from functorch.compile import make_boxed_func  # slow to import
    from torch._dynamo.backends.common import aot_autograd

    compiled = torch.compile(
        module, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True
    )
    y = compiled(x)
    found = torch.autograd.grad(y, [x, module.weight], dy)
    assert torch.equal(y, module(x))
    assert prelu_backward in graphs[1]
    for one, other in zip(
        found, torch.autograd.grad(module(x), [x, module.weight], dy), strict=True
    ):
        torch.testing.assert_close(one, other)


Function = Callable[[Tensor, Tensor], Tensor]
TRANSFORMS: dict[str, Callable[[Function], Callable[[Tensor, Tensor], Any]]] = {
    "grad": lambda f: grad(f, (0, 1)),
    "hessian": lambda f: hessian(f, (0, 1)),
    "reverse over forward": lambda f: jacrev(jacfwd(f, 1), 0),
    "gradients of single slopes": lambda f: (
        lambda x, a: vmap(grad(f, 1), (None, 0))(x, torch.stack([a, a / 2, -a]))
    ),
    "two batches": lambda f: lambda x, a: vmap(jacrev(lambda one: f(one[None], a)))(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_give_the_formulas_derivatives(name: str) -> None:
    x, slopes = given(3, 2, 4), torch.tensor([0.25, 0.5])

    def formula(x: Tensor, slopes: Tensor) -> Tensor:
        return torch.where(x > 0, x, slopes.view(1, -1, 1) * x).pow(3).sum()

    def ours(x: Tensor, slopes: Tensor) -> Tensor:
        return functional_call(PReLU(2), {"weight": slopes}, (x,)).pow(3).sum()

    found, expected = (
        torch.utils._pytree.tree_leaves(TRANSFORMS[name](f)(x, slopes)) for f in (ours, formula)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_have_tangents_where_the_inputs_do() -> None:
    x, tangent, dy = given(3, 2, 4), given(3, 2, 4, seed=1), given(3, 2, 4, seed=2)
    found = []
    for function in (prelu, torch.prelu):
        slopes = torch.tensor([0.25, 0.5], requires_grad=True)
        with forward_ad.dual_level():
            duals = (
                forward_ad.make_dual(x.clone().requires_grad_(), tangent),
                forward_ad.make_dual(slopes, torch.tensor([1.0, -2.0])),
            )
            y = function(*duals)
            results = [y, *torch.autograd.grad(y, duals, dy)]
            found.append([part for result in results for part in forward_ad.unpack_dual(result)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("given_as", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("transformed", [False, True])
def test_autocast_casts_as_torchs_layer(given_as: torch.dtype, transformed: bool) -> None:
    x, slopes = given(3, 2, 4).to(given_as), torch.tensor([0.2502, 0.702])

    def call(a: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return prelu(x, a)

    y = vmap(call)(slopes[None])[0] if transformed else call(slopes)
    lower = torch.float64 if given_as == torch.float64 else torch.bfloat16
    assert torch.equal(y, torch.prelu(x.to(lower), slopes.to(lower)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("length", [4, 4096])  # for torch's operation, and for ours
def test_batched_gradients_are_not_slow(length: int) -> None:
    x = given(3, 2, length).requires_grad_()
    y, dys = layer(torch.tensor([0.25, 0.5]))(x), given(5, 3, 2, length)
    (old,) = torch.autograd.grad(y, x, dys, is_grads_batched=True, retain_graph=True)
    new = vmap(lambda dy: torch.autograd.grad(y, x, dy, retain_graph=True)[0])(dys)
    assert torch.equal(old, new)


# tensors whose numbers are not what lies in their memory
LAZY: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": lambda x: torch._efficientzerotensor(x.shape),
    "a negative": torch._neg_view,
}


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("place", ["input", "slopes", "gradient"])
def test_tensors_without_plain_memory_are_read_right(kind: str, place: str) -> None:
    given_as = {"input": given(4, 4, 32, 32), "slopes": torch.linspace(-1, -0.25, 4)}
    given_as["gradient"] = given(4, 4, 32, 32, seed=1)
    given_as[place] = LAZY[kind](given_as[place])
    x, slopes, dy = given_as.values()

    found = []
    for module in (PReLU(4), nn.PReLU(4)):
        leaves = [part.detach().requires_grad_() for part in (x, slopes)]
        y = functional_call(module, {"weight": leaves[1]}, (leaves[0],))
        found.append([part + 0 for part in (y, *torch.autograd.grad(y, leaves, dy))])
    torch.testing.assert_close(*found)


def test_layouts_of_onednn_are_torchs_to_compute() -> None:
    x = given(4, 4, 32, 32)
    assert torch.equal(PReLU(4)(x.to_mkldnn()).to_dense(), nn.PReLU(4)(x))


def test_prelu_on_another_device_is_torchs_operation() -> None:
    """On a device without numbers, which raises where one is read."""
    with torch.device("meta"):
        y = PReLU(3)(torch.empty(4, 3, 128, 128))
    assert (y.device.type, type(y.grad_fn).__name__) == ("meta", "PreluKernelBackward0")


def test_replaced_relu_keeps_hooks_and_mode() -> None:
    network, calls = nn.Sequential(nn.ReLU(), nn.ReLU()).eval(), []
    network[1].train()
    network[0].register_forward_hook(lambda *_: calls.append(1))
    swap_prelu(network, relu=True)
    network(torch.ones(2, 3))
    assert calls == [1]
    assert [module.training for module in network] == [False, True]
