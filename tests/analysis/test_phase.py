"""The phase diagram agrees with the mean field theory point by point, and places He's point in
it."""

import math

import pytest

from conftest import compose_config
from rectifiers import activations as A
from rectifiers.analysis import phase
from rectifiers.runtime.errors import InputError
from rectifiers.theory import mean_field as M


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phase, "POINTS", 5)


def diagram(activation: str) -> dict:
    return phase.analyse(compose_config(f"activation={activation}"))


@pytest.mark.process
@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_diagram_has_chi_of_the_fixed_points(name: str) -> None:
    numbers, activation = diagram(name), getattr(A, name)(1)
    for row, bias in list(enumerate(numbers["bias_variances"]))[1::2]:
        for column, weight in enumerate(numbers["weight_variances"]):
            q = M.fixed_point(activation, weight_variance=weight, bias_variance=bias)
            chi = numbers["chi"][row][column]
            if math.isinf(q):
                assert chi is None
            else:
                assert chi == pytest.approx(
                    M.chi_1(activation, q, weight_variance=weight), rel=0.02
                )


def test_edge_of_chaos_is_critical_at_its_fixed_points() -> None:
    for weight, bias, q in diagram("tanh")["edge"][::12]:
        assert M.variance_map(
            A.tanh(1), q, weight_variance=weight, bias_variance=bias
        ) == pytest.approx(q)
        assert M.chi_1(A.tanh(1), q, weight_variance=weight) == pytest.approx(1)


@pytest.mark.process
def test_he_point_is_on_the_edge_for_rectifiers_alone() -> None:
    relu, tanh, sigmoid = (diagram(name)["he"] for name in ("relu", "tanh", "sigmoid"))
    assert relu["weight_variance"] == pytest.approx(2)
    assert (relu["phase"], tanh["phase"], sigmoid["phase"]) == ("critical", "chaotic", "ordered")
    assert relu["correlation_scale"] is None
    assert tanh["edge"] == pytest.approx(
        (tanh["weight_variance"] / tanh["chi_1"], 1 - 1 / tanh["chi_1"])
    )
    assert sigmoid["edge"] is None


def test_rectifier_has_no_fixed_point_beyond_he() -> None:
    numbers = diagram("relu")
    assert numbers["weight_variances"] == pytest.approx([1, 2, 3, 4, 5])
    assert numbers["chi"][1] == [pytest.approx(0.5), None, None, None, None]


def test_activation_known_at_one_variance_is_refused() -> None:
    with pytest.raises(InputError, match="GLU says its moments for a variance of 1 alone"):
        diagram("glu")
