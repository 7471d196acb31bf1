"""Mean field theory: the maps against closed forms, and refusals."""

import doctest
import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from rectifiers import activations as A
from rectifiers.theory import mean_field as M
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
    for c in (-0.6, 0.0, 0.4, 0.95):
        expected = (1.7 * product(c) + 0.2) / after
        mapped = M.correlations(Erf(), c, q, layers=1, **both)[-1]
        assert mapped == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("c", [-0.8, 0.0, 0.3, 0.9])
def test_power_series_equals_the_closed_form(c: float) -> None:
    mapped, expected = (
        M.correlations(activation, c, 2.0, layers=1, weight_variance=1.3)[-1]
        for activation in (Kink(), nn.LeakyReLU(0.1))
    )
    assert mapped == pytest.approx(expected)


def test_a_subclass_has_a_map_of_its_own() -> None:
    class Square(nn.ReLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**2

    # E[u^2 v^2] = 1 + 2 c^2
    mapped = M.correlations(Square(), 0.5, 1.0, layers=1, weight_variance=1.0)[-1]
    assert mapped == pytest.approx((1 + 2 * 0.5**2) / 3)


def test_unusable_arguments_are_refused() -> None:
    mapped = partial(M.correlations, q=1.0, layers=1)
    calls = [
        (lambda: M.variance_map(nn.ReLU(), -1.0, weight_variance=2.0), "q=-1.0"),
        (lambda: M.variance_map(nn.ReLU(), math.inf, weight_variance=2.0), "q=inf"),
        (lambda: M.variance_map(nn.ReLU(), 1.0, weight_variance=math.nan), "weight_variance=nan"),
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
