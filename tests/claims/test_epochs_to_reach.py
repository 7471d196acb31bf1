"""How many times the epochs of a reference a run needs for its training loss, on curves whose
answer is known."""

import math
from collections.abc import Callable

import pytest

from made_up import altered
from made_up_claims import LOST, record, science
from rectifiers.claims.comparisons import Comparison, Test
from rectifiers.claims.judge import describe, judge
from rectifiers.claims.measures import epochs_to_reach, is_bound
from rectifiers.runs.record import TrainingRecord
from refusals import refused

AT = [7, 11, 15, 19, 23]


def run(loss: Callable[[int], float], epochs: int = 75, drop: int = 52) -> TrainingRecord:
    """Return a run whose loss falls tenfold after its first drop of the learning rate."""
    losses = [loss(e) / (1 if e <= drop else 10) for e in range(1, epochs + 1)]
    made = science("better", 0)
    made["trainer"] = {"max_epochs": epochs}
    return record("better", 0, 5.0, losses, science=made, drop_epochs=[drop])


def straight(epochs: float) -> Callable[[int], float]:
    return lambda epoch: 3 - epoch / epochs


def test_run_at_half_speed_needs_twice_the_epochs() -> None:
    assert epochs_to_reach(run(straight(200)), AT, run(straight(100))) == pytest.approx(2)
    assert epochs_to_reach(run(straight(100)), AT, run(straight(150))) == pytest.approx(2 / 3)
    longer = run(straight(200), epochs=150, drop=104)  # other drops change nothing
    assert epochs_to_reach(longer, AT, run(straight(100))) == pytest.approx(2)


def test_a_factor_that_changes_is_averaged_geometrically() -> None:
    slow_then_fast = run(lambda e: 3 - (min(e, 20) / 200 + max(0, e - 20) / 50))
    times = {7: 14, 15: 22.5, 23: 26.5}  # 20 slow epochs are worth 10
    expected = math.prod(time / epoch for epoch, time in times.items()) ** (1 / 3)
    found = epochs_to_reach(slow_then_fast, list(times), run(straight(100)))
    assert found == pytest.approx(expected)


def test_the_last_crossing_counts() -> None:
    """A loss that rises again has not been reached for good."""
    back = run(lambda e: 3 - e / 100 + (0.3 if 10 <= e <= 14 else 0))
    assert 7 * epochs_to_reach(back, [7], run(straight(100))) > 13
    single = run(lambda e: 3 - e / 100 + (0.03 if e == 9 else 0))  # is smoothed over
    assert epochs_to_reach(single, [7], run(straight(100))) == pytest.approx(8 / 7, abs=0.2)


def test_a_level_never_reached_makes_a_bound() -> None:
    reference, slow = run(straight(100)), run(straight(400))
    assert is_bound(slow, AT, reference)
    assert not is_bound(run(straight(200)), AT, reference)
    assert is_bound(run(straight(200), drop=20), AT, reference)  # the drop ends the comparison
    assert epochs_to_reach(slow, [23], reference) == pytest.approx(51 / 23)
    lost = altered(slow, LOST)
    assert is_bound(lost, AT, reference)
    assert epochs_to_reach(lost, [23], reference) == pytest.approx(51 / 23)


@pytest.mark.parametrize("change", [LOST, {"status": "diverged", "diverged": LOST["diverged"]}])
def test_a_reference_that_diverged_gives_no_number(change: dict[str, object]) -> None:
    lost = altered(run(straight(100)), change)
    for slow in (run(straight(200)), lost):
        assert epochs_to_reach(slow, AT, lost) is None
        assert not is_bound(slow, AT, lost)


def test_epochs_after_the_reference_drop_are_refused() -> None:
    with refused("give earlier epochs"):
        epochs_to_reach(run(straight(100)), [60], run(straight(100)))


def comparison(**more: object) -> dict[str, object]:
    at = {"measure": "epochs_to_reach", "with": {"at": AT}, "says": "speed"}
    return at | {"of": "slow", "over": "fast"} | more


def test_effect_is_a_factor_with_logarithmic_interval() -> None:
    pairs = [(run(straight(100 * f)), run(straight(100))) for f in (1.2, 1.5, 2)]
    found = describe(Comparison.model_validate(comparison()), pairs).finding
    assert (found.n, found.effect) == (3, pytest.approx((1.2 * 1.5 * 2) ** (1 / 3)))
    assert found.low * found.high == pytest.approx(found.effect**2)
    assert not found.text().startswith("at least")
    slow = [*pairs, (run(straight(400)), run(straight(100)))]
    bound = describe(Comparison.model_validate(comparison()), slow).finding
    assert bound.text().startswith("at least ")
    criterion = {"supported": {"above": 1.2}, "contradicted": {"below": 1}}
    test = Test.model_validate(comparison(**criterion))
    effects = [test.effect(test.measured(pair) or ()) for pair in pairs[1:] * 3]
    finding = judge([effect for effect in effects if effect], 6, test)
    assert (finding.verdict, finding.n) == ("supported", 6)


@pytest.mark.parametrize("change", [{"over": None}, {"over": None, "minus": "fast"}])
def test_it_needs_a_reference(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="give over"):
        Comparison.model_validate(comparison(**change))
