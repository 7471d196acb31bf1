"""Moments and gains: closed forms, quadrature, what has none."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from rectifiers import activations as A
from rectifiers.activations.modules import pieces
from rectifiers.gains import _quadrature, gain, moments
from rectifiers.quadrature import normal_mean, normal_rule
from refusals import refused


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize(("power", "moment"), [(0, 1), (1, 0), (2, 1), (3, 0), (4, 3), (8, 105)])
def test_moments_of_the_normal_distribution(power: int, moment: float) -> None:
    assert normal_mean(lambda z: z**power) == pytest.approx(moment, abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("kink", [0.0, 1.0, -1.0, 3.0])
def test_a_kink_costs_no_digits(kink: float) -> None:
    density = math.exp(-(kink**2) / 2) / math.sqrt(2 * math.pi)
    tail = 0.5 * math.erfc(kink / math.sqrt(2))
    assert normal_mean(lambda z: (z - kink).clamp_min(0)) == pytest.approx(
        density - kink * tail, rel=1e-12
    )
    assert normal_mean(lambda z: (z > kink).double()) == pytest.approx(tail, rel=1e-12)


def test_no_node_lies_on_a_kink() -> None:
    nodes, weights = normal_rule()
    assert (nodes * 4 != (nodes * 4).round()).all()
    assert torch.equal(nodes.flip(0).round(decimals=12), -nodes.round(decimals=12))
    assert float(weights.sum()) == pytest.approx(1, abs=1e-14)


ELU_SECOND = 0.5 + math.e**2 * phi(-2) - 2 * math.exp(0.5) * phi(-1) + 0.5
ELU_DERIVATIVE = 0.5 + math.e**2 * phi(-2)
GELU_SECOND = 1 / 3 + 1 / (2 * math.sqrt(3) * math.pi)
GELU_DERIVATIVE = 1 / 3 + 2 / (3 * math.sqrt(3) * math.pi)

INSIDE, AT_ONE = 1 - 2 * phi(-1), math.exp(-0.5) / math.sqrt(2 * math.pi)  # P(|z| < 1), density
SINE_FOURTH = (3 - 4 * math.exp(-0.5) + math.exp(-2)) / 8  # E[sin(z / 2)^4]

CLOSED_FORMS = [
    (A.relu, 0.5, 0.5),
    (A.leaky_relu, (1 + 0.01**2) / 2, (1 + 0.01**2) / 2),
    (A.prelu, (1 + 0.25**2) / 2, (1 + 0.25**2) / 2),
    (A.prelu_shared, (1 + 0.25**2) / 2, (1 + 0.25**2) / 2),
    (A.identity, 1.0, 1.0),
    (A.elu, ELU_SECOND, ELU_DERIVATIVE),
    (A.gelu, GELU_SECOND, GELU_DERIVATIVE),
    (A.maxout, 1.0, 0.5),
    (A.selu, 1.0, None),  # which its constants are chosen for, to their printed digits
    (A.squared_relu, 1.5, 2.0),  # E[z^4] / 2 and E[(2 z)^2] / 2
    # of degree 2: (1 + a^4) times squared ReLU's
    (A.squared_leaky_relu, 1.5 * (1 + 0.5**4), 2 * (1 + 0.5**4)),
    (A.squared_prelu, 1.5 * (1 + 0.25**4), 2 * (1 + 0.25**4)),
    (A.squared_prelu_shared, 1.5 * (1 + 0.25**4), 2 * (1 + 0.25**4)),
    (A.celu, ELU_SECOND, ELU_DERIVATIVE),  # at alpha = 1
    (A.hardtanh, INSIDE - 2 * AT_ONE + 2 * phi(-1), INSIDE),
    (partial(A.learned_swish, beta=0.0), 0.25, 0.25),  # y / 2
    (A.reglu, 0.5, 0.5),
    (A.geglu, GELU_SECOND, (GELU_SECOND + GELU_DERIVATIVE) / 2),
    # slopes from 3/24 to 8/24: E[a^2] = (9 + 24 + 64) / 576 / 3
    (A.rrelu, (1 + 97 / 1728) / 2, (1 + 97 / 1728) / 2),
    (A.crelu, 0.5, 1.0),
    (partial(A.snake, a=0.5), 1 + 4 * SINE_FOURTH, 1 + (1 - math.exp(-2)) / 2),  # f' = 1 + sin z
    (partial(A.tat_leaky_relu, depth=30), 1.0, 1.0),
    (partial(A.maxout, pieces=3), 1 + math.sqrt(3) / (2 * math.pi), 1 / 3),
]


@pytest.mark.parametrize(("factory", "second", "derivative"), CLOSED_FORMS)
def test_moments_equal_the_closed_forms(factory, second: float, derivative: float) -> None:
    result = moments(factory(4), 4)
    assert result.second == pytest.approx(second, rel=1e-6 if factory is A.selu else 1e-12)
    assert derivative is None or result.derivative_second == pytest.approx(derivative, rel=1e-12)


@pytest.mark.parametrize(
    "factory", [A.crelu, A.glu, A.swiglu, A.geglu, A.reglu, A.rrelu, A.noisy_relu]
)
def test_stated_moments_are_those_of_samples(factory) -> None:
    """A million numbers: the standard error of E[f^2] is below 0.002, so five of them are 0.01."""
    module, generator = factory(1000).train(), torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    y = torch.randn(1000, 1000 * pieces(module), generator=generator).requires_grad_()
    x = module(y)
    gradient = torch.randn(x.shape, generator=generator)
    (back,) = torch.autograd.grad(x, y, gradient)
    known = moments(module)
    assert x.square().mean().item() == pytest.approx(known.second, abs=0.01)
    assert back.square().mean().item() == pytest.approx(known.derivative_second, abs=0.01)
    torch.manual_seed(1)  # the same noise
    wider = module(y * 1.02).square().mean() / x.square().mean()
    if factory is not A.rrelu:  # which draws other slopes
        assert math.log(wider.item()) / math.log(1.02**2) == pytest.approx(
            known.map_slope, abs=0.02
        )


def test_moments_follow_learned_slopes() -> None:
    f = A.prelu(2)
    with torch.no_grad():
        f.weight.copy_(torch.tensor([0.0, 1.0]))
    assert moments(f, 2).second == pytest.approx(0.75)
    assert _quadrature(f, 2).second == pytest.approx(0.75)


def test_moments_follow_slopes_before_a_square() -> None:
    f = A.squared_prelu(2)
    with torch.no_grad():
        f.weight.copy_(torch.tensor([0.0, 1.0]))
    found = moments(f, 2)
    assert found.second == pytest.approx(1.5 * (1 + 0.5))  # the mean of a^4
    assert found.map_slope == pytest.approx(2)


def test_an_unknown_module_gets_its_moments_by_quadrature() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**2

    result = moments(Square())
    assert result.second == pytest.approx(3)  # E[z^4]
    assert result.derivative_second == pytest.approx(4)  # E[(2z)^2]
    assert result.map_slope == pytest.approx(2)  # the variance map is q^2


def test_a_subclass_has_moments_of_its_own() -> None:
    class Shifted(nn.ReLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) - 0.4

    mean = 1 / math.sqrt(2 * math.pi)  # of ReLU
    assert moments(Shifted()).second == pytest.approx(0.5 - 0.8 * mean + 0.16)


@pytest.mark.parametrize(
    ("factory", "slope"),
    [
        (A.relu, 1.0),
        (A.tanh, 0.46),
        (A.elu, 0.89),
        (A.softplus, 0.49),
        (A.gelu, 1.144),
        (A.silu, 1.173),
    ],
)
def test_map_slope_tells_which_fixed_points_repel(factory, slope: float) -> None:
    """The derivative of q -> E[f(sqrt(q) z)^2] / E[f(z)^2] at q = 1, against a difference
    quotient."""
    f, h = factory(1).double(), 1e-4
    up, down = (normal_mean(lambda z, q=q: f(math.sqrt(q) * z) ** 2) for q in (1 + h, 1 - h))
    result = moments(factory(1))
    assert result.map_slope == pytest.approx((up - down) / (2 * h) / result.second, rel=1e-6)
    assert result.map_slope == pytest.approx(slope, abs=0.005)


class StraightThrough(nn.Module):
    """The sign, with the gradient of the identity."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (x.sign() - x).detach()


class Floor(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.floor()


def test_map_slope_counts_jumps() -> None:
    """Against a difference quotient of E[f(y)^2], in which a derivative by autograd is no part."""
    assert moments(nn.Hardshrink(0.5)).map_slope == pytest.approx(1.0454, abs=1e-4)
    jump = moments(lambda x: (x > 0.5).to(x))
    assert jump.map_slope == pytest.approx(0.285, abs=1e-3)
    assert jump.derivative_second == 0
    sign = moments(StraightThrough())
    assert sign.map_slope == pytest.approx(0, abs=1e-12)
    assert sign.derivative_second == pytest.approx(1)  # the gradient's factor is autograd's
    h = 0.01  # of the variance; whole numbers are edges of the quadrature's panels
    density = torch.distributions.Normal(0, 1)
    edges = torch.arange(-40, 41, dtype=torch.float64)

    def second(q: float) -> float:
        cdf = density.cdf(edges / math.sqrt(q))
        return float((edges[:-1] ** 2 * cdf.diff()).sum())

    expected = (second(1 + h) - second(1 - h)) / (2 * h) / second(1)
    assert moments(Floor()).map_slope == pytest.approx(expected, rel=1e-3)


def test_in_place_activations_and_steps_have_moments() -> None:
    class Step(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x > 0).to(x.dtype)

    assert moments(nn.ELU(inplace=True)).second == pytest.approx(ELU_SECOND)
    assert moments(Step()).second == pytest.approx(0.5)
    assert moments(Step()).derivative_second == 0


def test_an_activation_without_a_gain_is_named() -> None:
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0

    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, ::2]

    class Says(nn.Module):
        def moments(self) -> float:
            return 1.0

    class NotANumber(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 0 - x / 0

    for module in (Nothing(), NotANumber()):
        for mode in ("forward", "backward"):
            with refused(rf"{type(module).__name__}\(\) has E.* use an"):
                gain(module, mode=mode)
    assert gain(nn.ReLU()) == gain(nn.ReLU(), mode="backward") == math.sqrt(2)
    with refused(r"Halves\(\) maps"):
        moments(Halves(), 4)
    with refused(r"returns 1\.0, .* method `moments\(\)`"):
        moments(Says())


def test_diverging_moments_are_infinite() -> None:
    class Bell(nn.Module):
        """exp(c z^2), whose square has a mean of 1 / sqrt(1 - 4 c) for c < 1/4 and none from there
        on."""

        def __init__(self, c: float) -> None:
            super().__init__()
            self.c = c

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(self.c * x**2)

    assert moments(Bell(0.1)).second == pytest.approx(0.6**-0.5)
    assert [moments(Bell(c)).second for c in (0.25, 1.0, 9.0)] == [math.inf] * 3
    assert [moments(Bell(c)).derivative_second for c in (0.25, 1.0)] == [math.inf] * 2


@pytest.mark.parametrize("mixing", [nn.Softmax(dim=1), nn.Softmax(dim=0), nn.LayerNorm(3)])
def test_mixing_activation_has_no_quadrature(mixing: nn.Module) -> None:
    with refused(r"mixes its inputs, .* method `moments\(\)`"):
        moments(mixing, 3)


def test_average_gain_is_of_the_mean_moment() -> None:
    """Of GELU the arithmetic and the geometric mean of both moments differ."""
    both = moments(nn.GELU())
    mean = (both.second + both.derivative_second) / 2
    assert gain(nn.GELU(), mode="average") == pytest.approx(mean**-0.5, rel=1e-12)
    assert mean > 1.0005 * math.sqrt(both.second * both.derivative_second)


def test_moments_are_of_evaluation_and_change_no_mode() -> None:
    """RReLU draws its slopes in training alone."""
    module = nn.RReLU(0.1, 0.5).train()
    assert moments(module).second == pytest.approx((1 + 0.3**2) / 2)
    assert module.training
