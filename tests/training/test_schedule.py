from hypothesis import given
from hypothesis import strategies as st

from rectifiers.training.optim import drop_epochs


def test_the_learning_rate_drops_when_the_error_stops_falling() -> None:
    assert drop_epochs([9, 8, 7, 7, 7, 6, 5], 2, 2) == [5]
    assert drop_epochs([9, 8, 7, 8, 6, 5, 4], 2, 2) == []


def test_the_learning_rate_drops_at_most_twice_and_patience_restarts_after_a_drop() -> None:
    assert drop_epochs([5] * 20, 2, 2) == [3, 5]
    assert drop_epochs([5] * 20, 2, 0) == []


def test_drops_at_fixed_epochs_ignore_the_error() -> None:
    assert drop_epochs([9, 8, 7, 6, 5, 4], 2, 2, fixed=(2, 5)) == [2, 5]
    assert drop_epochs([5] * 9, 2, 2, fixed=()) == []


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 60), st.integers(1, 5))
def test_later_errors_change_no_earlier_drop(errors: list[int], at: int, patience: int) -> None:
    assert drop_epochs(errors[:at], patience, 2) == [
        e for e in drop_epochs(errors, patience, 2) if e <= at
    ]
