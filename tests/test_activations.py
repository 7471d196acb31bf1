import math
from dataclasses import asdict
from functools import partial

import pytest
import torch
from torch import nn

from rectifiers import activations as A
from rectifiers.activations import Maxout, gain, moments
from rectifiers.nonlinearities import outputs, pieces
from rectifiers.runtime.errors import InputError


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
    each = upstream * torch.where(y > 0, 0.0, y)  # Eq. 3
    expected = (
        each.sum().view(1) if shared else each.sum((0, 2, 3))
    )  # Eq. 2, summed over channels where shared
    assert torch.allclose(f.weight.grad, expected)


@pytest.mark.parametrize("factory", [A.prelu, A.prelu_shared])
def test_prelu_passes_gradcheck(y: torch.Tensor, factory) -> None:
    f = factory(3).double()
    away = torch.where(
        y.abs() < 0.1, 0.5, y
    ).requires_grad_()  # off the kink, where the difference quotient is wrong
    assert torch.autograd.gradcheck(
        lambda x, a: nn.functional.prelu(x, a),
        (away, f.weight.detach().requires_grad_()),
        atol=1e-8,
    )


def test_slope_zero_is_relu_and_slope_one_is_linear(y: torch.Tensor) -> None:
    assert torch.equal(A.prelu(3, initial_slope=0.0).double()(y), A.relu(3)(y))
    assert torch.equal(A.prelu(3, initial_slope=1.0).double()(y), A.identity(3)(y))


def test_slopes_start_at_a_quarter_one_per_channel_or_one_per_layer() -> None:
    assert torch.equal(A.prelu(7).weight, torch.full((7,), 0.25))
    assert torch.equal(A.prelu_shared(7).weight, torch.full((1,), 0.25))


def test_leaky_relu_has_the_fixed_slope_of_maas(y: torch.Tensor) -> None:
    assert torch.equal(A.leaky_relu(3)(y), torch.where(y > 0, y, 0.01 * y))
    assert not list(A.leaky_relu(3).parameters())


def test_maxout_takes_the_largest_of_consecutive_responses() -> None:
    y = torch.arange(12.0).view(1, 6, 2) * torch.tensor([1.0, -1.0])
    assert torch.equal(Maxout(3)(y), torch.stack([y[:, 0:3].amax(1), y[:, 3:6].amax(1)], dim=1))
    assert Maxout(2)(torch.randn(4, 10)).shape == (4, 5)


def test_maxout_of_one_piece_is_refused() -> None:
    with pytest.raises(InputError, match=r"activation\.pieces=1"):
        A.maxout(3, pieces=1)


ELU_SECOND = 0.5 + math.e**2 * phi(-2) - 2 * math.exp(0.5) * phi(-1) + 0.5
ELU_DERIVATIVE = 0.5 + math.e**2 * phi(-2)
GELU_SECOND = 1 / 3 + 1 / (2 * math.sqrt(3) * math.pi)
GELU_DERIVATIVE = 1 / 3 + 2 / (3 * math.sqrt(3) * math.pi)

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
    (
        A.rrelu,
        (1 + 97 / 1728) / 2,
        (1 + 97 / 1728) / 2,
    ),  # slopes from 3/24 to 8/24: E[a^2] = (9 + 24 + 64) / 576 / 3
    (A.crelu, 0.5, 1.0),
    (partial(A.snake, a=0.5), 1 + 4 * SINE_FOURTH, 1 + (1 - math.exp(-2)) / 2),  # f' = 1 + sin z
    (partial(A.tat_leaky_relu, depth=30), 1.0, 1.0),
    (partial(A.torch_module, name="ELU"), ELU_SECOND, ELU_DERIVATIVE),
    (partial(A.torch_module, name="LeakyReLU", settings={"negative_slope": 0.5}), 0.625, 0.625),
    (partial(A.torch_module, name="PReLU"), (1 + 0.25**2) / 2, (1 + 0.25**2) / 2),
    (partial(A.maxout, pieces=3), 1 + math.sqrt(3) / (2 * math.pi), 1 / 3),
]


@pytest.mark.parametrize(("factory", "second", "derivative"), CLOSED_FORMS)
def test_moments_equal_the_closed_forms(factory, second: float, derivative: float) -> None:
    found = moments(factory(4), 4)
    assert found.second == pytest.approx(second, rel=1e-6 if factory is A.selu else 1e-12)
    assert derivative is None or found.derivative_second == pytest.approx(derivative, rel=1e-12)


def test_activations_of_torch_are_given_by_name_with_their_own_settings() -> None:
    made = A.torch_module(7, "PReLU", {"init": 0.1})
    assert repr(made) == "PReLU(num_parameters=7)"
    assert made.weight.tolist() == pytest.approx([0.1] * 7)
    for name, settings, said in (
        ("Mich", None, "activation.name=Mich is no activation of torch; did you mean Mish"),
        ("Linear", None, "activation.name=Linear is no activation of torch"),
        (
            "Threshold",
            None,
            "activation.name=Threshold needs threshold and value; give "
            "'activation.settings={thresho",
        ),
        (
            "Threshold",
            {"value": 1.0},
            "activation.name=Threshold needs threshold; give 'activation.settings=",
        ),
        (
            "MultiheadAttention",
            None,
            "activation.name=MultiheadAttention needs embed_dim and num_heads; give",
        ),
        (
            "ELU",
            {"slope": 1.0},
            r"activation.settings.slope is not known; torch.nn.ELU takes: alpha, inplace",
        ),
    ):
        with pytest.raises(InputError, match=said):
            A.torch_module(7, name, settings)


def test_crelu_and_glu_by_hand() -> None:
    y = torch.tensor([[1.0, -2.0, 3.0, -4.0]])
    assert A.crelu(4)(y).tolist() == [[1, 0, 3, 0, 0, 2, 0, 4]]
    assert torch.equal(A.glu(2)(y), y[:, :2] * torch.sigmoid(y[:, 2:]))
    assert [(pieces(a(4)), outputs(a(4))) for a in (A.relu, A.maxout, A.glu, A.crelu)] == [
        (1, 1),
        (2, 1),
        (2, 1),
        (1, 2),
    ]


def test_noisy_relu_has_the_noise_of_nair_and_hinton_in_training_alone() -> None:
    torch.manual_seed(0)
    module, y = A.noisy_relu(1), torch.tensor([[3.0], [0.0], [-2.0]]).repeat(1, 200_000)
    noise = module.train()(y[:1] + 20)[0] - 23  # so far from 0 nothing is cut off, and sigmoid is 1
    assert noise.mean().item() == pytest.approx(0, abs=0.01)
    assert noise.var().item() == pytest.approx(1, abs=0.02)
    low = module(y[2:])  # of variance sigmoid(-2) = 0.119
    assert (low > 0).float().mean().item() == pytest.approx(phi(-2 / 0.1192**0.5), abs=1e-4)
    at_zero = module(y[1:2])
    assert at_zero.square().mean().item() == pytest.approx(
        0.25, abs=0.005
    )  # half of the variance sigmoid(0)
    assert torch.equal(module.eval()(y), y.relu())


@pytest.mark.parametrize("factory", [A.crelu, A.glu, A.rrelu, A.noisy_relu])
def test_moments_of_modules_that_say_them_are_those_of_samples(factory) -> None:
    """A million numbers: the standard error of E[f^2] is below 0.002, so five of them are 0.01."""
    module, generator = factory(1000).train(), torch.Generator().manual_seed(0)
    torch.manual_seed(1)
    y = torch.randn(1000, 1000 * pieces(module), generator=generator).requires_grad_()
    x = module(y)
    gradient = torch.randn(x.shape, generator=generator)
    (back,) = torch.autograd.grad(x, y, gradient)
    said = moments(module)
    assert x.square().mean().item() == pytest.approx(said.second, abs=0.01)
    assert back.square().mean().item() == pytest.approx(said.derivative_second, abs=0.01)
    torch.manual_seed(1)  # the same noise
    wider = module(y * 1.02).square().mean() / x.square().mean()
    if factory is not A.rrelu:  # which draws other slopes
        assert math.log(wider.item()) / math.log(1.02**2) == pytest.approx(said.map_slope, abs=0.02)


@pytest.mark.parametrize("factory", [A.relu, A.leaky_relu, A.prelu, A.identity])
def test_quadrature_agrees_with_the_rectifiers_closed_forms(factory) -> None:
    assert asdict(A._quadrature(factory(4), 4)) == pytest.approx(
        asdict(moments(factory(4), 4)), rel=1e-12
    )


def test_the_moments_of_prelu_follow_slopes_that_were_learned() -> None:
    f = A.prelu(2)
    with torch.no_grad():
        f.weight.copy_(torch.tensor([0.0, 1.0]))
    assert moments(f, 2).second == pytest.approx(0.75)
    assert A._quadrature(f, 2).second == pytest.approx(0.75)


def test_an_unknown_module_gets_its_moments_by_quadrature() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**2

    found = moments(Square())
    assert found.second == pytest.approx(3)  # E[z^4]
    assert found.derivative_second == pytest.approx(4)  # E[(2z)^2]
    assert found.map_slope == pytest.approx(2)  # the variance map is q^2


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
def test_the_slope_of_the_variance_map_tells_which_fixed_points_repel(
    factory, slope: float
) -> None:
    """The derivative of q -> E[f(sqrt(q) z)^2] / E[f(z)^2] at q = 1, against a difference
    quotient."""
    from rectifiers.quadrature import normal_mean

    f, h = factory(1).double(), 1e-4
    up, down = (normal_mean(lambda z, q=q: f(math.sqrt(q) * z) ** 2) for q in (1 + h, 1 - h))
    found = moments(factory(1))
    assert found.map_slope == pytest.approx((up - down) / (2 * h) / found.second, rel=1e-6)
    assert found.map_slope == pytest.approx(slope, abs=0.005)


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
        for backward in (False, True):
            with pytest.raises(
                InputError, match=rf"{type(module).__name__}\(\) has E.* use an initialiser"
            ):
                gain(module, mode="backward" if backward else "forward")
    assert gain(nn.ReLU()) == gain(nn.ReLU(), mode="backward") == math.sqrt(2)
    with pytest.raises(InputError, match=r"Halves\(\) maps"):
        moments(Halves(), 4)
    with pytest.raises(
        InputError, match=r"`moments\(\)` that returns 1\.0; let it return activations\.Moments"
    ):
        moments(Says())


def test_moments_that_diverge_are_infinite_and_the_others_finite() -> None:
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
def test_an_activation_that_mixes_its_inputs_has_no_moments_by_quadrature(
    mixing: nn.Module,
) -> None:
    with pytest.raises(
        InputError, match=r"mixes the numbers that it is given, .* method `moments\(\)`"
    ):
        moments(mixing, 3)
