"""Places, ties and intervals of entries whose order is known, and the leaderboard."""

import numpy as np
import pytest
from scipy import stats

from benchmark_made_up import SMALL, results, run
from rectifiers.benchmark.ranking import (
    difference_text,
    improvement,
    leaderboard,
    probability_of_improvement,
    rank,
    scores_of,
)


def test_improvement_counts_pairs_and_half_of_ties() -> None:
    scores, others = np.array([[1.0, 2.0], [5.0, 5.0]]), np.array([[2.0, 3.0], [5.0, 9.0]])
    first = (1 + 1 + 0.5 + 1) / 4  # of the pairs (1, 2), (1, 3), (2, 2), (2, 3)
    second = (0.5 + 1 + 0.5 + 1) / 4
    probability = probability_of_improvement(scores, others)
    assert probability == pytest.approx((first + second) / 2)
    assert probability + probability_of_improvement(others, scores) == pytest.approx(1)
    assert probability_of_improvement(scores, scores) == 0.5


def test_equal_entries_share_a_place() -> None:
    tasks = {"a": [1.0, 2.0, 3.0, 2.0, 1.0], "b": [4.0, 5.0, 4.0, 5.0, 4.0]}
    scores = {
        name: {task: [score + shift for score in row] for task, row in tasks.items()}
        for name, shift in (("x", 0), ("twin", 0), ("y", 9))
    }
    ranks = rank(scores).set_index("entry")
    assert ranks["place"].to_dict() == {"x": 1, "twin": 1, "y": 3}
    assert ranks["improvement"]["y"].value == 0
    assert ranks["improvement"]["x"].value == pytest.approx(0.75)  # half over its twin
    assert (ranks["mean_rank"]["x"].value, ranks["mean_rank"]["y"].value) == (1.5, 3.0)


def test_noise_separates_nobody() -> None:
    drawn = np.random.default_rng(1).normal(size=(4, 3, 5))
    ranks = rank({f"e{i}": {f"t{j}": drawn[i, j].tolist() for j in range(3)} for i in range(4)})
    assert set(ranks["place"]) == {1}
    for interval in ranks["improvement"]:
        assert interval.low <= interval.value <= interval.high
    for interval in ranks["mean_rank"]:
        assert interval.low < interval.high


def test_two_lost_tasks_outweigh_a_won_one() -> None:
    low, high = [1.0, 1.1, 1.2, 1.1, 1.0], [9.0, 9.1, 9.2, 9.1, 9.0]
    ranks = rank({"one": {"a": low, "b": high, "c": high}, "two": {"a": high, "b": low, "c": low}})
    assert ranks[["entry", "place"]].to_numpy().tolist() == [["two", 1], ["one", 2]]
    assert ranks["improvement"][0].value == pytest.approx(2 / 3)


def test_rank_does_not_depend_on_order_or_call() -> None:
    drawn = np.random.default_rng(2).normal(size=(3, 2, 5))
    scores = {f"e{i}": {f"t{j}": drawn[i, j].tolist() for j in range(2)} for i in range(3)}
    assert rank(scores).equals(rank(dict(reversed(scores.items()))))
    assert rank({"alone": scores["e0"]})["place"].tolist() == [1]
    assert rank({}).empty


def test_difference_is_paired_by_seed() -> None:
    scores, others = [5.0, 6.0, 5.5, 5.2, 6.1], [4.0, 6.5, 5.0, 5.0, 6.0]
    interval = stats.ttest_rel(scores, others).confidence_interval()
    mean = np.mean(np.subtract(scores, others))
    text = f"{mean:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
    assert difference_text(SMALL.tasks["easy"], scores, others) == text
    deep = SMALL.tasks["deep"]
    assert difference_text(deep, [0, 0, 0, 100, 0], [100, 100, 0, 0, 0]) == "+1 seeds"


@pytest.mark.usefixtures("small_benchmark")
def test_improvement_names_what_its_interval_shows() -> None:
    relu = results("relu", [5.0, 6.0, 5.5, 5.2, 6.1], [1.0, 3.0, 1.0, 1.0, 1.0])
    verdicts = {
        "better": results("good", [1.0, 1.1, 1.2, 1.0, 1.1]),
        "worse": results("bad", [9.0] * 5, [3.0] * 5),
        "neither better nor worse": results("same", [5.0, 6.0, 5.5, 5.2, 6.1]),
    }
    for verdict, entry in verdicts.items():
        pair = improvement(entry, relu)
        assert pair is not None
        assert (pair[0], pair[1].verdict) == (2, verdict)
    assert improvement(results("empty", [], runs=()), relu) is None


@pytest.mark.usefixtures("small_benchmark")
def test_incomplete_entry_is_listed_and_not_ranked() -> None:
    whole = results("mish", [1.0] * 5)
    runs = tuple(row for row in whole.runs if (row.task, row.seed) != ("easy", 3))
    entries = {
        "mish": results("mish", [], runs=runs),
        "odd": results("odd", [3.0] * 5, refused={"deep": "it has no shortcuts"}),
        "elu": results("elu", [2.0] * 5),
    }
    page = leaderboard(entries)
    assert "| mish | easy: 1 run missing |" in page
    assert "| odd | deep: it has no shortcuts |" in page
    assert page.count("| elu | 2.00 | 0.1 |") == 1
    assert page.count("| odd | 3.00 | 0.1 |") == 1
    assert "| 1 | elu |" in page
    assert "Full" not in page


@pytest.mark.usefixtures("small_benchmark")
def test_runs_at_other_rates_are_not_judged() -> None:
    whole = results("mish", [1.0] * 5)
    more = results("mish", [], runs=(*whole.runs, run("easy", 0.01, 0, 0.0)))
    assert scores_of(more, SMALL.tasks)["easy"] == [1.0] * 5
