"""Responses by layer out of a record, and Eq. 9's factors out of its init report."""

import math
from typing import Any

import pytest

from made_up import LAYER, SCIENCE, training
from rectifiers.results.signal import by_layer, expected
from rectifiers.runs.record import TrainingRecord


def test_a_rows_responses_are_read_by_layer_and_silent_ones_left_out() -> None:
    row = {
        "epoch": 1,
        "response_mean/fc_1": 3.0,
        "response_std/fc_1": 4.0,
        "response_mean/fc_2": None,
        "response_std/fc_2": 1.0,
        "response_mean/fc_3": 0.0,
        "response_std/fc_3": 0.0,
    }
    run = training(init_report=[LAYER | {"layer": f"fc_{i}"} for i in (1, 2, 3)])
    assert by_layer(run, row) == {"fc_1": 5.0}
    assert by_layer(run, {"epoch": 1}) == {}


def test_layers_stand_in_the_order_of_the_network_and_not_of_the_alphabet() -> None:
    names = [f"fc_{i}" for i in range(1, 12)]
    row = {f"response_{what}/{name}": 1.0 for name in sorted(names) for what in ("mean", "std")}
    assert (
        list(by_layer(training(init_report=[LAYER | {"layer": name} for name in names]), row))
        == names
    )


def record(std: float, norm: str = "none", **changed: Any) -> TrainingRecord:
    layer = LAYER | {"fan_in": 50, "std_asked": std, "shape": [50, 50]}
    hidden = [layer | {"layer": f"fc_{i}"} | changed for i in (1, 2, 3)]
    out = layer | {"layer": "out", "activation_after": None, "shape": [10, 50]}
    return training(
        init_report=[*hidden, out], science=SCIENCE | {"model": {"width": 1, "norm": norm}}
    )


@pytest.mark.parametrize(
    ("variance", "factor"), [(2 / 50, 1.0), (1 / 50, math.sqrt(0.5)), (2 * 0.81 / 50, 0.9)]
)
def test_eq_9_keeps_he_halves_xavier_and_takes_an_error_to_the_power_of_depth(
    variance: float, factor: float
) -> None:
    found = expected(record(math.sqrt(variance)))
    assert found == {f"fc_{i + 1}": pytest.approx(factor**i) for i in range(3)}


def test_eq_9_is_silent_where_it_does_not_speak() -> None:
    assert expected(record(0.1, activation_after="Tanh")) is None
    assert expected(record(0.1, shape=[50, 50, 3, 3])) is None
    assert expected(record(0.1, norm="batch")) is None
    assert expected(record(0.0)) is None
    assert expected(record(0.1, forward_gain=None)) is None
