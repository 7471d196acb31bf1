"""Places, ties and intervals of entries whose order is known."""

import numpy as np
import pytest

from rectifiers.results.benchmark.ranking import probability_of_improvement, rank, ranks


def test_the_probability_of_improvement_counts_pairs_and_half_of_ties() -> None:
    own, other = np.array([[1.0, 2.0], [5.0, 5.0]]), np.array([[2.0, 3.0], [5.0, 9.0]])
    first = (1 + 1 + 0.5 + 1) / 4  # of the pairs (1, 2), (1, 3), (2, 2), (2, 3)
    second = (0.5 + 1 + 0.5 + 1) / 4
    assert probability_of_improvement(own, other) == pytest.approx((first + second) / 2)
    assert probability_of_improvement(own, other) + probability_of_improvement(
        other, own
    ) == pytest.approx(1)
    assert probability_of_improvement(own, own) == 0.5


def test_equal_means_share_the_mean_of_their_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 0.0])).tolist() == [3.5, 2.0, 3.5, 1.0]


def test_entries_that_never_meet_have_places_of_their_own_and_equal_ones_share_one() -> None:
    tasks = {"a": [1.0, 2.0, 3.0, 2.0, 1.0], "b": [4.0, 5.0, 4.0, 5.0, 4.0]}
    scores = {
        name: {t: [v + shift for v in own] for t, own in tasks.items()}
        for name, shift in (("x", 0), ("y", 9))
    }
    found = {each.entry: each for each in rank({**scores, "twin": scores["x"]})}
    assert {name: each.place for name, each in found.items()} == {"x": 1, "twin": 1, "y": 3}
    assert found["y"].improvement.value == 0
    assert found["x"].improvement.value == pytest.approx(0.75)  # half over its twin
    assert (found["x"].mean_rank.value, found["y"].mean_rank.value) == (1.5, 3.0)
    assert {name: list(each.beats) for name, each in found.items()} == {
        "x": ["y"],
        "twin": ["y"],
        "y": [],
    }


def test_noise_alone_parts_nobody_and_the_interval_holds_the_estimate() -> None:
    drawn = np.random.default_rng(1).normal(size=(4, 3, 5))
    found = rank({f"e{i}": {f"t{j}": drawn[i, j].tolist() for j in range(3)} for i in range(4)})
    assert {each.place for each in found} == {1}
    for each in found:
        assert each.improvement.low <= each.improvement.value <= each.improvement.high
        assert each.mean_rank.low < each.mean_rank.high


def test_one_task_that_an_entry_wins_does_not_outweigh_two_that_it_loses() -> None:
    low, high = [1.0, 1.1, 1.2, 1.1, 1.0], [9.0, 9.1, 9.2, 9.1, 9.0]
    found = rank({"one": {"a": low, "b": high, "c": high}, "two": {"a": high, "b": low, "c": low}})
    assert [(each.entry, each.place) for each in found] == [("two", 1), ("one", 2)]
    assert found[0].improvement.value == pytest.approx(2 / 3)


def test_the_same_scores_give_the_same_intervals_in_any_order() -> None:
    drawn = np.random.default_rng(2).normal(size=(3, 2, 5))
    scores = {f"e{i}": {f"t{j}": drawn[i, j].tolist() for j in range(2)} for i in range(3)}
    assert rank(scores) == rank(dict(reversed(scores.items())))
    assert len(rank({"alone": scores["e0"]})) == 1
