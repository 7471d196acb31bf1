"""A card says what was measured, and why a part was not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark_made_up import PARTS, SMALL, card, results, searched
from rectifiers.benchmark import card as cards
from rectifiers.benchmark import entries as filed
from rectifiers.benchmark import ranking
from rectifiers.benchmark.definition import Entry
from rectifiers.benchmark.entries import EntryResults

pytestmark = pytest.mark.usefixtures("small_benchmark")

RELU = results("relu", [5.0, 6.0, 5.5, 5.2, 6.1], [1.0, 3.0, 1.0, 1.0, 1.0])
MISH = results("mish", [1.0, 2.0, 3.0, 4.0, 5.0])


def test_card_has_every_chapter_and_its_numbers(tmp_path: Path) -> None:
    paths = card(MISH, RELU).write(tmp_path)
    assert [path.name for path in paths] == ["mish.md", "mish.svg"]
    text, drawn = (path.read_text() for path in paths)
    for part in (
        "mish: place 1 to 2 of 2. Its error is lower than ReLU's by 2.6 points on easy (",
        "Trains to depth 50.",
        "0 of 10 judged runs diverged.",
        "| slope of the variance map | 1.080 |",
        "| 1 | 0.100 ± 0.300 | 0.500 | -0.100 | - | 0.250 |",
        "| easy | 3.00 | 0.03 | -2.56 (",
        "| deep | 5 of 5 seeds | 0.03 | 4 of 5 seeds |",
        "| 1.80 (quartiles 1.60 to 1.90, 15 rounds) |",
    ):
        assert part in text
    assert "difference in points" in drawn


def test_theory_comes_first_and_command_is_the_typed_one() -> None:
    text = card(MISH, RELU).markdown()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["## Theory", "## Results", "## At initialisation", "## Cost", "## Limits"]
    assert "The gain is 1.48" in text.partition("## Theory")[2].partition("## Results")[0]
    assert "`make card ACTIVATION=mish`" in text


def failing(name: str, *tasks: str) -> EntryResults:
    """An entry that trains nowhere on `tasks`, whose searches alone ran, and on no other."""
    search = dict.fromkeys((0.01, 0.03, 0.1), (90.0, 90.0))
    runs = [run for task in tasks for run in searched(task, search)]
    lost = tuple(run.model_copy(update={"least_loss": 2.5}) for run in runs)
    return results(name, [], runs=lost)


@pytest.mark.parametrize("task", ["easy", "deep"])
def test_failed_search_stands_on_first_line(task: str) -> None:
    made = card(failing("mish", task), RELU).markdown()
    first = made.splitlines()[2]
    assert first.startswith(f"No learning rate trains mish on {task}: at rates from 0.01 to 0.1")
    assert "he_backward" not in made
    assert ("Trains at none of the depths." in made) == (task == "deep")


def test_depth_that_fails_behind_one_that_trains_is_no_news(monkeypatch) -> None:
    tasks = cards.benchmark().tasks
    deeper = tasks["deep"].model_copy(update={"depth": 100})
    monkeypatch.setitem(tasks, "deeper", deeper)
    runs = failing("mish", "deeper").runs
    mish = MISH.model_copy(update={"runs": (*MISH.runs, *runs)})
    made = card(mish, RELU).markdown()
    assert "No learning rate" not in made
    assert "Trains to depth 50." in made


def test_card_says_whose_failure_it_is() -> None:
    entry = failing("mish", "easy", "deep")
    better = results("mish+he_backward", [5.5, 6.5, 6.0, 5.7, 6.6])
    helped = card(entry, RELU, better=better).markdown()
    assert "it trains on easy and deep: this failure is He's initialiser's" in helped
    assert "does not explain" not in helped
    assert "| easy | nothing trains | 6.06 | 0.03 | +0.50 (" in helped
    assert "| deep | nothing trains | 5 of 5 seeds | 0.03 | 4 of 5 seeds |" in helped

    lost = card(entry, RELU, better=failing("mish+he_backward", "easy", "deep")).markdown()
    assert "On easy and deep it does not train with init=he_backward either" in lost
    assert "| easy | nothing trains | nothing trains | - | - |" in lost


@pytest.mark.parametrize(
    ("overrides", "limits", "rules"),
    [
        (["activation=mish"], {"explosion": 14}, ["init=he_backward"]),
        (["activation=mish", "init=he"], {"growth": 7, "explosion": 49}, ["init=he_backward"]),
        (["activation=mish"], {"growth": 7, "explosion": 50}, None),  # the deepest task has 50
        (["activation=sigmoid"], {"vanishing": 9}, None),
        (["activation=mish", "init=orthogonal"], {"explosion": 14}, None),
        (["activation=mish", "init.bias=1"], {"explosion": 14}, None),
    ],
)
def test_better_start_needs_exploding_gradient(overrides, limits, rules) -> None:
    better = cards.better_start(Entry.of(overrides), {"limits": limits})
    assert (better and [o for o in better.overrides if o.startswith("init")]) == rules


def test_better_start_runs_where_search_failed() -> None:
    assert cards.tasks_to_start_better(failing("mish", "easy", "deep"), "quick") == ["easy", "deep"]
    assert cards.tasks_to_start_better(failing("mish", "deep"), "quick") == ["deep"]
    assert cards.tasks_to_start_better(MISH, "quick") == []
    at_high_rate = searched("easy", {0.01: (50.0, 51.0), 0.03: (20.0, 21.0), 0.1: (None, None)})
    mish = MISH.model_copy(update={"runs": tuple(at_high_rate)})
    assert cards.tasks_to_start_better(mish, "quick") == []


def test_better_start_needs_one_depth_and_all_errors(monkeypatch) -> None:
    tasks = cards.benchmark().tasks
    monkeypatch.setitem(tasks, "other", tasks["easy"])
    monkeypatch.setitem(tasks, "deeper", tasks["deep"].model_copy(update={"depth": 100}))
    mish = failing("mish", "easy", "deep", "deeper")
    assert cards.tasks_to_start_better(mish, "quick") == ["easy", "deep"]
    trained = searched("other", {0.01: (50.0, 51.0), 0.03: (20.0, 21.0), 0.1: (40.0, 41.0)})
    mish = mish.model_copy(update={"runs": (*mish.runs, *trained)})
    assert cards.tasks_to_start_better(mish, "quick") == ["easy", "other", "deep"]


def test_better_start_speaks_of_shared_tasks() -> None:
    better = results("mish+he_backward", [5.5, 6.5, 6.0, 5.7, 6.6])
    easy = tuple(run for run in better.runs if run.task == "easy")
    made = card(
        failing("mish", "easy", "deep"), RELU, better=better.model_copy(update={"runs": easy})
    )
    assert "it trains on easy: this failure" in made.markdown()
    starts = card(failing("mish", "easy"), RELU, better=better).markdown()
    assert "| deep |" not in starts.partition("## Function or")[2].partition("\n## ")[0]


def entries_of(*errors: float) -> list[EntryResults]:
    """Entries named by their places, the first ReLU, with these mean errors and noise."""
    noise = [-0.1, 0.0, 0.1, 0.2, -0.2]
    return [
        results(f"e{i}" if i else "relu", [error + n for n in [*noise[i:], *noise[:i]]])
        for i, error in enumerate(errors)
    ]


@pytest.mark.parametrize(
    ("errors", "index", "text"),
    [
        ((1, 5, 5, 5, 9), 2, "place 2 to 4 of 5"),
        ((1, 5, 5, 5, 5), 1, "place 2 to 5 of 5"),
        ((1, 5, 5, 5, 5, 5), 3, "place 2 to 6 of 6"),
        ((1, 5, 9), 2, "place 3 of 3."),
    ],
)
def test_headline_names_place_and_ties(errors: Sequence[float], index: int, text: str) -> None:
    entries = entries_of(*errors)
    assert text in card(entries[index], *entries).markdown().splitlines()[2]


def test_place_on_fewer_tasks_names_them(monkeypatch) -> None:
    tasks = {**SMALL.tasks, "other": SMALL.tasks["easy"]}
    spec = SMALL.model_copy(update={"tasks": tasks})
    for module in (cards, filed, ranking):
        monkeypatch.setattr(module, "benchmark", lambda: spec)
    others = tuple(run.model_copy(update={"task": "other"}) for run in RELU.runs)
    both = RELU.model_copy(update={"runs": (*RELU.runs, *others)})
    assert (
        card(MISH, both).markdown().splitlines()[2].startswith("mish on easy alone: place 1 to 2")
    )


def test_difference_to_relu_is_said_if_clear() -> None:
    worse, close = results("mish", [9.0, 9.1, 9.2, 9.1, 9.0]), results("elu", [5, 6.1, 5.4, 5.2, 6])
    assert "Its error is higher than ReLU's by 3.5 points on easy (" in card(worse, RELU).markdown()
    assert "No clear difference from ReLU on easy." in card(close, RELU).markdown()
    identity = card(results("identity", [50.0] * 5), RELU).markdown()
    assert "identity: a control, which is not ranked." in identity


def test_parts_not_measured_give_the_reason(tmp_path: Path) -> None:
    reason = "activation Step() has a derivative of 0 almost everywhere"
    entry = results("mish", [], runs=(), refused={"easy": reason, "deep": reason})
    made = card(entry, RELU, **dict.fromkeys(PARTS, reason))
    text = made.markdown()
    assert text.count(f"Not measured: {reason}") == 3
    assert f"easy: {reason}." in text
    assert len(made.write(tmp_path)) == 2


def test_card_says_where_theory_knows_no_better_start() -> None:
    def failed(layers: int, *tasks: str, overrides: Sequence[str] = ()) -> str:
        whole = card(failing("mish", *tasks), RELU)
        given = whole.results.model_copy(update={"overrides": tuple(overrides)})
        theory = {**whole.parts["theory"], "limits": {"vanishing": layers}}
        return replace(whole, results=given, parts={"theory": theory}).markdown()

    assert "after about 9 layers with He's rule, and no" in failed(9, "easy", "deep")
    assert ": on deep the failure may well be" in failed(9, "easy", "deep")
    for text in (
        failed(9, "easy"),  # which is shallow
        failed(60, "deep"),
        failed(9, "deep", overrides=["init=gaussian"]),  # He's rule may do better
    ):
        assert "vanishes after" not in text
