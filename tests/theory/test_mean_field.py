"""Mean field theory: the maps against closed forms, their fixed points, and refusals."""

import doctest
import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from rectifiers import activations as A
from rectifiers.gains import moments
from rectifiers.theory import mean_field as M
from rectifiers.theory.stability import stability
from refusals import refused


class Erf(nn.Module):
    """The one smooth bounded function whose maps have closed forms (Williams 1997)."""

    def forward(self, y: Tensor) -> Tensor:
        return torch.erf(y)


class Kink(nn.Module):
    """A leaky ReLU that nothing recognises as one."""

    def forward(self, y: Tensor) -> Tensor:
        return torch.where(y > 0, y, 0.1 * y)


@pytest.mark.parametrize("q", [0.01, 0.7, 3.0])
def test_erf_has_the_maps_of_its_closed_forms(q: float) -> None:
    def product(c: float) -> float:
        return 2 / math.pi * math.asin(2 * c * q / (1 + 2 * q))

    both = {"weight_variance": 1.7, "bias_variance": 0.2}
    after = 1.7 * product(1) + 0.2
    assert M.variance_map(Erf(), q, **both) == pytest.approx(after, rel=1e-10)
    expected = 1.7 * 4 / math.pi / math.sqrt(1 + 4 * q)
    assert M.chi_1(Erf(), q, weight_variance=1.7) == pytest.approx(expected, rel=1e-10)
    for c in (-0.6, 0.0, 0.4, 0.95):
        expected = (1.7 * product(c) + 0.2) / after
        mapped = M.correlations(Erf(), c, q, layers=1, **both)[-1]
        assert mapped == pytest.approx(expected, rel=1e-9)
        slope = 1.7 * 4 / math.pi / math.sqrt((1 + 2 * q) ** 2 - (2 * c * q) ** 2)
        assert M.correlation_slope(Erf(), c, q, weight_variance=1.7) == pytest.approx(
            slope, rel=1e-9
        )


@pytest.mark.parametrize("c", [-0.8, 0.0, 0.3, 0.9])
def test_power_series_equals_the_closed_form(c: float) -> None:
    rectifier = nn.LeakyReLU(0.1)
    mapped, expected = (
        M.correlations(activation, c, 2.0, layers=1, weight_variance=1.3)[-1]
        for activation in (Kink(), rectifier)
    )
    assert mapped == pytest.approx(expected)
    slope = M.correlation_slope(Kink(), c, 2.0, weight_variance=1.3)
    assert slope == pytest.approx(M.correlation_slope(rectifier, c, 2.0, weight_variance=1.3))


def test_a_subclass_has_a_map_of_its_own() -> None:
    class Square(nn.ReLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**2

    # E[u^2 v^2] = 1 + 2 c^2
    mapped = M.correlations(Square(), 0.5, 1.0, layers=1, weight_variance=1.0)[-1]
    assert mapped == pytest.approx((1 + 2 * 0.5**2) / 3)


def test_correlation_slope_ends_in_chi_1() -> None:
    for activation in (nn.Tanh(), nn.GELU(), nn.ReLU(), A.prelu(3)):
        at_end = M.correlation_slope(activation, 1.0, 0.8, weight_variance=1.5)
        assert at_end == pytest.approx(M.chi_1(activation, 0.8, weight_variance=1.5), rel=1e-9)


@pytest.mark.parametrize("name", ["relu", "prelu", "tanh", "gelu", "selu", "maxout", "crelu"])
def test_chi_1_is_the_growth_of_gradients(name: str) -> None:
    activation = getattr(A, name)(4)
    he = 1 / moments(activation).second
    expected = stability(activation, 10).chi
    assert M.chi_1(activation, 1.0, weight_variance=he) == pytest.approx(expected, rel=1e-12)


def test_fixed_point_is_where_the_variance_goes() -> None:
    assert M.fixed_point(nn.ReLU(), weight_variance=1.2, bias_variance=0.8) == pytest.approx(2.0)
    assert M.fixed_point(nn.ReLU(), weight_variance=2.0, start=3.0) == 3.0
    assert M.fixed_point(nn.ReLU(), weight_variance=1.9) == 0.0
    assert M.fixed_point(nn.ReLU(), weight_variance=2.1) == math.inf
    # its fixed point repels: to either side of it there is another fate
    gelu = 1 / moments(nn.GELU()).second
    assert M.fixed_point(nn.GELU(), weight_variance=gelu, start=1.01) == math.inf
    assert M.fixed_point(nn.GELU(), weight_variance=gelu, start=0.99) < 0.98


@pytest.mark.parametrize(
    ("activation", "weights", "biases"), [(nn.Tanh(), 2.5, 0.1), (nn.SELU(), 1.2, 0.1)]
)
def test_maps_keep_their_fixed_points(activation: nn.Module, weights: float, biases: float) -> None:
    both = {"weight_variance": weights, "bias_variance": biases}
    q = M.fixed_point(activation, **both)
    c = M.correlation_fixed_point(activation, q, **both)
    assert M.variance_map(activation, q, **both) == pytest.approx(q, rel=1e-8)
    mapped = M.correlations(activation, c, q, layers=1, **both)[-1]
    assert mapped == pytest.approx(c, rel=1e-6)
    assert c < 1


def test_tanh_has_its_edge_at_variance_1() -> None:
    chi = [M.chi_1(nn.Tanh(), 0.0, weight_variance=variance) for variance in (0.9, 1.0, 1.1)]
    assert [M.phase(each) for each in chi] == ["ordered", "critical", "chaotic"]


def test_tanh_separates_in_the_chaotic_phase_alone() -> None:
    def end(weights: float, biases: float) -> float:
        both = {"weight_variance": weights, "bias_variance": biases}
        return M.correlation_fixed_point(nn.Tanh(), M.fixed_point(nn.Tanh(), **both), **both)

    assert end(1.5, 0.1) == 1.0
    assert end(4.0, 0.0) == 0.0
    assert 0.1 < end(4.0, 0.1) < 0.9


@pytest.mark.parametrize(("weights", "biases"), [(1.5, 0.1), (3.0, 0.1)])
def test_depth_scales_are_those_of_the_iterated_maps(weights: float, biases: float) -> None:
    """e^-1 of a small difference is left after so many layers, on both sides of the edge."""
    both = {"weight_variance": weights, "bias_variance": biases}
    q = M.fixed_point(nn.Tanh(), **both)
    scales = M.depth_scales(nn.Tanh(), q, **both)
    after = M.variance_map(nn.Tanh(), q * 1.0001, **both)
    assert -1 / math.log((after - q) / (q * 1e-4)) == pytest.approx(scales.variance, rel=1e-3)
    c = M.correlation_fixed_point(nn.Tanh(), q, **both)
    after = M.correlations(nn.Tanh(), c - 1e-4, q, layers=1, **both)[-1]
    assert -1 / math.log((c - after) / 1e-4) == pytest.approx(scales.correlation, rel=1e-2)


def test_he_point_of_relu_is_critical() -> None:
    assert M.phase(M.chi_1(nn.ReLU(), 1.0, weight_variance=2.0)) == "critical"
    assert M.depth_scales(nn.ReLU(), 1.0, weight_variance=2.0) == M.DepthScales(math.inf, math.inf)


def test_unusable_arguments_are_refused() -> None:
    mapped = partial(M.correlations, q=1.0, layers=1)
    calls = [
        (lambda: M.variance_map(nn.ReLU(), -1.0, weight_variance=2.0), "q=-1.0"),
        (lambda: M.chi_1(nn.ReLU(), math.inf, weight_variance=2.0), "q=inf"),
        (lambda: M.fixed_point(nn.ReLU(), weight_variance=math.nan), "weight_variance=nan"),
        (lambda: mapped(nn.ReLU(), 1.1, weight_variance=2.0), "c=1.1"),
        (lambda: mapped(A.maxout(4), 0.5, weight_variance=2.0), "Maxout"),
        (lambda: mapped(nn.ReLU(), 0.5, weight_variance=0.0), "variance of 0"),
        (lambda: mapped(nn.Softmax(dim=1), 0.5, weight_variance=1.0), "mixes"),
    ]
    for call, part in calls:
        with refused(part):
            call()


def test_examples_of_the_docstrings_hold() -> None:
    found = doctest.testmod(M)
    assert found.attempted
    assert found.failed == 0
