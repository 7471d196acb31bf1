"""Selection, places, ties and admission of entries whose order is known, and the leaderboard."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import DataFrame
from scipy import stats

from benchmark_made_up import SEARCH, SMALL, results, run, searched
from rectifiers.benchmark import cheaper as shortcuts
from rectifiers.benchmark import entries as filed
from rectifiers.benchmark import leaderboard as board
from rectifiers.benchmark import ranking
from rectifiers.benchmark.entries import rival_rate, search, select
from rectifiers.benchmark.leaderboard import leaderboard
from rectifiers.benchmark.ranking import (
    Admission,
    Ranking,
    admissions,
    bootstrap,
    depth_reached,
    difference,
    early_and_late,
)

pytestmark = pytest.mark.usefixtures("small_benchmark")
NAN = float("nan")


@pytest.mark.parametrize(
    ("errors", "index"),
    [
        ([[30, 32], [10, 14], [13, 15]], 1),
        ([[13, 15], [10, 14], [30, 32]], 1),  # although the lower rate is within the noise
        ([[12, 12], [10, 14], [30, 32]], 0),  # the lowest of equal ones
        ([[30, 32], [10, NAN], [20, 22]], 2),  # a rate at which a seed fails is out
        ([[NAN, NAN], [10, NAN], [8, NAN]], 2),  # where all are, those with the fewest failures
    ],
)
def test_rate_of_the_lowest_mean_is_chosen(errors: list, index: int) -> None:
    assert select(np.array(errors, dtype=float)) == index
    assert select(np.array([errors, errors], dtype=float)).tolist() == [index] * 2


def test_end_of_the_rates_extends_the_search() -> None:
    rows = {0.01: (10.0, 11.0), 0.03: (20.0, 21.0), 0.1: (40.0, None)}
    assert search("easy", searched("easy", rows)) == ([0.003, 0.01, 0.03, 0.1], None)
    rows[0.003] = (30.0, 31.0)
    assert search("easy", searched("easy", rows)) == ([0.003, 0.01, 0.03, 0.1], 0.01)
    rows[0.003] = (1.0, 1.0)  # the ladder has no lower one
    assert search("easy", searched("easy", rows))[1] == 0.003
    diverging = {rate: (None, None) for rate in (0.01, 0.03, 0.1)}
    assert search("easy", searched("easy", diverging)) == ([0.003, 0.01, 0.03, 0.1], None)
    diverging[0.003] = (None, None)
    assert search("easy", searched("easy", diverging))[1] == 0.003
    stuck = [run("easy", rate, seed, 90.0, loss=2.3) for rate in rows for seed in SEARCH]
    stuck = [one for one in stuck if one.rate != 0.003]
    assert search("easy", stuck) == ([0.01, 0.03, 0.1], 0.01)  # a lower rate helps none of these
    stuck.append(run("easy", 0.01, 0, None))  # a judged run
    assert search("easy", stuck)[1] == 0.01
    assert search("easy", searched("easy", rows)[1:])[1] is None


@pytest.fixture
def late_benchmark(small_benchmark, monkeypatch) -> None:
    """Let `easy` have a longer task, `long`."""
    longer = {"size": "late", "early": "easy"}
    tasks = {**SMALL.tasks, "long": SMALL.tasks["easy"].model_copy(update=longer)}
    spec = SMALL.model_copy(update={"tasks": tasks})
    for module in (filed, ranking, board):
        monkeypatch.setattr(module, "benchmark", lambda: spec)


def test_best_rate_needs_worse_neighbours_on_both_sides() -> None:
    rows = {0.01: (13.0, 15.0), 0.03: (10.0, 14.0), 0.1: (30.0, 32.0)}
    assert search("easy", searched("easy", rows)) == ([0.01, 0.03, 0.1], 0.03)
    rows[0.1] = (None, 14.0)  # diverges
    assert search("easy", searched("easy", rows)) == ([0.01, 0.03, 0.1], 0.03)
    rows[0.1] = (14.0, 10.0)  # is as good
    assert search("easy", searched("easy", rows)) == ([0.01, 0.03, 0.1, 0.3], None)
    rows[0.3] = (11.0, 13.5)
    assert search("easy", searched("easy", rows)) == ([0.01, 0.03, 0.1, 0.3], 0.03)
    rows |= {0.01: (9.0, 9.0), 0.1: (30.0, 32.0)}
    rows.pop(0.3)
    assert search("easy", searched("easy", rows)) == ([0.003, 0.01, 0.03, 0.1], None)


@pytest.mark.parametrize(
    ("other", "rival"),
    [
        ((11.0, 12.0), None),  # a point worse with each seed
        ((12.0, 9.5), 0.1),
        ((10.0, 11.0), 0.1),
        ((10.5, None), None),
        ((14.0, 14.0), None),
    ],
)
def test_rate_within_noise_of_the_best_is_named(other: tuple, rival: float | None) -> None:
    rows = {0.01: (30.0, 31.0), 0.03: (10.0, 11.0), 0.1: other, 0.3: (40.0, 41.0)}
    assert rival_rate("easy", searched("easy", rows)) == rival
    assert rival_rate("easy", searched("easy", rows)[1:]) is None


def long_results(name: str, early: float, late: float, noise: float = 0.1) -> filed.EntryResults:
    """An entry with these mean errors on `easy` and on `long`, and another noise by name."""
    spread = noise * np.random.default_rng(list(name.encode())).permutation([-2, -1, 0, 1, 2])
    whole = results(name, (early + spread).tolist())
    judged = [run("long", 0.03, seed, late + spread[seed]) for seed in range(5)]
    search_rows = {0.01: (50.0, 51.0), 0.03: (20.0, 21.0), 0.1: (40.0, 41.0)}
    return whole.model_copy(update={"runs": (*whole.runs, *searched("long", search_rows), *judged)})


@pytest.mark.usefixtures("late_benchmark")
def test_late_task_with_runs_must_be_complete() -> None:
    whole = long_results("relu", 6, 6)
    part = whole.model_copy(update={"runs": whole.runs[:-2]})
    assert whole.gap("long") is None
    assert part.objection() == "long: 2 runs missing; run the entry again with size=late"


@pytest.mark.parametrize(
    ("late", "answer", "correlation"),
    [
        ({"mish": 1, "elu": 2, "relu": 3}, "Yes, mish.", "1.00"),
        ({"mish": 3, "elu": 2, "relu": 1}, "No: mish leads early and relu late.", "-1.00"),
        ({"mish": 1.01, "elu": 1, "relu": 3}, "not clear: mish leads early, elu late.", "0.50"),
        ({"mish": 1, "elu": 1.01, "relu": 3}, "not clear: mish leads both.", "1.00"),
    ],
)
@pytest.mark.usefixtures("late_benchmark")
def test_early_leader_is_compared_with_the_late_one(late, answer, correlation) -> None:
    early = {"mish": 4.0, "elu": 5.0, "relu": 6.0}
    noise = 0.01 if "not clear" not in answer else 0.05
    entries = {name: long_results(name, early[name], late[name], noise) for name in early}
    entries["identity"] = long_results("identity", 9.0, 9.0)
    entries["early"] = results("early", [1.0] * 5)  # has not run late
    text = early_and_late(entries)
    assert answer in text
    assert "Of these 3 entries mish has the place 1" in text
    assert f"(Spearman) of {correlation}, which" in text
    assert f"{text}\n" in leaderboard(entries, "")
    assert "| trains to depth |" not in leaderboard(entries, "").partition("## Late tasks")[2]
    del entries["elu"]
    assert early_and_late(entries) is None


@pytest.mark.usefixtures("late_benchmark")
def test_late_table_has_the_ratios_of_the_short_training() -> None:
    means = {"mish": (3.0, 5.4), "elu": (4.5, 4.2), "relu": (6.0, 6.0)}
    entries = {name: long_results(name, *pair, noise=0.01) for name, pair in means.items()}
    late = [run for run in entries["elu"].runs if run.task == "long"]
    entries["elu"] = entries["elu"].model_copy(update={"runs": tuple(late)})  # not run early
    early, late = leaderboard(entries, "").split("## Late tasks")
    assert "| early |" in late
    assert "| early |" not in early
    table = [row[2:].split(" | ") for row in late.partition("### ")[0].splitlines() if "| " in row]
    by_entry = {cells[0]: cells[2:4] for cells in table}
    assert [cell[:4] for cell in by_entry["mish"]] == ["0.90", "0.50"]
    assert [cell[:4] for cell in by_entry["elu"]] == ["0.70", "-"]


@pytest.mark.usefixtures("late_benchmark")
def test_a_close_second_of_the_short_training_may_lead_both() -> None:
    means = {"mish": (4.0, 5.0), "elu": (4.02, 2.0), "relu": (6.0, 6.0)}
    entries = {name: long_results(name, *pair, noise=0.05) for name, pair in means.items()}
    text = early_and_late(entries)
    assert "This is not clear: mish leads early, elu late. Of these 3 entries mish has" in text
    assert "the place 1 to 2 early and 2 late" in text


def test_places_are_corrected_for_the_number_of_pairs() -> None:
    def of(number: int) -> Ranking:
        """Entries of which the first is two and a half standard errors better than all others."""
        draws = np.random.default_rng(0).normal(size=(2000, number))
        draws = (draws - draws.mean(0)) / draws.std(0)
        means = np.array([0.0] + [3.5] * (number - 1))
        samples = np.vstack([means, means + draws])[None]
        return Ranking([f"e{i}" for i in range(number)], samples, [61])

    few, many = of(2), of(30)
    assert [few.place_text(name) for name in few.names] == ["1", "2"]
    assert {many.places(name) for name in many.names} == {(1, 30)}


@pytest.mark.parametrize(("seeds", "place"), [([5, 1000], "1 to 2"), ([1000, 5], "1")])
def test_noise_of_few_seeds_makes_no_clear_difference(seeds: list[int], place: str) -> None:
    noise = np.random.default_rng(0).normal(size=2000)
    noise = 2.6 * (noise - noise.mean()) / noise.std() / np.sqrt(seeds[0] / (seeds[0] - 1))
    worse = np.array([[2.6**2, *2.6**2 + noise], np.zeros(2001)])
    ranks = Ranking(["a", "b"], np.stack([np.zeros_like(worse), worse], axis=-1), seeds)
    assert ranks.place_text("a") == place


@pytest.mark.parametrize("rise", [0.0001, 0.01])
def test_two_entries_differ_as_in_a_paired_t_test(rise: float) -> None:
    noise = np.array([-2, -1, 0, 1, 2]) * rise
    for t, place in ((2.65, "1 to 2"), (2.95, "1")):  # the quantile of .975 is 2.776
        gap = t * noise.std(ddof=1) / np.sqrt(5)
        relu, worse = np.full(5, 5.0), 5.0 + gap + noise
        assert (stats.ttest_rel(worse, relu).pvalue < 0.05) == (place == "1")
        entries = {"relu": results("relu", relu.tolist()), "elu": results("elu", worse.tolist())}
        assert Ranking.of(entries, ["easy"]).place_text("relu") == place


def test_bootstrap_resamples_seeds_and_selection() -> None:
    sure = results("sure", [1.0, 2.0, 3.0, 4.0, 5.0])
    means = bootstrap(sure, "easy")
    assert means[0] == 3.0
    assert means[1:].std() == pytest.approx(np.sqrt(2 / 5), rel=0.1)
    rows = {0.01: (32.0, 20.0), 0.03: (10.0, 25.0), 0.1: (90.0, 90.0)}
    doubtful = results("doubtful", [])
    judged = [run("easy", 0.03, seed, 1.0) for seed in range(5)]
    doubtful = doubtful.model_copy(update={"runs": (*searched("easy", rows), *judged)})
    assert doubtful.rate("easy") == 0.03
    # drawn twice, the second seed chooses the other rate, whose run it is then
    assert dict(zip(*np.unique(bootstrap(doubtful, "easy"), return_counts=True), strict=True)) == {
        1.0: pytest.approx(1500, abs=100),
        20.0: pytest.approx(500, abs=100),
    }


def test_ranking_is_relative_to_relu_and_marks_ties() -> None:
    relu = results("relu", [4.0, 5.0, 6.0, 5.0, 5.0])
    entries = {
        "relu": relu,
        "half": results("half", [2.0, 2.5, 3.0, 2.5, 2.5]),
        "near": results("near", [2.6, 2.0, 2.9, 2.4, 2.7]),
    }
    ranks = Ranking.of(entries, ["easy"])
    assert ranks.names == ["half", "near", "relu"]
    assert ranks.ratio("relu") == (1, 1, 1)
    assert ranks.ratio("half") == pytest.approx((0.5, 0.5, 0.5))  # paired by seed
    assert [ranks.place_text(name) for name in ranks.names] == ["1 to 2", "1 to 2", "3"]


@given(st.permutations(["identity", "relu", "elu", "half", "near"]))
@settings(max_examples=10, deadline=None)
def test_places_do_not_depend_on_order(order: list[str]) -> None:
    errors = dict(identity=9.0, relu=5.0, elu=5.0, half=2.5, near=2.6)
    entries = {name: results(name, [errors[name] + 0.1 * i for i in range(5)]) for name in order}
    page = leaderboard(entries, "")
    assert page == leaderboard(dict(sorted(entries.items())), "")
    rows = re.findall(r"^\| (\w+) \| (\d to \d|\d|-) \| .*\(", page, re.MULTILINE)
    names = ("half", "near", "elu", "relu", "identity")
    assert rows == list(zip(names, ("1", "2", "3 to 4", "3 to 4", "-"), strict=True))


@pytest.mark.parametrize(
    ("page", "number"),
    [
        ("LEADERBOARD.md", "| 0.88 ("),
        ("LEADERBOARD.md", "| -0.60 ("),
        ("SHORTCUTS.md", "do in 0.0 %"),
        ("SHORTCUTS.md", "| -0.60 ("),
    ],
)
def test_check_refuses_a_number_changed_by_hand(
    call, tmp_path: Path, monkeypatch, page: str, number: str
) -> None:
    entries = {"elu": results("elu", [4.4] * 5), "relu": results("relu", [5.0] * 5)}
    monkeypatch.setattr(filed, "load_all", lambda folder: entries)
    monkeypatch.setattr(filed, "WITHOUT_COMMIT", tuple(entries))
    assert call("scripts/benchmark.py", "leaderboard", "--results", tmp_path).returncode == 0
    assert call("scripts/benchmark.py", "check", "--results", tmp_path).returncode == 0
    path = tmp_path / page
    text = path.read_text()
    assert number in text
    path.write_text(text.replace(number, number.replace("0", "9"), 1))
    done = call("scripts/benchmark.py", "check", "--results", tmp_path)
    assert (done.returncode, str(path) in done.stderr) == (1, True)


def test_admission_needs_the_whole_interval() -> None:
    worse, better = [9.0, 9.1, 9.2, 9.1, 9.0], [5.0, 6.0, 5.5, 5.2, 6.1]
    entries = {"identity": results("identity", worse), "relu": results("relu", better)}
    (check,) = admissions(entries, SMALL.tasks)
    interval = stats.ttest_rel(worse, better).confidence_interval()
    assert (check.difference.low, check.difference.high) == pytest.approx(tuple(interval))
    assert (check.task, check.is_admitted) == ("easy", True)
    assert not Admission("easy", np.array([[9.0, 5.0, 6.0], [5.0, 5.0, 5.0]])).is_admitted
    assert admissions({"relu": entries["relu"]}, SMALL.tasks) == []


def test_task_that_is_not_admitted_does_not_count() -> None:
    same = [5.0, 6.0, 5.5, 5.2, 6.1]
    page = leaderboard({name: results(name, same) for name in ("identity", "relu")}, "")
    assert "| easy | no | 5.56 | 5.56 | +0.00 (+0.00 to +0.00) |" in page
    assert "| relu | 5.56 | 0.03 |" in page  # on the task alone
    assert "error / ReLU's (95 % CI)" not in page


def test_shortcuts_are_judged_by_the_other_seeds() -> None:
    relu = results("relu", [5.0, 5.1, 5.2, 5.1, 5.0])
    better = results("elu", [4.0, 4.1, 4.2, 4.1, 4.0])
    lucky = [row.model_copy(update={"test_error_pct": 30.0}) for row in better.runs[:6]]
    best_epoch = [
        row.model_copy(update={"least_val_error_pct": 9.0 if row.seed else 1.0})
        for row in better.runs[6:]
    ]
    better = better.model_copy(update={"runs": (*lucky, *best_epoch)})
    wrong: dict[str, list[float]] = {}
    for row in shortcuts.shortcuts({"relu": relu, "elu": better}, ["easy"]):
        wrong.setdefault(row.shortcut, []).append(row.wrong_pct)
        assert row.is_decided
    assert wrong == {
        "one seed": [0.0],
        "one seed, on val": [0.0],
        "one seed, best epoch on val": [80.0],
        "ReLU's rate for all": [100.0],  # elu's search had 30 %
        "one seed, search included": [100.0],
    }

    text, figure = shortcuts.page({"relu": relu, "elu": better})
    assert "| names another winner, % | easy (1 pairs) |" in text
    assert "| ReLU's rate for all | 100.0 |" in text
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[-1] in ("one seed", "one seed, on val")  # the least harmful stands last


def test_a_seed_is_left_out_of_its_own_winner() -> None:
    # the mean of all five is 0.2; without the first seed it is below 0, without another above
    relu, elu = results("relu", [9.0, 5.0, 5.0, 5.0, 5.0]), results("elu", [5.0, *[5.75] * 4])
    judged = shortcuts.shortcuts({"relu": relu, "elu": elu}, ["easy"])
    rows = [row for row in judged if row.shortcut in shortcuts.OF_JUDGED]
    assert [row.wrong_pct for row in rows] == [100, 100, 100]
    assert rows[0].points == pytest.approx(0.2)
    assert rows[0].std == pytest.approx(stats.tstd([4.0, *[-0.75] * 4]))
    assert not rows[0].is_decided


def test_page_of_shortcuts_is_of_close_pairs() -> None:
    relu = results("relu", [5.0, 5.1, 5.2, 5.1, 5.0])
    elu = results("elu", [4.5, 4.4, 4.7, 4.7, 4.4])
    gelu = results("gelu", [4.1, 4.3, 4.2, 4.2, 4.2])
    wild = results("wild", [9.0, 4.0, 4.0, 4.0, 90.0])
    entries = {"relu": relu, "elu": elu, "gelu": gelu, "wild": wild}
    text, _ = shortcuts.page(entries)
    assert "decide 100 % of these pairs" in text
    stds = [row.std for row in shortcuts.shortcuts(entries, ["easy"]) if row.is_decided]
    assert f"| easy | {np.median(stds):.2f} |" in text
    pairs = text.partition("## By pair")[2].partition("\n## ")[0]
    assert pairs.count("| easy |") == 1  # each entry once, and `wild` is decided from none
    assert "wild" not in pairs
    assert shortcuts.page({"relu": relu, "wild": wild}) is None


def test_interval_of_shortcuts_is_over_entries() -> None:
    pairs = [(a, b) for a in "abcdef" for b in "abcdef" if a < b]
    alike = DataFrame({"pair": pairs, "wrong_pct": 25.0})
    assert shortcuts.resampled(alike) == (25, 25)
    one_differs = DataFrame({"pair": pairs, "wrong_pct": [100.0 * ("a" in p) for p in pairs]})
    low, high = shortcuts.resampled(one_differs)
    assert low == 0  # draws without that entry
    assert 76 < high < 88  # 75 at 90 %, 89 at 99 %
    assert shortcuts.resampled(alike[:1]) == (25, 25)  # not all draws have a pair


def test_seeds_that_a_difference_needs() -> None:
    draws = np.random.default_rng(0).normal(size=(20_000, 8)) + 1.2
    found = [(stats.ttest_1samp(draws[:, :n], 0, axis=1).pvalue < 0.05).mean() for n in (7, 8)]
    assert found[0] < 0.8 < found[1]
    assert shortcuts.seeds_for(1.2) == 8


def test_depth_is_the_deepest_at_which_half_train() -> None:
    assert depth_reached(results("good", [1.0] * 5, [1.0, 1.0, 1.0, 3.0, 3.0]), "quick") == 50
    assert depth_reached(results("bad", [1.0] * 5, [1.0, 1.0, 3.0, 3.0, 3.0]), "quick") == 0
    assert depth_reached(results("good", [1.0] * 5), "full") is None
    assert depth_reached(results("short", [1.0] * 5, [1.0]), "quick") is None


def test_difference_is_paired_by_seed() -> None:
    scores, others = [5.0, 6.0, 5.5, 5.2, 6.1], [4.0, 6.5, 5.0, 5.0, 6.0]
    pair = results("mish", scores), results("relu", others)
    interval = stats.ttest_rel(scores, others).confidence_interval()
    mean = difference(*pair, "easy")
    assert (mean.low, mean.high) == pytest.approx(tuple(interval))


def test_leaderboard_has_places_controls_and_what_is_incomplete() -> None:
    whole = results("mish", [1.0] * 5)
    runs = tuple(row for row in whole.runs if (row.task, row.seed) != ("easy", 3))
    entries = {
        "mish": results("mish", [], runs=runs),
        "relu": results("relu", [4.0] * 5),
        "identity": results("identity", [8.0] * 5),
        "elu": results("elu", [2.0] * 5, cost=1.25),
    }
    page = leaderboard(entries, "5ba2")
    assert "`5ba2`" in page
    assert "| elu | 1 | 0.50 (0.50 to 0.50) | 2.00 | 0 of 5 | 50 | 1.25 |" in page
    assert "| relu | 2 | 1.00 (1.00 to 1.00) | 4.00 | 0 of 5 | 50 | - |" in page
    assert "| identity | - | 2.00 (2.00 to 2.00) | 8.00 | 0 of 5 | 50 | - |" in page
    assert "| mish | easy: 1 run missing |" in page
    # on the tasks alone
    assert "| elu | 2.00 | 0.03 | 0 of 5 | -2.00 (-2.00 to -2.00) |" in page
    assert "| elu | 5 of 5 seeds | 0.03 | 0 of 5 |" in page
    assert "Full" not in page


def test_rows_name_runs_that_diverged_and_rates_alike() -> None:
    rows = {0.01: (50.0, 51.0), 0.03: (20.0, 22.0), 0.1: (22.0, 20.5)}
    mish = results("mish", [None, 1.0, 1.0, None, 1.0])
    others = tuple(one for one in mish.runs if one.task != "easy" or one.seed < 5)
    mish = mish.model_copy(update={"runs": (*searched("easy", rows), *others)})
    page = leaderboard({"mish": mish, "relu": results("relu", [4.0] * 5)}, "")
    assert "| 36.60 | 2 of 5 | 50 | - |" in page
    assert "| mish | 36.60 | 0.03 or 0.1 | 2 of 5 |" in page


def test_runs_at_other_rates_are_not_judged() -> None:
    whole = results("mish", [1.0] * 5)
    more = whole.model_copy(update={"runs": (*whole.runs, run("easy", 0.01, 0, 0.0))})
    assert [row.error_pct for row in more.judged("easy")] == [1.0] * 5
