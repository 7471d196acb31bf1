"""Activations made for a depth: their conditions, the figures of the package `dks`, and deep
networks."""

import math

import pytest
import torch

from conftest import compose_config
from rectifiers import activations as A
from rectifiers.activations.modules import telu
from rectifiers.activations.shaped import SMOOTH, leaky_slope, shape
from rectifiers.gains import moments
from rectifiers.quadrature import describe, normal_rule
from rectifiers.runs.config import RunConfig
from rectifiers.theory import mean_field as M
from rectifiers.training import checks, targets
from refusals import refused


@pytest.mark.parametrize(
    ("depth", "similarity", "slope"),
    [
        (13, 0.9, 0.0241991282),
        (30, 0.9, 0.3026942015),
        (50, 0.9, 0.4305229485),
        (100, 0.9, 0.5704395324),
        (30, 0.5, 0.6486715153),
        (30, 0.95, 0.1502007246),
    ],
)
def test_slopes_are_the_authors(depth: int, similarity: float, slope: float) -> None:
    """Its numbers, of version 0.1.2 for a chain, were computed once; its own tolerance is 1e-8 of
    the similarity."""
    assert leaky_slope(depth, similarity) == pytest.approx(slope, abs=1e-7)


# input scale, input shift, output scale, output shift of version 0.1.2 of `dks`, for chains
PACKAGE = [
    ("tanh", 3, 0.5905338114, 0.8791484675, 3.0172046592, -0.6049559181),
    ("tanh", 100, 0.0904379449, 0.5601066909, 14.9025258128, -0.5050043767),
    ("softplus", 3, 2.0819812437, 0.4049982403, 0.7991010845, -1.3073357198),
    ("softplus", 100, 0.2280237612, 0.4075095828, 7.3032530805, -0.9237196071),
    ("silu", 10, 0.4369165889, 0.3413047254, 3.4280740705, -0.2427555778),
    ("gelu", 50, 0.1213606133, 0.2577426236, 11.7514277825, -0.1605413848),
]


@pytest.mark.parametrize(
    ("function", "depth", *["numbers"]), [(name, depth, rest) for name, depth, *rest in PACKAGE]
)
def test_shaped_functions_are_the_authors(function: str, depth: int, numbers: list[float]) -> None:
    """Computed once with it, because it needs versions of scipy that are older than those here."""
    assert shape(function, depth, 1.5) == pytest.approx(numbers, rel=1e-6)


@pytest.mark.parametrize("function", SMOOTH)
def test_shaped_functions_meet_the_four_conditions(function: str) -> None:
    activation = A.dks(4, function, depth=20)
    known = moments(activation)
    assert (known.second, known.map_slope) == pytest.approx((1, 1), abs=1e-9)
    assert known.derivative_second**20 == pytest.approx(1.5, abs=1e-7)
    mapped = M.correlations(activation, 0.0, 1.0, layers=1, weight_variance=1.0)[-1]
    assert mapped == pytest.approx(0, abs=1e-9)


def test_shaped_functions_are_not_taken_for_rectifiers() -> None:
    """Their variance map has a slope of 1 at a variance of 1 alone."""
    activation, (nodes, weights) = A.dks(1, depth=20), normal_rule()
    second = float(weights @ activation(2 * nodes).square())
    assert M.variance_map(activation, 4.0, weight_variance=1.0) == pytest.approx(second, rel=1e-9)
    assert second < 3.96


def test_shallow_networks_get_a_plain_relu() -> None:
    y = torch.randn(100, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(A.tat_leaky_relu(1, depth=5)(y), math.sqrt(2) * y.relu())


def described(config: RunConfig) -> str | None:
    return targets.describe_activation(config, targets.import_functions(config)["activation"])


def test_depth_is_that_of_the_network_of_rows() -> None:
    for model, nonlinear in (("mlp", 3), ("small14", 13), ("small30", 29)):
        config = compose_config("activation=tat_leaky_relu", f"model={model}")
        assert described(config) == describe(A.tat_leaky_relu(1, depth=nonlinear))
    config = compose_config("activation=dks", "activation.depth=50", "model=mlp")
    assert described(config) == describe(A.dks(1, depth=50))


def test_unknown_depth_must_be_given() -> None:
    for activation in ("dks", "tat_leaky_relu"):
        with refused(r"activation\.depth=null is .*.*give the number of"):
            checks.checked_functions(compose_config(f"activation={activation}", "model=resnet20"))
        checks.checked_functions(
            compose_config(f"activation={activation}", "activation.depth=19", "model=resnet20")
        )


def test_a_slope_that_no_form_reaches_is_named() -> None:
    with refused(r"softplus has no form of which 1 layers make a.*lower"):
        A.dks(1, "softplus", depth=1)


def test_telu_is_its_formula_where_the_clamp_begins() -> None:
    y = torch.linspace(-6, 12, 500, dtype=torch.float64)
    expected = y * torch.tanh(torch.exp(y))
    torch.testing.assert_close(telu(y), expected, rtol=1e-12, atol=0)
