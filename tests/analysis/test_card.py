"""What a card measures agrees with what is known: rectifiers on paper, and chains that must and
cannot train."""

import math

import pytest
from torch import nn

from conftest import compose_config
from rectifiers.activation_modules import CReLU
from rectifiers.analysis.card import cost as costs
from rectifiers.analysis.card import start, trainability
from rectifiers.analysis.card.paper import theory_section
from rectifiers.gains import gain
from rectifiers.runs.config import RunConfig


def chain(*overrides: str, depth: int = 3) -> RunConfig:
    own = [
        "data=digits8",
        "data.split_seed=0",
        "model=mlp",
        f"model.depth={depth}",
        "model.hidden=16",
    ]
    return compose_config(*own, "preprocess=pixel_mean", *overrides)


def test_relu_with_he_is_neutral_and_critical_and_keeps_every_signal() -> None:
    found = theory_section(nn.ReLU(), 2.0)
    assert (
        found["fixed_point"],
        found["chi_1"],
        found["phase"],
        found["correlation_fixed_point"],
    ) == (
        1,
        1,
        "critical",
        1,
    )
    assert found["signal"]["1000"]["off"] == pytest.approx(math.log10(1.1))
    assert found["signal"]["1000"]["gradient"] == 0
    assert found["flat_share"] == pytest.approx(0.5, abs=1e-6)
    assert (
        0.8
        < found["correlations"]["10"]
        < found["correlations"]["30"]
        < found["correlations"]["100"]
        < 1
    )


def test_relu_with_half_of_its_variance_loses_a_factor_of_two_per_layer() -> None:
    found = theory_section(nn.ReLU(), 1.0)
    assert found["signal"]["10"]["kept"] == pytest.approx(9 * math.log10(0.5))
    assert found["signal"]["10"]["gradient"] == pytest.approx(9 * math.log10(0.5))
    assert found["signal"]["100"]["kept"] is None  # too small to be followed
    assert found["phase"] is None


@pytest.mark.process
def test_gelu_drifts_off_a_wrong_signal_and_tanh_comes_back_to_its_own() -> None:
    gelu, tanh = (theory_section(each, gain(each) ** 2) for each in (nn.GELU(), nn.Tanh()))
    assert gelu["fixed_point_word"] == "repels"
    assert gelu["signal"]["30"]["off"] > 2 * math.log10(1.1)
    assert abs(tanh["signal"]["30"]["off"]) < 1e-4
    assert tanh["flat_share"] < theory_section(nn.ReLU(), 2.0)["flat_share"]


def test_what_is_no_function_of_one_number_says_so() -> None:
    found = theory_section(CReLU(), 1.0)
    assert found["unknown"] == "it is no function of one number, so no map of correlations is known"
    assert found["gain"] == pytest.approx(math.sqrt(2))


def test_a_chain_trains_from_its_own_gain_and_not_from_a_vanishing_one(fitted) -> None:
    own = trainability.Chain(chain("activation=tanh", f"cache_dir={fitted}"))
    assert own.final_loss(1.0, 0.03) < trainability.TRAINED
    assert own.final_loss(1e-6, 0.003) == pytest.approx(math.log(10), abs=0.02)
    assert own.final_loss(1.0, 0.03) == own.final_loss(
        1.0, 0.03
    )  # nothing is left of the runs before
    assert own.weight_variance == pytest.approx(gain(nn.Tanh()) ** 2)


def test_the_depth_scale_of_relu_is_infinite_at_he_and_short_beside_it(fitted) -> None:
    scales = trainability.Chain(chain("activation=relu", f"cache_dir={fitted}")).depth_scales()
    assert scales is not None
    by_gain = dict(zip(trainability.GAINS, scales, strict=True))
    assert by_gain[1.0] is None
    assert [by_gain[2.0], by_gain[0.5]] == pytest.approx([1 / math.log(4)] * 2)


def test_the_map_has_a_cell_per_depth_and_gain_and_the_rates_beside_it(monkeypatch, fitted) -> None:
    for name, value in {
        "STEPS": 2,
        "MAP_DEPTHS": (3,),
        "RATE_DEPTHS": (4,),
        "GAINS": (1.0, 1e20),
    }.items():
        monkeypatch.setattr(trainability, name, value)
    found = trainability.trainability_section(
        {d: chain(f"cache_dir={fitted}", depth=d - 1) for d in (3, 4)}
    )
    ((kept, lost),) = found["losses"]
    assert kept is not None
    assert lost is None
    assert len(found["rate_losses"][0]) == len(trainability.RATES)


def test_the_start_is_measured_beside_the_theory(fitted) -> None:
    found = start.init_section(
        chain("activation=relu", "init=lecun", f"cache_dir={fitted}", depth=5)
    )
    assert (len(found["layers"]), found["width"]) == (6, 16)
    first, last = (found["layers"][place]["theory"] for place in (0, -1))
    assert last - first == pytest.approx(5 * math.log10(0.5))
    measured = found["layers"][-1]["measured"]
    assert measured["low"] < last + found["layers"][-1]["width_drift"] < measured["high"]


def test_an_activation_that_keeps_more_for_the_backward_pass_costs_more(
    monkeypatch, fitted
) -> None:
    monkeypatch.setattr(costs, "ROUNDS", 3)
    relu, gelu = (chain(f"activation={name}", f"cache_dir={fitted}") for name in ("relu", "mish"))
    assert costs.cost({"entry": relu, "relu": relu})["bytes_ratio"] == 1
    found = costs.cost({"entry": gelu, "relu": relu})
    assert found["bytes_ratio"] > 1
    assert (
        0
        < found["seconds_ratio"]["low"]
        <= found["seconds_ratio"]["median"]
        <= found["seconds_ratio"]["high"]
    )
