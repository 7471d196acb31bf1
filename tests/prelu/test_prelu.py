"""PReLU with our gradients is PReLU: torch's forward to the bit, and the gradients of double
precision to rounding."""

import os
import signal
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from rectifiers.prelu import PReLU, SquaredPReLU, cpu, operator
from rectifiers.prelu.operator import MIN_SLOPE, _PReLU, prelu

needs_library = pytest.mark.skipif(
    cpu.unavailable_reason() is not None,
    reason=f"there is no C library to test: {cpu.unavailable_reason()}",
)
SHAPES = {
    "maps": (3, 5, 7, 9),
    "wide maps": (2, 3, 20, 33),
    "maps of few numbers": (4, 37, 2, 3),
    "many maps of few numbers": (3, 600, 2, 2),
    "maps of few numbers, a long batch": (700, 8, 3, 3),
    "channels last": (3, 37, 4, 5),
    **{f"channels last, {n}": (9, n, 13, 11) for n in (*range(1, 7), 8, 12, 16, 17, 24, 48, 200)},
    "vectors": (6, 19),
    "sequences": (2, 4, 50),
    "one number": (1, 1),
    "none": (0, 4, 3, 3),
}
SLOPES = {
    "positive": lambda n: torch.linspace(0.1, 1.0, n),
    "one is 0": lambda n: torch.linspace(0.0, 1.0, n),
    "negative": lambda n: torch.linspace(-0.7, 0.7, n),
    "tiny": lambda n: torch.full((n,), MIN_SLOPE / 3),
    "above 1": lambda n: torch.linspace(0.5, 8.0, n),
}


@pytest.fixture(autouse=True)
def kernels_for_small_inputs(monkeypatch) -> None:
    monkeypatch.setattr(operator, "MIN_NUMBERS", 0)


def given(name: str, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, dy = (torch.randn(SHAPES[name], generator=generator).to(dtype) for _ in range(2))
    if x.numel() > 3:
        x.view(-1)[:3] = torch.tensor([0.0, -0.0, 1e-30]).to(dtype)
    if name.startswith("channels last"):
        x = x.to(memory_format=torch.channels_last)
    return x.requires_grad_(), dy


def layer(kind: type[nn.PReLU], slopes: Tensor) -> nn.PReLU:
    made = kind(len(slopes))
    made.weight.data.copy_(slopes)
    return made


def both(module: nn.Module, x: Tensor, dy: Tensor) -> list[Tensor]:
    mixed = {p.dtype for p in module.parameters()} == {torch.float32} and x.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
        y = module(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], dy)]


@needs_library
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_prelu_equals_torchs(shape: str, slopes: str, dtype: torch.dtype, shared: bool) -> None:
    x, dy = given(shape, dtype)
    a = SLOPES[slopes](1 if shared else x.shape[1])
    y, dx, da = both(layer(PReLU, a), x, dy)
    expected_y, expected_dx, _ = both(layer(nn.PReLU, a).to(dtype), x, dy)
    assert torch.equal(y, expected_y)
    assert torch.equal(dx, expected_dx)
    is_last = shape.startswith("channels last")
    layout = torch.channels_last if is_last else torch.contiguous_format
    assert dx.is_contiguous(memory_format=layout)
    double = layer(nn.PReLU, a.to(dtype)).double(), x.detach().double().requires_grad_()
    exact = both(*double, dy.double())[2]
    over = [dim for dim in range(x.dim()) if dim != 1 or shared]
    mass = (dy.double() * x.detach().double()).abs().sum(over)  # what rounding is relative to
    # x made again from y has the rounding of y
    is_rounded = dtype == torch.bfloat16 and operator.is_invertible(float(a.min()), float(a.max()))
    bound = 2.0**-8 if is_rounded else 2.0**-20
    assert bool(((da - exact).abs() <= bound * mass.view_as(da) + 1e-30).all())


def any_float32(count: int, generator: torch.Generator) -> Tensor:
    """Bit patterns drawn with equal probability: denormal and huge numbers, infinities and NaN
    among them."""
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator)
    return bits.to(torch.int32).view(torch.float32)


@needs_library
@pytest.mark.parametrize("largest", [1.0, 8.0, None])
def test_prelu_equals_torchs_layer_for_every_float32(largest: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    x, dy, a = (any_float32(200_000, generator) for _ in range(3))
    if largest:
        a = torch.rand(len(a), generator=generator) * (largest - MIN_SLOPE) + MIN_SLOPE
    x = x.view(1, -1).requires_grad_()
    ours, torchs = (both(layer(kind, a), x, dy.view(1, -1)) for kind in (PReLU, nn.PReLU))
    for found, expected in zip(ours[:2], torchs[:2], strict=True):
        assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
    found, expected = ours[2].double(), torchs[2].double()
    in_range = ~(expected.abs() > 3.4e38)  # where a rounding makes no infinity
    assert torch.equal(found[in_range].isnan(), expected[in_range].isnan())
    bound = 2.0**-20 * expected.abs() + 2.0**-139 * dy.abs().double() + 2.0**-139
    close = (found == expected) | ((found - expected).abs() <= bound)
    assert bool(close[in_range & ~expected.isnan()].all())


@needs_library
def test_slopes_that_bfloat16_rounds_leave_no_bias() -> None:
    a = torch.tensor([0.2502, 0.2998, 0.702, 0.9985])  # up to 0.2 % from the nearest ones
    x, _ = (torch.randn(8, 4, 90, 90, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    x = x.bfloat16().requires_grad_()
    _, _, da = both(layer(PReLU, a), x, torch.ones_like(x))
    expected = x.detach().float().clamp(max=0).sum((0, 2, 3))
    torch.testing.assert_close(da, expected, rtol=2e-4, atol=0)


@needs_library
def test_no_number_of_threads_changes_a_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 16, 90, 90, generator=generator).requires_grad_()
    dy = torch.randn(7, 16, 90, 90, generator=generator)
    module, found, before = layer(PReLU, SLOPES["positive"](16)), [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(both(module, x, dy))
    finally:
        torch.set_num_threads(before)
    assert x.numel() > 3 * cpu.NUMBERS_PER_THREAD
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@needs_library
def test_a_forked_process_has_threads_of_its_own() -> None:
    v, before = torch.ones(4, 4, 256, 256), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        cpu.backward(v, v, torch.ones(4))
        child = os.fork()
        if not child:
            signal.alarm(30)  # where it waits for threads that are not there
            try:
                cpu.backward(v, v, torch.ones(4))
                os._exit(0)
            finally:
                os._exit(1)
    finally:
        torch.set_num_threads(before)
    assert os.waitpid(child, 0)[1] == 0


@needs_library
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinities_and_nans_propagate_as_in_torch(dtype: torch.dtype) -> None:
    x = (
        torch.tensor([[float("nan"), 1.0], [float("inf"), -1.0], [-float("inf"), 2.0]])
        .to(dtype)
        .requires_grad_()
    )
    dy = torch.tensor([[1.0, float("nan")], [1.0, 1.0], [1.0, float("inf")]]).to(dtype)
    a = torch.tensor([0.25, 0.5])
    found, expected = both(layer(PReLU, a), x, dy), both(layer(nn.PReLU, a).to(dtype), x, dy)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("count", [1, 3])
def test_derivatives_are_finite_differences(slopes: str, count: int) -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, 2, 2, dtype=torch.float64, generator=draw).requires_grad_()
    if slopes == "tiny":
        x = (x.detach() * 4).requires_grad_()
    a = SLOPES[slopes](count).double().requires_grad_()
    assert torch.autograd.gradcheck(_PReLU.apply, (x, a))
    assert torch.autograd.gradgradcheck(_PReLU.apply, (x, a))


@needs_library
def test_gradients_are_differentiable() -> None:
    x, _ = given("maps", torch.float32)

    def penalty(module: nn.Module) -> list[Tensor]:
        (dx,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(dx.square().sum(), [x, *module.parameters()]))

    ours, theirs = (penalty(layer(kind, SLOPES["positive"](5))) for kind in (PReLU, nn.PReLU))
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected)
    zeros, slopes = torch.zeros(1, 5, requires_grad=True), SLOPES["positive"](5)
    (at_zero,) = torch.autograd.grad(prelu(zeros, slopes).sum(), zeros, create_graph=True)
    assert torch.equal(at_zero[0], slopes)


def kept(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the tensors that a forward pass keeps for the backward pass, without the
    parameters."""
    found: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (found.append(t), t)[1], lambda t: t):
        module(x)
    return [t for t in found if t.numel() == x.numel()]


@needs_library
def test_output_alone_is_kept_where_possible() -> None:
    x, _ = given("maps", torch.float32)
    for slopes in SLOPES:
        module, expected = layer(PReLU, SLOPES[slopes](5)), slopes != "positive"
        (own,) = kept(module, x)
        assert torch.equal(own, x if expected else module(x).detach())
        assert (own.data_ptr() == x.data_ptr()) == expected
    # what float16 rounds to 0, or to infinity, cannot be divided back
    assert not prelu(x.half(), SLOPES["positive"](5).requires_grad_()).grad_fn.from_output


@needs_library
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("shape", ["maps", "channels last", "vectors", "sequences"])
def test_squared_prelu_has_its_formulas_gradients(shape: str, slopes: str, shared: bool) -> None:
    x, dy = given(shape, torch.float32)
    a = SLOPES[slopes](1 if shared else x.shape[1])
    y, dx, da = both(layer(SquaredPReLU, a), x, dy)

    z, g = x.detach().double(), dy.double()
    slope = a.double().view(1, -1, *[1] * (x.dim() - 2))
    squares = torch.where(z > 0, z**2, (slope * z) ** 2)
    torch.testing.assert_close(y.double(), squares, rtol=1e-6, atol=1e-9)
    expected = g * torch.where(z > 0, 2 * z, 2 * slope**2 * z)
    torch.testing.assert_close(dx.double(), expected, rtol=1e-5, atol=1e-6)
    terms = g * torch.where(z > 0, 0.0, 2 * slope * z**2)
    over = [dim for dim in range(x.dim()) if dim != 1 or shared]
    torch.testing.assert_close(da.double(), terms.sum(over).view_as(da), rtol=1e-4, atol=1e-4)


@needs_library
def test_squared_prelu_uses_the_kernel_and_one_map() -> None:
    x, _ = given("maps", torch.float32)
    module = layer(SquaredPReLU, SLOPES["positive"](5))
    (square, _), *_ = module(x).grad_fn.next_functions
    assert type(square).__name__ == "_PReLUBackward"
    assert len({t.data_ptr() for t in kept(module, x)}) == 1


@pytest.mark.parametrize("change", [lambda m: m.double(), lambda m: m.bfloat16(), lambda m: m])
def test_torch_computes_where_the_kernel_does_not(change, monkeypatch) -> None:
    monkeypatch.setattr(cpu, "unavailable_reason", lambda: "it is not built")
    module = change(layer(PReLU, SLOPES["positive"](4)))
    x = torch.randn(2, 4, 3).to(module.weight.dtype).requires_grad_()
    assert type(module(x).grad_fn).__name__ == "PreluKernelBackward0"


@needs_library
@pytest.mark.parametrize("given_as", [torch.float32, torch.bfloat16])
def test_gradients_under_autocast_are_torchs(given_as: torch.dtype) -> None:
    x, dy = torch.randn(2, 4, 3).to(given_as).requires_grad_(), torch.ones(2, 4, 3).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, dx, da = both(layer(PReLU, torch.tensor([0.25, 0.5, 0.75, 1.0])), x, dy)
    assert (y.dtype, dx.dtype, da.dtype) == (torch.bfloat16, given_as, torch.float32)


@needs_library
@pytest.mark.parametrize(("numbers", "is_ours"), [(2**14 - 1, False), (2**14, True)])
def test_small_inputs_are_torchs(numbers: int, is_ours: bool, monkeypatch) -> None:
    monkeypatch.undo()
    y = PReLU(1)(torch.randn(numbers, 1, requires_grad=True))
    assert ("_PReLU" in type(y.grad_fn).__name__) == is_ours
