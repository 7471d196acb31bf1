"""A card says what was measured, and its verdict no more than the intervals show."""

from pathlib import Path

import pytest

from benchmark_made_up import SMALL, card, results
from rectifiers.results.benchmark import card_index
from rectifiers.results.benchmark.card import chapters, load, save
from rectifiers.results.benchmark.card_figure import description, figure
from rectifiers.results.benchmark.card_page import render_html, render_markdown
from rectifiers.results.benchmark.entries import EntryResults
from rectifiers.results.benchmark.verdict import in_short, sentences
from rectifiers.results.figures import write_svg
from rectifiers.runtime.errors import InputError

RELU = results("relu", [5.0, 6.0, 5.5, 5.2, 6.1], [1.0, 3.0, 1.0, 1.0, 1.0])


def verdict(own: EntryResults, **baselines: EntryResults) -> str:
    return " ".join(sentences(SMALL, None, own, baselines))


def test_a_lower_error_is_claimed_only_where_the_whole_interval_lies_below() -> None:
    lower = verdict(results("mish", [e - 3 for e in (5.0, 6.0, 5.5, 5.2, 6.1)]), relu=RELU)
    assert "A lower error than ReLU on easy (-3.0 points, -3.0 to -3.0)." in lower
    noisy = verdict(results("mish", [1.0, 9.0, 1.0, 9.0, 5.0]), relu=RELU)
    assert "No difference from ReLU is shown on easy" in noisy
    assert "lower error" not in noisy
    assert "higher error" not in noisy
    assert "A higher error than ReLU on easy (+4.0" in verdict(
        results("mish", [e + 4 for e in (5.0, 6.0, 5.5, 5.2, 6.1)]), relu=RELU
    )


def test_better_over_all_tasks_is_said_of_an_interval_above_one_half_alone() -> None:
    better = verdict(results("mish", [1.0, 1.1, 1.2, 1.0, 1.1]), relu=RELU)
    assert "with probability 0.80 (0." in better
    assert ": better, as far" in better
    assert "neither better nor worse" in verdict(
        results("mish", [5.0, 6.0, 5.5, 5.2, 6.1]), relu=RELU
    )


def test_the_list_of_cards_says_what_the_verdict_says_over_all_tasks() -> None:
    own = {
        "relu": RELU,
        "good": results("good", [1.0, 1.1, 1.2, 1.0, 1.1]),
        "bad": results("bad", [9.0] * 5, [3.0] * 5),
        "alone": EntryResults(
            benchmark=SMALL.hash, entry="alone", overrides=(), refused={}, origins=(), runs=()
        ),
    }
    assert str(in_short(SMALL, "relu", own["good"], own)).startswith("better, 0.80 (0.")
    assert str(in_short(SMALL, "relu", own["bad"], own)).startswith("worse, 0.")
    page = card_index.render_markdown(SMALL, ["bad", "alone", "relu", "good"], own)
    rows = [line.split(" | ")[:3] for line in page.splitlines() if line.startswith("| [")]
    assert [row[0] for row in rows] == [
        f"| [{name}](../cards/{name}.md)" for name in ("good", "relu", "bad", "alone")
    ]
    assert (
        rows[1][2] == rows[3][1] == "-"
    )  # ReLU is not compared with itself, and what has no run has no place
    assert card_index.render_markdown(SMALL, [], own).endswith("There is none yet.\n")


def test_a_baseline_is_not_compared_with_itself() -> None:
    said = verdict(RELU, relu=RELU, prelu=results("prelu", [1.0] * 5))
    assert "deep: 4 of 5 seeds train, PReLU 5." in said
    assert "ReLU on easy" not in said.replace("PReLU", "")
    read = chapters(SMALL, card(), RELU, {"relu": RELU})
    (table,) = next(chapter for chapter in read if chapter.title == "How well").tables
    assert [line[3] for line in table.rows] == ["-", "-"]


def test_the_verdict_counts_seeds_that_train_and_those_that_diverged() -> None:
    own = results("mish", [1.0] * 5, [3.0, 3.0, 1.0, 1.0, 1.0])
    assert "deep: 3 of 5 seeds train, ReLU 4." in verdict(own, relu=RELU)
    assert "diverged" not in verdict(own)
    lost = tuple(
        run.model_copy(update={"diverged": True, "correct": None, "num_images": None})
        if run.seed == 2
        else run
        for run in own.runs
    )
    assert "2 of 10 judged runs diverged" in verdict(own.model_copy(update={"runs": lost}))


def test_an_incomplete_entry_gets_no_verdict_where_it_lacks_a_run() -> None:
    own = results("mish", [1.0] * 5)
    lacking = own.model_copy(update={"runs": own.runs[:-1]})
    said = verdict(lacking, relu=RELU)
    assert "Incomplete, and so without a verdict there: deep." in said
    assert "seeds train" not in said


def test_a_card_has_every_chapter_and_its_numbers(tmp_path: Path) -> None:
    made = card()
    assert load(save(tmp_path, made)) == made
    own = results("mish", [1.0, 2.0, 3.0, 4.0, 5.0])
    read = chapters(SMALL, made, own, {"relu": RELU, "mish": own})
    text = render_markdown(SMALL, made, read)
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "Verdict",
        "On paper",
        "At the start",
        "What trains",
        "How well",
        "What it costs",
    ]
    for part in (
        "| 8 | diverged | **1.99** |",  # by gain
        "| depth scale | 1.2 | ∞ |",
        "| 6 | **0.40** | diverged |",  # by rate
        "3.00 [1.00 to 5.00]",
        "0.1, an end of the grid",
        "0.1 (-0.2 to 0.4)",
        "| 1 | 0.1 (-0.2 to 0.4) | 0 | -0.1 | gone | 0 |",
        "1.80 (quartiles 1.60 to 1.90, 15 rounds)",
        "an error grows by 1.08 per layer",
        "| deep | 5 of 5 seeds | 0.1, an end of the grid | +1 seeds |",
    ):
        assert part in text
    write_svg(figure(SMALL, made, own, {"relu": RELU, "mish": own}), tmp_path / "mish.svg", "mish")
    svg = (tmp_path / "mish.svg").read_text()
    html = render_html(SMALL, made, read, svg)
    assert html.count("<h2>") == 6
    assert "default-src 'none'" in html
    assert "6 depth scales" in html


def test_what_could_not_be_measured_is_a_sentence_with_the_reason(tmp_path: Path) -> None:
    reason = "activation Step() has a derivative of 0 almost everywhere"
    parts = ("paper", "start", "trains", "cost")
    made = card(**dict.fromkeys(parts), failed=dict.fromkeys(parts, reason))
    own = EntryResults(
        benchmark=SMALL.hash,
        entry="mish",
        overrides=(),
        refused={"easy": reason, "deep": reason},
        origins=(),
        runs=(),
    )
    read = chapters(SMALL, made, own, {"relu": RELU})
    text = render_markdown(SMALL, made, read)
    assert text.count(f"Not measured: {reason}") == 4
    assert f"easy cannot be run: {reason}." in text
    write_svg(figure(SMALL, made, own, {"relu": RELU}), tmp_path / "mish.svg", "mish")


def test_a_figure_of_other_numbers_has_another_description() -> None:
    own = results("mish", [1.0] * 5)
    said = {
        description(card(), own, {"relu": RELU}),
        description(card(trains=None), own, {"relu": RELU}),
        description(card(), results("mish", [2.0] * 5), {"relu": RELU}),
        description(card(), own, {"relu": results("relu", [1.0] * 5)}),
    }
    assert len(said) == 4
    assert (
        description(card(), own, {"relu": RELU, "gelu": own}) in said
    )  # which the figure does not show


def test_what_a_card_shows_of_a_user_is_text_and_no_markup() -> None:
    made = card(failed={"paper": "<script>alert(1)</script>"}, paper=None)
    read = chapters(SMALL, made, results("mish", [1.0] * 5), {})
    assert "<script" not in render_html(SMALL, made, read, "<svg></svg>")


def test_a_damaged_card_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mish.json").write_text("{}")
    with pytest.raises(InputError, match=r"mish.json is no usable card .* make it again"):
        load(tmp_path / "mish.json")


def test_results_of_another_size_stay_beside_new_ones() -> None:
    own = results("mish", [1.0] * 5)
    easy = own.model_copy(update={"runs": tuple(run for run in own.runs if run.task == "easy")})
    deep = own.model_copy(update={"runs": tuple(run for run in own.runs if run.task == "deep")})
    both = easy.joined(deep)
    assert {run.run + run.task for run in both.runs} == {run.run + run.task for run in own.runs}
    assert {run.origin for run in both.runs if run.task == "deep"} == {1}
    assert easy.joined(own.model_copy(update={"benchmark": "v0"})) == easy
