"""The learning rate of each arm is the one that its search on validation images found best."""

from typing import Any

import pytest
import yaml

from made_up import diverged, epoch, training
from made_up_claims import DESCRIBED
from rectifiers.claims.archive import arm_hashes
from rectifiers.claims.claim_page import _search_cells
from rectifiers.claims.claims import Claim, Search, claims, name_of, parse
from rectifiers.claims.searches import best_rate, check_rates, rate_means
from rectifiers.runs.record import TrainingRecord
from refusals import refused

SEARCH = Search(rates=(0.1, 0.01, 0.001), seeds=(1000,), overrides=("trainer.max_epochs=1",))
ARMS = {"relu": ("optim.lr=0.01",), "prelu": ("activation=prelu", "optim.lr=0.1")}


def claim_with(search: Search) -> Claim:
    described = yaml.safe_load(DESCRIBED) | {"arms": ARMS}
    described["tests"][0] |= {"of": "prelu", "minus": "relu"}
    return parse("made_up", described).model_copy(update={"search": search})


def found(error: float) -> TrainingRecord:
    return training(history=[epoch(1), epoch(2), epoch(3) | {"val/top1_error_pct": error}])


def runs(arm: str, *errors: float | None) -> dict[str, dict[int, TrainingRecord]]:
    made = [diverged() if error is None else found(error) for error in errors]
    return {
        name_of(arm, rate): {1000: record} for rate, record in zip(SEARCH.rates, made, strict=False)
    }


def best(search: Search, arm: str, made: Any) -> float | None:
    pair = best_rate(search, arm, made)
    return None if pair is None else pair[1]


def test_every_arm_is_searched_at_every_rate() -> None:
    given = ["activation=prelu", "optim.lr=0.001", "trainer.max_epochs=1"]
    assert SEARCH.arms(ARMS)["prelu at 0.001"] == given
    assert len(SEARCH.arms(ARMS)) == 6


def test_a_grid_grows_for_one_arm_alone() -> None:
    grown = SEARCH.model_copy(update={"more_rates": {"relu": (0.3,)}})
    assert len(grown.arms(ARMS)) == 7
    assert grown.arms(ARMS)["relu at 0.3"] == ["optim.lr=0.3", "trainer.max_epochs=1"]
    made = runs("relu", 30.0, 20.0, 40.0)
    assert best(grown, "relu", made) is None  # the new rate is missing
    assert best(grown, "relu", made | {name_of("relu", 0.3): {1000: found(10.0)}}) == 0.3
    assert best(grown, "prelu", runs("prelu", 30.0, 20.0, 40.0)) == 0.01


def test_the_best_rate_has_the_lowest_last_error() -> None:
    assert best(SEARCH, "relu", runs("relu", 30.0, 20.0, 40.0)) == 0.01
    assert best(SEARCH, "relu", runs("relu", 30.0, 20.0, 20.0)) == 0.001
    assert best(SEARCH, "relu", runs("relu", None, 89.0, None)) == 0.01
    assert best(SEARCH, "relu", runs("relu", 30.0, 20.0)) is None  # one is missing
    assert best(SEARCH, "prelu", runs("relu", 30.0, 20.0, 40.0)) is None


@pytest.mark.parametrize(
    ("errors", "cell"),
    [
        ((30.0, 20.0, 40.0), "0.01"),
        ((30.0, 20.0, 10.0), "0.001 (an end of its grid)"),
        ((30.0, None, None), "0.1 (an end of its grid)"),
        ((None, 20.0, 40.0), "0.01"),
        ((30.0, 20.0), "-"),
    ],
)
def test_a_best_rate_at_an_end_is_marked(errors: tuple[float | None, ...], cell: str) -> None:
    assert _search_cells(SEARCH, "relu", runs("relu", *errors))[1] == cell


def test_several_seeds_choose_by_their_mean() -> None:
    search = SEARCH.model_copy(update={"rates": (0.1, 0.01), "seeds": (7, 8)})
    by_rate = {
        name_of("relu", 0.1): {7: found(10.0), 8: found(40.0)},
        name_of("relu", 0.01): {7: found(24.0)},
    }
    assert best(search, "relu", by_rate) is None  # a seed is missing
    by_rate[name_of("relu", 0.01)][8] = found(24.0)
    assert best(search, "relu", by_rate) == 0.01
    assert rate_means(search, "relu", by_rate) == {0.1: 25.0, 0.01: 24.0}
    by_rate[name_of("relu", 0.01)][8] = diverged()
    by_rate[name_of("relu", 0.1)] = {7: found(70.0), 8: found(80.0)}
    assert best(search, "relu", by_rate) == 0.1  # a rate at which a seed diverges is out


def test_what_a_claim_is_judged_by_can_choose() -> None:
    chosen_by = {"measure": "mean_over", "settings": {"epochs": 2}}
    search = SEARCH.model_copy(update={"rates": (0.1, 0.01), **chosen_by})

    def losing(loss: float, error: float) -> TrainingRecord:
        last = epoch(3) | {"val/top1_error_pct": error}
        return training(history=[epoch(1) | {"train_loss": loss}, epoch(2), last])

    early, late = losing(1.0, 40.0), losing(2.0, 30.0)
    by_rate = {name_of("relu", 0.1): {1000: early}, name_of("relu", 0.01): {1000: late}}
    assert best(search, "relu", by_rate) == 0.1
    assert search.measured_by() == "training loss, mean over 2 epochs"
    by_error = SEARCH.model_copy(update={"rates": (0.1, 0.01)})
    assert best(by_error, "relu", by_rate) == 0.01


def test_a_rate_other_than_the_best_is_refused() -> None:
    check_rates(claim_with(SEARCH), runs("relu", 30.0, 20.0, 40.0))
    check_rates(claim_with(SEARCH), runs("relu", 10.0, 20.0))
    with refused(r"claim/made_up: arm prelu is to have.*give"):
        check_rates(claim_with(SEARCH), runs("prelu", 30.0, 20.0, 40.0))


@pytest.mark.parametrize("errors", [(10.0, 20.0, 40.0), (40.0, 30.0, 20.0), (10.0, None, None)])
def test_a_best_rate_without_a_neighbour_needs_a_reason(errors: tuple[float | None, ...]) -> None:
    made = runs("prelu", *errors)
    rate = f"optim.lr={best(SEARCH, 'prelu', made):g}"
    claim = claim_with(SEARCH)
    claim = claim.model_copy(update={"arms": {"prelu": ("activation=prelu", rate)}})
    with refused(r"best rate of arm prelu, 0.*is an end of its grid; give .*more_rates"):
        check_rates(claim, made)
    said = SEARCH.model_copy(update={"ends": {"prelu": "it trains at no rate"}})
    check_rates(claim.model_copy(update={"search": said}), made)


def test_arm_is_the_best_of_its_alternatives() -> None:
    slope_01 = {"slope_01": ("activation=leaky_relu",)}
    search = SEARCH.model_copy(update={"others": {"relu": slope_01}})
    assert search.arms(ARMS)["slope_01 at 0.1"][:2] == ["activation=leaky_relu", "optim.lr=0.1"]
    assert len(search.arms(ARMS)) == 9
    relu, better = runs("relu", 30.0, 20.0, 40.0), runs("slope_01", 19.0, 30.0, 40.0)
    check_rates(claim_with(search), relu | runs("slope_01", 21.0, 30.0, 40.0))
    check_rates(claim_with(search), relu | runs("slope_01", 19.0))  # two are missing
    with refused(r"claim/made_up: slope_01 is better than arm relu"):
        check_rates(claim_with(search), relu | better)


@pytest.mark.parametrize(
    "given",
    [
        {"rates": [0.1, -1], "seeds": [1]},
        {"rates": [1, 2], "seeds": [3], "measure": "luck"},
        {"rates": [1, 2], "seeds": [3], "others": {"relu": {"slope_01": ["seed"]}}},
    ],
)
def test_unusable_search_is_refused(given: dict[str, object]) -> None:
    with refused(r"claim/made_up: .*search"):
        parse("made_up", yaml.safe_load(DESCRIBED) | {"search": given})


def test_the_claims_searches_are_known_by_their_runs() -> None:
    searched = [claim for claim in claims() if claim.search]
    assert searched
    for claim in searched:
        assert set(claim.searched()) <= set(arm_hashes()[claim.name])
        assert claim.search is not None
        assert set(claim.search.seeds).isdisjoint(claim.all_seeds())  # what chooses is not judged
