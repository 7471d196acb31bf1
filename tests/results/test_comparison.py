"""What is said of two committed runs."""

import pytest

from conftest import ROOT
from made_up import altered, result
from rectifiers.results.listing import MISSING, MIXED, compare, differences, gather
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.record import Record
from rectifiers.runtime.schema import flat


@pytest.fixture(scope="module")
def pair() -> tuple[Record, Record]:
    """PReLU and ReLU on digits, both with seed 0 and tested by all protocols."""
    found = {each.record.run: each.record for each in gather(ROOT / "results" / "records")}
    return found["0a3802792865"], found["317e1d627db5"]


def test_differing_leaves_alone_are_named() -> None:
    one, other = flat({"a": {"b": 1, "c": [1]}, "d": 0}), flat({"a": {"b": 2, "c": [1]}, "e": None})
    assert one == {"a.b": 1, "a.c": [1], "d": 0}
    assert differences(one, other) == {"a.b": (1, 2), "d": (0, MISSING), "e": (MISSING, None)}


def test_two_arms_differ_in_their_activation_alone(pair: tuple[Record, Record]) -> None:
    compared = compare(*pair)
    assert set(compared["configuration"]) == {"activation._target_", "activation.initial_slope"}
    assert compared["provenance"] == {}
    assert compared["only_one_has"] == []


def test_results_have_intervals_and_a_paired_test(pair: tuple[Record, Record]) -> None:
    compared = compare(*pair)["results"]["ten_view"]
    one, other = (record.protocols["ten_view"] for record in pair)
    wrong = [450 - result.top1_correct for result in (one, other)]
    assert compared["interval_pct"] == [error_interval_pct(errors, 450) for errors in wrong]
    assert compared["difference"] == pytest.approx(100 * (wrong[1] - wrong[0]) / 450)
    paired = compared["paired"]
    only_one, only_other = paired["only_one_right"], paired["only_other_right"]
    assert only_one - only_other == wrong[1] - wrong[0]
    # as in TABLES.md, seed 0
    assert (only_one, only_other, round(paired["p"], 2)) == (6, 1, 0.12)


@pytest.mark.parametrize(
    "change",
    [{"provenance.data": "other"}, {"protocols": {"dense": result(440, 449, split="test")}}],
)
def test_answers_on_other_images_are_not_paired(pair, change) -> None:
    other = altered(pair[1], change)
    compared = compare(pair[0], other)["results"]["dense"]
    assert (compared["unpaired_reason"], compared["paired"]) == ("other images", None)


def test_validation_and_test_errors_have_no_difference(pair: tuple[Record, Record]) -> None:
    images = {"train": 1347, "val": 450, "test": None}
    results = {name: r.model_dump() | {"split": "val"} for name, r in pair[1].protocols.items()}
    changes = {"science.data.protocol": "paper", "images": images, "protocols": results}
    compared = compare(pair[0], altered(pair[1], changes))
    assert compared["training"]["images.test"] == (450, None)
    keys = ("difference", "paired", "unpaired_reason")
    for found in compared["results"].values():
        assert [found[key] for key in keys] == [None, None, MIXED]
