"""What `stability` says of chains: its table, and the depth to which they train."""

import math

import pytest
import torch
from torch import Tensor, nn

from rectifiers import activations as A
from rectifiers import stability
from rectifiers.theory.mean_field import correlations


def wave(x: Tensor) -> Tensor:
    return x * x.cos()


def test_no_depth_is_that_of_the_paper() -> None:
    for activation in ("gelu", nn.Tanh(), wave):
        assert stability(activation) == stability(activation, 30)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.PReLU(3), nn.GELU(), nn.Softplus(), nn.ELU()])
def test_correlations_follow_the_map(activation: nn.Module) -> None:
    """At every depth of the table, and at 0 to begin with."""
    chain = stability(activation, 120)
    assert chain.gain is not None
    c, expected = 0.0, [0.0]
    for _ in range(119):
        variance = chain.gain**2
        c = correlations(activation, min(c, 1.0), 1.0, layers=1, weight_variance=variance)[-1]
        expected.append(c)
    assert chain.correlations == pytest.approx(expected, rel=1e-12)


def test_two_inputs_of_a_wide_network_meet_the_theory() -> None:
    draw = torch.Generator().manual_seed(0)
    for activation in (nn.ReLU(), nn.ELU()):
        chain = stability(activation)
        y = torch.randn(2, 2000, generator=draw)
        for _ in range(5):
            weight = torch.randn(2000, 2000, generator=draw) * (chain.gain or 0) / 2000**0.5
            y = activation(y) @ weight
        measured = torch.nn.functional.cosine_similarity(y[0], y[1], dim=0)
        assert float(measured) == pytest.approx(chain.correlations[5], abs=0.05)


@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh", "sigmoid", "softplus", wave])
def test_limits_are_the_last_depths_within_bounds(activation) -> None:
    bounds = {"growth": ("error_growth", 10), "explosion": ("gradient_growth", 1e7)}
    bounds["vanishing"] = ("gradient_growth", 1e-7)
    limits = stability(activation).limits
    assert limits
    assert list(limits.values()) == sorted(limits.values())
    for cause, layers in limits.items():
        name, bound = bounds[cause]
        inside, outside = (getattr(stability(activation, n), name) for n in (layers, layers + 1))
        assert min(inside, outside) <= bound <= max(inside, outside)
        assert abs(math.log(outside)) > abs(math.log(bound))


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.LeakyReLU(0.3), A.maxout(8), nn.Identity()])
def test_rectifiers_have_no_limit(activation: nn.Module) -> None:
    assert stability(activation).limits == {}


def test_table_has_usual_depths_and_the_given_one() -> None:
    head, *_ = stability("gelu").cells()
    assert head[2:-1] == ("10 layers", "30 layers", "100 layers")
    chain = stability("gelu", 50)
    head, growth, gradient, correlation, width = chain.cells()
    column = head.index("50 layers")
    assert head[2:-1] == ("10 layers", "30 layers", "50 layers", "100 layers")
    assert growth[column] == f"{chain.error_growth:.3g}"
    assert gradient[column] == f"{chain.gradient_growth:.3g}"
    assert correlation[column] == f"{chain.correlations[49]:.4f}"
    assert chain.width is None
    assert width[column] == ""  # beyond what a first order can say
    assert {len(row) for row in chain.cells()} == {len(head)}


@pytest.mark.parametrize(
    ("activation", "error", "gradient", "inputs"),
    [
        (nn.ReLU(), "stays", "keeps", "alike, slowly"),
        (nn.Sigmoid(), "fades", "vanishes", "alike"),
        (nn.Softplus(), "fades", "vanishes", "alike"),
        (nn.Tanh(), "fades", "explodes", "apart"),
        (wave, "grows", "explodes", "apart"),
        (nn.Identity(), "stays", "keeps", "apart"),
    ],
)
def test_words_say_what_the_numbers_do(activation, error: str, gradient: str, inputs: str) -> None:
    words = [row[-1] for row in stability(activation).cells()[1:4]]
    for word, expected in zip(words, (error, gradient, inputs), strict=True):
        assert expected in word
    assert words[2].endswith(inputs)


@pytest.mark.parametrize("activation", [torch.sign, lambda x: (x * x).exp(), torch.zeros_like])
def test_without_a_gain_the_table_still_prints(activation) -> None:
    chain = stability(activation)
    assert chain.gain is None
    assert "no gain" in str(chain)
    assert chain.to_markdown()


@pytest.mark.parametrize("factory", [A.maxout, A.crelu, A.glu, A.rrelu])
def test_own_moments_leave_correlations_unknown(factory) -> None:
    chain = stability(factory(8))
    assert chain.correlations == ()
    assert not [row for row in chain.cells() if "correlation" in row[0]]


def test_remedies_answer_what_ends_the_depth() -> None:
    assert "he_backward" in str(stability(wave))
    assert "empirical" in str(stability("gelu"))
    for words in ("he_backward", "empirical"):
        assert words not in str(stability("sigmoid"))
