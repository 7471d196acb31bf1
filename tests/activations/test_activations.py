"""Activations against their formulas, and different ones in one network."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers import gains
from rectifiers.activations.modules import Maxout, outputs, pieces
from rectifiers.data.sources import digits
from rectifiers.initialization.initialize import initialize
from rectifiers.initialization.report import LayerReport
from rectifiers.prelu import PReLU
from rectifiers.runs.config import RunConfig
from rectifiers.training import build, checks, targets
from refusals import refused


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@pytest.fixture
def y() -> torch.Tensor:
    return torch.randn(5, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shared", [False, True])
def test_prelu_is_the_papers_formula_forward_and_backward(y: torch.Tensor, shared: bool) -> None:
    f = (A.prelu_shared if shared else A.prelu)(3).double()
    slopes = torch.tensor([0.4] if shared else [0.1, 0.4, -0.7], dtype=torch.float64)
    with torch.no_grad():
        f.weight.copy_(slopes)
    x = y.clone().requires_grad_()
    upstream = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    out = f(x)
    out.backward(upstream)

    a = slopes.view(1, -1, 1, 1)
    assert torch.equal(out, y.clamp_min(0) + a * y.clamp_max(0))  # Eq. 1
    assert torch.allclose(x.grad, upstream * torch.where(y > 0, 1.0, a))
    terms = upstream * torch.where(y > 0, 0.0, y)  # Eq. 3
    # Eq. 2, summed over channels where shared
    expected = terms.sum().view(1) if shared else terms.sum((0, 2, 3))
    assert torch.allclose(f.weight.grad, expected)


def test_slope_0_is_relu_and_1_linear(y: torch.Tensor) -> None:
    assert torch.equal(A.prelu(3, initial_slope=0.0).double()(y), A.relu(3)(y))
    assert torch.equal(A.prelu(3, initial_slope=1.0).double()(y), A.identity(3)(y))


def test_slopes_start_at_a_quarter() -> None:
    assert torch.equal(A.prelu(7).weight, torch.full((7,), 0.25))
    assert torch.equal(A.prelu_shared(7).weight, torch.full((1,), 0.25))


def test_maxout_takes_the_largest_of_consecutive_responses() -> None:
    y = torch.arange(12.0).view(1, 6, 2) * torch.tensor([1.0, -1.0])
    assert torch.equal(Maxout(3)(y), torch.stack([y[:, 0:3].amax(1), y[:, 3:6].amax(1)], dim=1))
    assert Maxout(2)(torch.randn(4, 10)).shape == (4, 5)


def test_crelu_and_glu_by_hand() -> None:
    y = torch.tensor([[1.0, -2.0, 3.0, -4.0]])
    assert A.crelu(4)(y).tolist() == [[1, 0, 3, 0, 0, 2, 0, 4]]
    assert torch.equal(A.glu(2)(y), y[:, :2] * torch.sigmoid(y[:, 2:]))
    modules = [factory(4) for factory in (A.relu, A.maxout, A.glu, A.crelu)]
    assert [(pieces(m), outputs(m)) for m in modules] == [(1, 1), (2, 1), (2, 1), (1, 2)]


GATES = {A.glu: torch.sigmoid, A.swiglu: F.silu, A.geglu: F.gelu, A.reglu: torch.relu}


@pytest.mark.parametrize("factory", GATES)
def test_gate_multiplies_the_first_half(y: torch.Tensor, factory) -> None:
    y = torch.cat([y, y.flip(0)], dim=1)
    assert torch.equal(factory(3)(y), y[:, :3] * GATES[factory](y[:, 3:]))
    assert pieces(factory(3)) == 2


@pytest.mark.parametrize("factory", [*GATES, A.maxout])
@pytest.mark.parametrize("shape", [(4, 7), (4, 5, 6, 6)])
def test_odd_channels_before_a_gate_are_refused(factory, shape: tuple[int, ...]) -> None:
    match = rf"^activation=\w+: {shape[1]} channels do not divide into units of 2 \(give .*\)$"
    with refused(match):
        factory(1)(torch.randn(shape))
    layer = nn.Linear(3, 7) if len(shape) == 2 else nn.Conv2d(3, 5, 1)
    with refused(r"^activation=\w+: \d channels do not divide"):
        initialize(nn.Sequential(layer, factory(1)), (4, 3, *shape[2:]))


def xielu(y: float) -> float:
    return 0.5 * y + 0.8 * (y * y if y > 0 else math.expm1(y) - y)


FORMULAS = {
    "leaky_relu": lambda y: y if y > 0 else 0.01 * y,
    "celu": lambda y: y if y > 0 else math.expm1(y),
    "hardtanh": lambda y: min(max(-1, y), 1),
    "softsign": lambda y: y / (1 + abs(y)),
    "learned_swish": lambda y: y / (1 + math.exp(-y)),
    "squared_leaky_relu": lambda y: y**2 if y > 0 else (0.5 * y) ** 2,
    "squared_prelu": lambda y: y**2 if y > 0 else (0.25 * y) ** 2,
    "squared_prelu_shared": lambda y: y**2 if y > 0 else (0.25 * y) ** 2,
    "golu": lambda y: y * math.exp(-math.exp(-y)),
    "telu": lambda y: y * math.tanh(math.exp(y)),
    "smooth_leaky_relu": lambda y: 0.1 * y + 0.9 * math.log1p(math.exp(y)),
    "xielu": xielu,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_by_hand(y: torch.Tensor, name: str) -> None:
    f = getattr(A, name)(3).double()
    expected = torch.tensor([FORMULAS[name](float(v)) for v in y.flatten()], dtype=torch.float64)
    assert torch.allclose(f(y).flatten(), expected, atol=1e-7)
    assert torch.autograd.gradcheck(f, y.clone().requires_grad_())
    far = torch.tensor([-1e4, -50.0, 50.0, 1e4]).repeat(1, 3, 1).requires_grad_()
    f.float()(far).sum().backward()
    assert torch.isfinite(far.grad).all()


def test_xielu_learns_both_factors_and_keeps_them_positive() -> None:
    f = A.xielu(3)
    y = torch.tensor([[2.0, -2.0]])
    f(y).sum().backward()
    assert f.positive.grad.item() > 0
    assert f.negative.grad.item() > 0
    with torch.no_grad():
        f.positive.fill_(-20)
        f.negative.fill_(-20)
    expected = torch.tensor([[1.0, -1 + 0.5 * (math.exp(-2) + 1)]])
    assert torch.allclose(f(y), expected, atol=1e-6)


def test_celu_is_smooth_at_any_alpha(y: torch.Tensor) -> None:
    below = 2 * torch.expm1(y / 2)
    assert torch.allclose(A.celu(3, alpha=2.0)(y), torch.where(y > 0, y, below))


def test_swish_learns_a_factor_per_channel(y: torch.Tensor) -> None:
    f = A.learned_swish(3, beta=2).double()
    assert f.beta.tolist() == [2.0, 2.0, 2.0]
    with torch.no_grad():
        f.beta.copy_(torch.tensor([0.0, 1.0, -2.0]))
    out = f(y)
    for channel, beta in enumerate((0.0, 1.0, -2.0)):
        x = y[:, channel]
        assert torch.allclose(out[:, channel], x / (1 + torch.exp(-beta * x)))
    out.sum().backward()
    assert f.beta.grad.shape == (3,)
    gate = torch.sigmoid(y[:, 2] * -2)
    assert torch.allclose(f.beta.grad[2], (y[:, 2] ** 2 * gate * (1 - gate)).sum())


def test_noisy_relu_has_nair_and_hintons_noise() -> None:
    torch.manual_seed(0)
    module, y = A.noisy_relu(1), torch.tensor([[3.0], [0.0], [-2.0]]).repeat(1, 200_000)
    noise = module.train()(y[:1] + 20)[0] - 23  # so far from 0 nothing is cut off, and sigmoid is 1
    assert noise.mean().item() == pytest.approx(0, abs=0.01)
    assert noise.var().item() == pytest.approx(1, abs=0.02)
    low = module(y[2:])  # of variance sigmoid(-2) = 0.119
    assert (low > 0).float().mean().item() == pytest.approx(phi(-2 / 0.1192**0.5), abs=1e-4)
    at_zero = module(y[1:2])  # half of the variance sigmoid(0)
    assert at_zero.square().mean().item() == pytest.approx(0.25, abs=0.005)
    assert torch.equal(module.eval()(y), y.relu())


MLP = ("model=mlp", "model.hidden=20", "model.depth=4")
MIXED = "activation.layers={fc_1: prelu, fc_*: {leaky_relu: {slope: 0.5}}, fc_3: tanh}"


def config(*overrides: str) -> RunConfig:
    return compose_config("activation=by_layer", *MLP, *overrides)


def test_longer_patterns_go_first() -> None:
    layers = {
        "*": "tanh",
        "conv*": "sigmoid",
        "conv3_*": "prelu",
        "conv3_2": "relu",
        "conv[3]_2": "gelu",
    }
    for choices in (layers, dict(reversed(layers.items()))):  # a configuration has no order
        names = ("fc1", "conv1", "conv3_1", "conv3_2")
        kinds = [type(A.by_layer(4, name, "elu", choices)) for name in names]
        assert kinds == [nn.Tanh, nn.Sigmoid, PReLU, nn.ReLU]
    assert isinstance(A.by_layer(4, "fc1", "elu", None), nn.ELU)


def built(config: RunConfig) -> tuple[nn.Module, list[LayerReport]]:
    return build.build_network(config, targets.import_functions(config), digits(), None)


def test_layers_have_own_activations_and_gains() -> None:
    network, report = built(config(MIXED))
    fc = [module for module, _ in network.activations().values()]
    kinds = [PReLU, nn.LeakyReLU, nn.Tanh, nn.LeakyReLU]
    assert [type(module) for module in fc] == kinds
    assert fc[1].negative_slope == 0.5
    assert list(network.slopes()) == ["fc_1"]
    # the first layer reads no activation, and the last feeds none
    forward = [gains.gain(module) for module in (fc[0], *fc)]
    backward = [gains.gain(module, mode="backward") for module in (*fc, fc[-1])]
    assert [row.forward_gain for row in report] == pytest.approx(forward)
    assert [row.backward_gain for row in report] == pytest.approx(backward)
    names = [row.activation_after for row in report]
    assert names == ["PReLU", "LeakyReLU", "Tanh", "LeakyReLU", None]


def test_one_activation_for_all_layers_is_that_activation() -> None:
    x = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    chosen = (config("activation.default=tanh"), compose_config(*MLP, "activation=tanh"))
    assert torch.equal(*(built(one)[0](x) for one in chosen))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("layers={conv1: prelu}", r"layers\.conv1 fits no layer; .* are: fc_1, fc_2, fc_3"),
        ("layers={fc_1: perlu}", r"layers\.fc_1=perlu is not usable; give one of: celu, crelu, "),
        ("layers={fc_1: {prelu: {slop: 1}}}", r"layers\.fc_1=.* unexpected keyword .*slop"),
        ("layers={fc_1: {prelu: {}, relu: {}}}", r"layers\.fc_1=.* is not usable; give one of"),
        ("layers={fc_1: 3}", r"layers\.fc_1=3: "),
        ("default=by_layer", r"default=by_layer is not usable; give one of"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(override: str, message: str) -> None:
    with refused(rf"activation\.{message}"):
        checks.checked_functions(config(f"activation.{override}"))


def test_layers_agree_in_channels() -> None:
    with refused(r"activation of fc_1 reads 2 and gives 1 channels"):
        built(config("activation.layers={fc_1: maxout}"))
    with refused(r"activation=by_layer .* model\._target_=.*resnet"):
        built(compose_config("activation=by_layer", "model=resnet20"))
