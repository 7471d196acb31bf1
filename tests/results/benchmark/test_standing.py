"""An entry's file, the rate that its search found best, and what keeps it from being ranked."""

import json
from pathlib import Path

import pytest

from benchmark_made_up import SMALL, results, run
from made_up import diverged, epoch, result, training
from rectifiers.results.benchmark.entries import entry_name, load, result_of, save
from rectifiers.results.benchmark.leaderboard import board, document, render_markdown
from rectifiers.results.benchmark.standing import best_rate, incomplete, score, scores, standing
from rectifiers.runtime.errors import InputError

EASY, DEEP = SMALL.tasks["easy"], SMALL.tasks["deep"]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["activation=mish"], "mish"),
        (["activation=relu", "init=lsuv"], "relu+lsuv"),
        (
            ["init=he", "activation=prelu", "activation.initial_slope=0.1"],
            "prelu-initial_slope=0.1",
        ),
        (["activation=relu", "activation._target_=my.module.X"], "X"),
        (["activation=relu", "init=he_scaled", "init.beta=2"], "relu+he_scaled-beta=2"),
        (["activation=relu", "activation.settings={a:1/2}"], "relu-settings=_a_1_2_"),
    ],
)
def test_an_entry_is_named_by_what_it_chooses(overrides: list[str], name: str) -> None:
    assert entry_name(overrides) == name


def test_no_entry_is_named_by_an_activation_that_it_does_not_choose() -> None:
    with pytest.raises(InputError, match="an entry has no activation; give one"):
        entry_name(["init=lsuv"])


def test_an_entry_comes_back_from_its_file_with_a_line_per_run(tmp_path: Path) -> None:
    own = results("mish", [1.0, 2.0, 3.0, 4.0, 5.0])
    path = save(tmp_path, own)
    assert load(path) == own
    assert path.read_text().count("\n") > len(own.runs)
    assert path.name == "mish.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct": 1001}, "correct is 1001 of 1000"),
        ({"diverged": True}, "do not fit diverged"),
        ({"seed": 1}, "stands twice"),
        ({"origin": 1}, "names an origin that is not there"),
    ],
)
def test_a_file_with_numbers_that_cannot_be_is_one_sentence(
    tmp_path: Path, change: dict, message: str
) -> None:
    path = save(tmp_path, results("mish", [1.0] * 5))
    plain = json.loads(path.read_text())
    plain["runs"][4] |= change
    path.write_text(json.dumps(plain))
    with pytest.raises(InputError, match=rf"mish.json is no usable entry .*{message}"):
        load(path)


def test_a_record_is_kept_as_what_ranks_are_made_of() -> None:
    history = [epoch(1), epoch(2) | {"train_loss": 0.25}, epoch(3) | {"val/top1_error_pct": 12.5}]
    science = {**training().science, "optim": {"epochs": 3, "lr": 0.1}}
    record = training(science=science, history=history, protocols={"center": result(45, 50)})
    kept = result_of(record, "easy", 0)
    assert (kept.val_error_pct, kept.least_loss, kept.correct, kept.num_images) == (
        12.5,
        0.25,
        45,
        50,
    )
    assert kept.error_pct() == pytest.approx(10)
    lost = result_of(diverged(science=science), "easy", 0)
    assert (lost.diverged, lost.val_error_pct, lost.error_pct()) == (True, None, 90.0)


def test_the_best_rate_is_the_lowest_error_on_val_and_needs_the_whole_grid() -> None:
    assert (
        best_rate(EASY, {0.01: run("easy", 0.01, 1000, 20.0), 0.1: run("easy", 0.1, 1000, 20.0)})
        == 0.01
    )
    assert (
        best_rate(EASY, {0.01: run("easy", 0.01, 1000, None), 0.1: run("easy", 0.1, 1000, 90.0)})
        == 0.1
    )
    assert best_rate(EASY, {0.01: run("easy", 0.01, 1000, 20.0)}) is None


def test_a_task_with_a_loss_to_reach_counts_who_reaches_it() -> None:
    assert [score(DEEP, run("deep", 0.1, 0, 50.0, loss)) for loss in (1.9, 2.0)] == [0.0, 100.0]
    assert score(EASY, run("easy", 0.1, 0, 50.0, 1.9)) == 50.0


def test_an_entry_with_one_seed_missing_is_incomplete_and_not_ranked() -> None:
    whole, other = results("mish", [1.0] * 5), results("elu", [2.0] * 5)
    assert scores(SMALL, standing(SMALL, "easy", whole)) == pytest.approx([1.0] * 5)
    lacking = whole.model_copy(
        update={"runs": tuple(r for r in whole.runs if (r.task, r.seed) != ("easy", 3))}
    )
    assert incomplete([standing(SMALL, task, lacking) for task in ("easy", "deep")]) == [
        "easy: 1 run missing"
    ]
    found = board(SMALL, {"mish": lacking, "elu": other}, "quick")
    assert [each.entry for each in found.ranked] == ["elu"]
    text = render_markdown(SMALL, {"mish": lacking, "elu": other}, ["elu"])
    assert "| mish | easy: 1 run missing |" in text
    assert "| [elu](../cards/elu.md) | 2.00 |" in text


def test_an_entry_that_is_not_ranked_stands_in_the_tables_of_the_tasks_that_it_has_whole() -> None:
    refused = results("mish", [1.0] * 5).model_copy(
        update={"refused": {"deep": "it has no shortcuts"}}
    )
    over_all, easy, deep, _ = document(SMALL, {"mish": refused, "elu": results("elu", [2.0] * 5)})
    assert [line[1] for line in over_all.rows] == ["elu"]
    assert [line[0] for line in easy.rows] == ["mish", "elu"]
    assert [line[0] for line in deep.rows] == ["elu"]


def test_an_entry_that_a_task_refuses_is_not_ranked_and_says_why() -> None:
    refused = results("mish", [1.0] * 5).model_copy(
        update={"refused": {"deep": "it has no shortcuts"}}
    )
    assert board(SMALL, {"mish": refused}, "quick").unranked == {
        "mish": ["deep: it has no shortcuts"]
    }
    nothing = refused.model_copy(
        update={"runs": (), "refused": {"easy": "no gradient", "deep": "no gradient"}}
    )
    assert board(SMALL, {"mish": nothing}, "quick").unranked == {
        "mish": ["easy: no gradient", "deep: no gradient"]
    }


def test_runs_at_another_rate_than_the_best_are_not_judged() -> None:
    own = results("mish", [1.0] * 5)
    more = own.model_copy(update={"runs": (*own.runs, run("easy", 0.01, 0, 0.0))})
    assert scores(SMALL, standing(SMALL, "easy", more)) == pytest.approx([1.0] * 5)
