"""Errors by class follow from a run's kept scores and from the masks of other runs."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from made_up import NETWORK, PROVENANCE, SCIENCE, result, training
from rectifiers.analysis.failures import draw
from rectifiers.evaluation.evaluate import Result, Scores, save_scores
from rectifiers.results.class_errors import (
    ScoredTest,
    arms_to_compare,
    changes_by_class,
    errors_by_class,
    largest_confusions,
    load_test,
    most_confident_failures,
    pairs_by_seed,
    report,
)
from rectifiers.results.listing import Run
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs import record as records
from rectifiers.runs.folder import scores_path
from rectifiers.runs.record import TrainingRecord
from refusals import refused

LABELS = np.repeat([0, 1, 3], [5, 20, 10])  # no image of class 2
DATA = "same"  # of made-up records


def answers(wrong: dict[int, int], sure: float = 4.0) -> np.ndarray:
    """Log scores of four classes: right, but for the answers by image that are given."""
    logits = np.zeros((len(LABELS), 4))
    logits[np.arange(len(LABELS)), LABELS] = sure
    for image, answer in wrong.items():
        logits[image] = 0
        logits[image, answer] = sure
    return np.asarray(torch.from_numpy(logits).log_softmax(1))


def run_of(
    scores: np.ndarray,
    seed: int = 0,
    name: str = "prelu",
    *,
    width: int = 1,
    weights: str | None = None,
    data: str = DATA,
    tested: dict[str, Any] | None = None,
    class_names: list[str] | None = None,
) -> TrainingRecord:
    """The record of a run with these scores by `center`, and the keys of `tested`."""
    found = Result.from_scores(torch.from_numpy(scores), torch.from_numpy(LABELS)).as_dict()
    digest = Scores(scores, LABELS, DATA, "{}").digest()
    center = result(0, len(LABELS), 0) | found | {"scores": digest} | (tested or {})
    settings = {"seed": seed, "model": {"width": width}, "activation": {"_target_": name}}
    science = copy.deepcopy(SCIENCE) | settings
    if weights is not None:
        science["init"] = {**science["init"], "from_weights_content": weights}
    return training(
        science=science,
        choices={"activation": name},
        protocols={"center": center},
        network=NETWORK | {"classes": 4},
        provenance=PROVENANCE | {"data": data},
        class_names=class_names,
    )


def scored(scores: np.ndarray) -> ScoredTest:
    record = run_of(scores)
    is_correct = np.array(record.protocols["center"].is_correct())
    return ScoredTest(record, "center", list("abcd"), LABELS, scores, is_correct, DATA)


def kept(folder: Path, record: TrainingRecord, scores: np.ndarray) -> Run:
    """The run with its folder, in which it keeps its scores."""
    place = folder / record.run
    records.write(place / "record.json", record)
    save_scores(scores_path(place, "center"), Scores(scores, LABELS, DATA, "{}"))
    return Run(record, place / "record.json")


def test_errors_are_counted_by_class() -> None:
    rows = errors_by_class(scored(answers({0: 1, 1: 3, 30: 0})))
    shown = [(row["class"], row["num_images"], row["top1_errors"]) for row in rows]
    assert shown == [("a", 5, 2), ("d", 10, 1), ("b", 20, 0)]
    assert (rows[0]["low_pct"], rows[0]["high_pct"]) == error_interval_pct(2, 5)
    assert rows[0]["top5_error_pct"] is None  # of four classes


def test_changes_are_paired_over_seeds() -> None:
    """Of class a the first arm has 1, 2 and 0 errors fewer in 5 images, of class d 2 more in 10."""
    first = [{30: 0, 31: 0}, {30: 1, 31: 0}, {30: 0, 31: 2}]
    second = [{0: 1}, {0: 1, 1: 3}, {}]
    test = scored(answers(first[0]))
    known = [run_of(answers(wrong), seed) for seed, wrong in enumerate(first)]
    known += [run_of(answers(wrong), seed, "relu") for seed, wrong in enumerate(second)]
    known.append(run_of(answers({}), 7, "relu"))  # a seed that PReLU does not have

    arms = arms_to_compare(test, known)
    assert arms is not None
    assert [arm.choices["activation"] for arm in arms] == ["prelu", "relu"]
    rows = {row["class"]: row for row in changes_by_class(test, pairs_by_seed(test, known, arms))}
    assert list(rows) == ["a", "b", "d"]  # the class that profits most first
    assert [row["points"] for row in rows.values()] == pytest.approx([-20, 0, 20])
    expected = stats.t.interval(0.95, 2, loc=-20, scale=stats.sem([-20, -40, 0]))
    assert (rows["a"]["low"], rows["a"]["high"]) == pytest.approx(expected)
    p = stats.ttest_1samp([-20, -40, 0], 0).pvalue
    assert rows["a"]["p"] == pytest.approx(p)
    assert rows["a"]["p_corrected"] == pytest.approx(3 * p)
    single = changes_by_class(test, pairs_by_seed(test, [], (known[0], known[3])))
    assert [set(row) for row in single] == [{"class", "points"}] * 3  # no interval of one seed


def test_equal_changes_tell_nothing_of_their_spread() -> None:
    """As of a class of few images: all seeds differ by one image, or by none."""
    test = scored(answers({0: 1}))
    known = [run_of(answers({0: 1}), seed) for seed in range(3)]
    known += [run_of(answers({}), seed, "relu") for seed in range(3)]
    numbers, words = report(test, known)
    assert [row["p"] for row in numbers["compared"]["classes"]] == [1, 1, 1]
    (line,) = (line for line in words.splitlines() if "+20.00" in line)
    assert line.split() == ["a", "+20.00", "-", "1", "1"]


@pytest.mark.parametrize(
    "other", [{"tested": {"settings": {"scale_px": 40}}}, {"data": "other"}, {"width": 2}]
)
def test_other_tests_and_settings_are_not_paired(other: dict[str, Any]) -> None:
    test = scored(answers({0: 1}))
    twin, stranger = run_of(answers({}), 0, "relu"), run_of(answers({}), 0, "relu", **other)
    arms = (test.record, twin)
    assert list(pairs_by_seed(test, [twin], arms)) == [0]
    found = arms_to_compare(test, [stranger])
    assert not (found and pairs_by_seed(test, [stranger], found))


def test_runs_from_other_weights_are_not_paired() -> None:
    ours, other = run_of(answers({}), weights="a"), run_of(answers({}), 0, "relu", weights="b")
    test = replace(scored(answers({})), record=ours)
    assert arms_to_compare(test, [other]) is None
    twin = run_of(answers({}), 1, weights="b")
    assert list(pairs_by_seed(test, [ours, twin], (ours, ours))) == [0]


def test_tie_is_confused_with_the_other_class() -> None:
    scores = answers({0: 1, 1: 1, 25: 0})
    scores[2] = np.log([0.4, 0.4, 0.1, 0.1])  # an error: it says a no more than b
    rows = largest_confusions(scored(scores))
    named = [(row["class"], row["taken_for"], row["num_images"]) for row in rows]
    assert named == [("a", "b", 3), ("d", "a", 1)]
    assert rows[0]["share_pct"] == 60


def test_surest_failures_come_first() -> None:
    scores = answers({0: 1, 1: 3})
    scores[0] = np.log([0.1, 0.6, 0.2, 0.1])
    scores[10] = np.nan  # an error without an answer
    first, second = most_confident_failures(scored(scores))
    assert (first["image"], second["image"]) == (1, 0)
    assert (second["class"], second["guesses"][0]) == ("a", ["b", pytest.approx(0.6)])
    assert [name for name, _ in second["guesses"][:2]] == ["b", "c"]


def test_kept_scores_make_the_report(tmp_path: Path) -> None:
    scores = answers({0: 1})
    run = kept(tmp_path, run_of(scores, class_names=["n03000684", "\x1b[1mb", "c", "d"]), scores)
    numbers, words = report(load_test(run, None), [run.record])
    assert numbers["classes"][0]["class"] == "chain saw"  # Imagenette's in words
    assert numbers["compared"] is None
    assert "--compare" in words
    assert "\x1b" not in words


@pytest.mark.parametrize("protocol", ["ten_view", "../center", None])
def test_missing_scores_name_the_command(tmp_path: Path, protocol: str | None) -> None:
    scores = answers({0: 1})
    digest = {} if protocol else {"tested": {"scores": None}}
    run = kept(tmp_path, run_of(scores, **digest), scores)
    name = protocol or "ten_view"
    command = rf"evaluate\.py run={run.record.run} evaluation={name} evaluation\.keep_scores=true"
    with refused(command):
        load_test(run, protocol)


def test_name_of_a_protocol_leads_nowhere(tmp_path: Path) -> None:
    scores = answers({0: 1})
    record = run_of(scores)
    run = kept(tmp_path, record, scores)
    (run.path.parent / "scores" / "center.npz").rename(run.path.parent / "out.npz")
    hostile = record.model_copy(update={"protocols": {"../out": record.protocols["center"]}})
    with refused(r"kept no scores of \.\./out"):
        load_test(Run(hostile, run.path), None)


def test_scores_of_another_test_are_refused(tmp_path: Path) -> None:
    run = kept(tmp_path, run_of(answers({0: 1})), answers({1: 1}))
    with refused("is not of the test in the run's record"):
        load_test(run, "center")


def test_picture_shows_names_as_they_are(tmp_path: Path) -> None:
    formula = r"$\frac{$"
    failure = {"class": formula, "guesses": [["b", 0.9], [formula, 0.1]]}
    images = [np.zeros((8, 6, channels), np.uint8) for channels in (1, 3)]
    figure = draw(images, [failure, failure], formula.replace("$", ""))
    figure.savefig(tmp_path / "failures.svg")
    assert figure.axes[0].get_title(loc="left") == formula
    assert figure.axes[1].get_xlabel().splitlines() == ["90.0 % b", f"10.0 % {formula} (right)"]
