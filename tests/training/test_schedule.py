from hypothesis import given
from hypothesis import strategies as st

from rectifiers.training.schedule import StepRule


def drops(errors: list[float], **options) -> list[int]:
    rule = StepRule(**{"patience": 2, "max_drops": 2, **options})
    assert [rule.after_epoch(e) for e in errors] == [epoch in rule.drop_epochs for epoch in range(1, len(errors) + 1)]
    return rule.drop_epochs


def test_the_learning_rate_drops_when_the_error_stops_falling() -> None:
    assert drops([9, 8, 7, 7, 7, 6, 5]) == [5]
    assert drops([9, 8, 7, 8, 6, 5, 4]) == []


def test_the_learning_rate_drops_at_most_twice_and_patience_restarts_after_a_drop() -> None:
    assert drops([5] * 20) == [3, 5]
    assert drops([5] * 20, max_drops=0) == []


def test_drops_at_fixed_epochs_ignore_the_error() -> None:
    assert drops([9, 8, 7, 6, 5, 4], fixed=(2, 5)) == [2, 5]
    assert drops([5] * 9, fixed=()) == []


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 60), st.integers(1, 5))
def test_a_step_rule_restored_at_any_epoch_makes_the_same_drops(errors: list[int], at: int, patience: int) -> None:
    whole = StepRule(patience, 2)
    for e in errors:
        whole.after_epoch(e)
    first = StepRule(patience, 2)
    for e in errors[:at]:
        first.after_epoch(e)
    second = StepRule(patience, 2)
    second.restore(first.state())
    for e in errors[at:]:
        second.after_epoch(e)
    assert second == whole
