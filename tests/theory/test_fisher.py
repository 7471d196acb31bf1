"""The Fisher information against its definition and the closed forms of two-layer networks."""

import math
from statistics import NormalDist

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.theory.fisher import (
    angle,
    check_two_layers,
    fisher_matrix,
    gradient,
    measure,
    summarize,
    weights_of,
)
from refusals import refused

FALSE_ALARM = 1e-4


def two_layers(
    activation, *, hidden: int = 4, classes: int = 3, side: int = 2, seed: int = 0
) -> Network:
    rows = [{"name": "fc", "linear": hidden}, {"name": "out", "linear": "classes"}]
    network = Network(expand(rows, width=1, classes=classes), activation, channels=1, input_px=side)
    initialize_chain(network.sites(), I.he, seed=seed, name="")
    return network.double()


def inputs(count: int, side: int = 2, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, side, side, dtype=torch.float64, generator=draw)


def flat(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([w.flatten() for w in weights.values()])


def log_p(network: Network, x: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """log p [N, C] of the network whose weights are `vector`."""
    weights, start = {}, 0
    for name, w in weights_of(network).items():
        weights[name] = vector[start : start + w.numel()].view_as(w)
        start += w.numel()
    fixed = {name: p.detach() for name, p in network.named_parameters()}
    return F.log_softmax(functional_call(network, {**fixed, **weights}, (x,)), dim=1)


@pytest.mark.parametrize("activation", [A.relu, A.prelu, A.tanh])
def test_fisher_is_mean_outer_product_of_gradients(activation) -> None:
    network, x = two_layers(activation), inputs(7)
    expected = torch.zeros(28, 28, dtype=torch.float64)
    for one in x:
        for label in range(3):
            vector = flat(weights_of(network)).requires_grad_()
            logs = log_p(network, one[None], vector)[0]
            (found,) = torch.autograd.grad(logs[label], vector)
            expected += logs[label].detach().exp() * torch.outer(found, found) / len(x)
    torch.testing.assert_close(fisher_matrix(network, x), expected)


def ideal(slope: float) -> float:
    return (1 - slope) ** 2 / (math.pi * (1 + slope**2))


@pytest.mark.parametrize("slope", [0.0, 0.25, 0.5, 1.0])
def test_unit_pairs_have_their_closed_form(slope: float) -> None:
    """Independent Gaussian responses, equal probabilities: (1 - a)^2 / (pi (1 + a^2)); E[f] is (1 -
    a) s / sqrt(2 pi).

    4,000 inputs; the error is at most that of a correlation of independent numbers, 1/sqrt(N) for
    a pair, and the bound its quantile of FALSE_ALARM. Where the closed form is 0 the mean of
    absolute values is not, but within the bound."""
    network = two_layers(lambda c: torch.nn.LeakyReLU(slope))
    with torch.no_grad():
        network.head.fc.weight.copy_(torch.eye(4))
        network.head.out.weight.zero_()
    found = summarize(fisher_matrix(network, inputs(4000)), 4, 3)
    bound = NormalDist().inv_cdf(1 - FALSE_ALARM / 2) / math.sqrt(4000)
    assert found["output_units"] == pytest.approx(ideal(slope), abs=bound)
    assert ideal(0.0) == pytest.approx(0.3183, abs=1e-4)
    assert ideal(0.25) == pytest.approx(0.1685, abs=1e-4)


def test_gradient_and_fisher_matrix_order_the_weights_alike() -> None:
    network, x = two_layers(A.prelu), inputs(6)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    vector = flat(weights_of(network)).requires_grad_()
    (expected,) = torch.autograd.grad(F.nll_loss(log_p(network, x, vector), labels), vector)
    torch.testing.assert_close(gradient(network, x, labels), expected)


def test_natural_angle_of_isotropic_matrix_is_zero() -> None:
    one = torch.tensor([1.0, 1.0], dtype=torch.float64)
    equal = 3 * torch.eye(2, dtype=torch.float64)
    assert angle(equal, one, damping=1e-3) == pytest.approx(0, abs=1e-5)
    # the natural direction is (1, 1/4)
    narrow = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))
    assert angle(narrow, one, damping=1e-12) == pytest.approx(45 - math.degrees(math.atan(1 / 4)))
    assert angle(torch.zeros(2, 2, dtype=torch.float64), one, damping=1e-3) is None


def test_damping_is_a_share_of_the_diagonal() -> None:
    one = torch.tensor([1.0, 1.0], dtype=torch.float64)
    # the mean is 2: 1 + 2 and 3 + 2 stay
    matrix = torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert angle(matrix, one, damping=1.0) == pytest.approx(45 - math.degrees(math.atan(3 / 5)))


def test_damped_angles_have_their_names_damping() -> None:
    network, x = two_layers(A.prelu), inputs(6)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    measures = measure(network, x, labels)
    fisher, downhill = fisher_matrix(network, x), gradient(network, x, labels)
    by_name = {"natural_angle": 1e-3}
    by_name |= {f"natural_angle_damped_{share}": share for share in (0.0001, 0.01, 0.1)}
    angles = {name: number for name, number in measures.items() if "angle" in name}
    assert angles.keys() == by_name.keys()
    for name, share in by_name.items():
        assert angles[name] == pytest.approx(angle(fisher, downhill, share)), name


@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_weights_with_information_below_rounding_are_dead(scale: float) -> None:
    """Three weights of the first layer and two of the output, of one hidden unit and two classes.

    F_22 is 1e-15 of the largest entry, as rounding leaves it; its correlation of 1 with the first
    weight means nothing. F_11 is 1e-13 of the largest, and counts."""
    fisher = torch.diag(torch.tensor([1.0, 1e-13, 1e-15, 1.0, 1.0], dtype=torch.float64))
    fisher[0, 1] = fisher[1, 0] = 0.5 * math.sqrt(1e-13)
    fisher[0, 2] = fisher[2, 0] = math.sqrt(1e-15)
    fisher[0, 3] = fisher[3, 0] = 0.25
    found = summarize(scale * fisher, 1, 2)
    assert found["dead"] == 1
    assert found["first"] == pytest.approx(0.5)  # of the pair of live weights
    assert found["cross"] == pytest.approx(0.25 / 4)  # two live weights times two of the output


def test_summary_of_a_matrix_by_hand() -> None:
    found = summarize(torch.diag(torch.arange(1.0, 25.0, dtype=torch.float64)), 4, 3)
    keys = ("output_units", "first", "output", "cross", "off_over_diagonal")
    assert [found[key] for key in keys] == [0] * 5
    assert found["largest_over_mean"] == pytest.approx(24 / 12.5)
    assert found["effective_rank"] == pytest.approx(300**2 / 4900 / 24)
    full = summarize(torch.ones(24, 24, dtype=torch.float64), 4, 3)
    assert (full["output_units"], full["first"], full["cross"]) == pytest.approx((1, 1, 1))
    assert full["effective_rank"] == pytest.approx(1 / 24)
    dead = torch.ones(24, 24, dtype=torch.float64)
    dead[16], dead[:, 16] = 0, 0  # a dead weight of the second output unit
    assert summarize(dead, 4, 3)["output_units"] == pytest.approx(1)
    alone = torch.eye(24, dtype=torch.float64)
    alone[:6, :6] = 1  # of the first layer, before those of a shortcut
    assert summarize(alone, 4, 3, shortcut=6)["first"] == pytest.approx(1)


def test_networks_without_two_layers_are_refused() -> None:
    rows = [{"name": "fc", "linear": 4, "repeat": 2}, {"name": "out", "linear": "classes"}]
    three = Network(expand(rows, width=1, classes=3), A.relu, channels=1, input_px=2)
    with refused(r"two layers of weights, .* give model=mlp"):
        check_two_layers(three)
    with refused("5600 weights is beyond the limit of 4000; lower model"):
        check_two_layers(two_layers(A.relu, hidden=800))
