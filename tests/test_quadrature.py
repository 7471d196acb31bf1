import math

import pytest
import torch

from rectifiers.quadrature import normal_mean, normal_rule


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
