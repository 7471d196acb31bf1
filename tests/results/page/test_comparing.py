"""Runs beside each other on the page, with the statistics of the tables."""

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from pages import CHROMIUM, CLASSES, PRELU, RECORDS, RELU, XAVIER, Visit, cells
from rectifiers.results.comparison import compare
from rectifiers.runs import record as records

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium; make browser installs it"
    ),
]


def test_two_runs_are_compared_with_the_statistics_of_the_tables(
    browser: Browser, place: Path
) -> None:
    one, other = (records.load(RECORDS / f"{name}.json") for name in (PRELU, RELU))
    compared = compare(one, other)
    with Visit(browser, place, "#runs&data=digits&find=table2") as page:
        button = page.get_by_role("button", name=f"Compare run {PRELU}")
        button.click()
        expect(button).to_have_text("A")
        page.get_by_label("B", exact=True).fill(RELU[:4])
        page.keyboard.press("Enter")
        expect(page.locator("#comparison svg.marks")).to_have_count(3)
        assert f"a={PRELU}&b={RELU}" in page.evaluate("location.hash")
        keys = {row[0]: row[1:] for row in cells(page, "Configuration")}
        wanted = compared["configuration"] | compared["choices"]
        assert keys == {key: [str(value) for value in pair] for key, pair in wanted.items()}
        rows = {(row[0], row[1]): row[2:] for row in cells(page, "Results")}
        assert rows.keys() == {(name, side) for name in compared["results"] for side in "AB"}
        for name, result in compared["results"].items():
            for number, side in enumerate("AB"):
                low, high = result["interval_pct"][number]
                assert rows[name, side][0].split("\n") == [
                    f"{result['top1_error_pct'][number]:.2f}",
                    f"{low:.2f} to {high:.2f}",
                ]
            assert rows[name, "A"][2:] == ["-", "-", "-"]
            difference, right, p = rows[name, "B"][2:]
            assert difference.replace("−", "-") == f"{result['difference']:+.2f}"
            pair = result["paired"]
            assert right == f"{pair['only_one_right']} / {pair['only_other_right']}"
            assert float(p) == pytest.approx(pair["p"], rel=0.06)  # printed to two digits


def test_several_runs_share_axes_and_a_table_of_differences_and_each_is_held_against_the_first(
    browser: Browser, place: Path
) -> None:
    first, second, third = (
        records.load(RECORDS / f"{name}.json") for name in (PRELU, RELU, XAVIER)
    )
    with Visit(browser, place, f"#compare&a={PRELU}&b={RELU}") as page:
        page.get_by_label("C", exact=True).fill(XAVIER)
        page.keyboard.press("Enter")
        expect(page.locator("#comparison svg.marks")).to_have_count(3)
        names = [f"A: {PRELU}", f"B: {RELU}", f"C: {XAVIER}"]
        legend = page.locator("#comparison .legend").first.locator("li").all_inner_texts()
        assert [text.partition(" (")[0] for text in legend] == names
        keys = {row[0]: row[1:] for row in cells(page, "Configuration")}
        assert keys["activation"] == ["prelu", "relu", "relu"]
        assert keys["init"] == ["he", "he", "xavier_forward"]
        rows = {row[1]: row for row in cells(page, "Results") if row[0] == "ten_view"}
        for side, other in (("B", second), ("C", third)):
            expected = compare(first, other)["results"]["ten_view"]
            assert rows[side][4].replace("−", "-") == f"{expected['difference']:+.2f}"
            only = expected["paired"]
            assert rows[side][5] == f"{only['only_one_right']} / {only['only_other_right']}"
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("#compare-status")).to_contain_text("Mark two runs or more")
        assert page.evaluate("location.hash") == "#compare"


def test_classes_and_images_where_scores_were_kept(browser: Browser, place: Path) -> None:
    both = [
        records.load(RECORDS / f"{n}.json").protocols["ten_view"].is_correct()
        for n in (PRELU, RELU)
    ]
    apart = [i for i in range(450) if both[0][i] != both[1][i]]
    with Visit(browser, place, f"#compare&a={PRELU}&b={RELU}") as page:
        expect(page.locator("#images-protocol")).to_be_visible()
        rows = cells(page, "by index in the test split")
        assert [int(row[0]) for row in rows] == apart
        for image, (_, name, ours, theirs) in zip(apart, rows, strict=True):
            assert name == CLASSES[image % 10]
            wrong = f"{CLASSES[(image + 1) % 10]} (wrong)"
            assert [ours, theirs] == [name if side[image] else wrong for side in both]
        by_class = cells(page, "Errors by class")
        for digit, (name, images, ours, theirs, _) in enumerate(by_class):
            errors = [100 * np.mean([not side[i] for i in range(digit, 450, 10)]) for side in both]
            assert (name, images) == (CLASSES[digit], "45")
            assert [float(ours), float(theirs)] == [
                pytest.approx(error, abs=0.005) for error in errors
            ]
        page.locator("#images-protocol").select_option(
            "dense"
        )  # no scores of it were kept, but the masks were
        assert {tuple(row[2:]) for row in cells(page, "by index in the test split")} <= {
            ("right", "wrong"),
            ("wrong", "right"),
        }
