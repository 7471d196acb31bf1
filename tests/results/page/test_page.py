"""The page as text: the numbers of TABLES.md, and nothing that a record could slip in."""

import base64
import gzip
import json
import math
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from made_up import SCIENCE, training
from rectifiers.results.claim_records import load as load_claims
from rectifiers.results.claims import answer, claims
from rectifiers.results.findings import chosen
from rectifiers.results.listing import gather
from rectifiers.results.numerical_floor import load_floor
from rectifiers.results.page.arms import arms
from rectifiers.results.page.render import packed, page, script_json
from rectifiers.results.page.run_columns import column
from rectifiers.results.page.sections import (
    SECTIONS,
    PageData,
    error_curves,
    propagation,
    slopes_by_depth,
)
from rectifiers.results.page.sections import claims as claims_section
from rectifiers.results.page.strips import WIDTH, strip
from rectifiers.results.tables import document, load
from rectifiers.results.verdicts import Verdict
from rectifiers.results.wording import effect_of
from rectifiers.runs.record import TrainingRecord

RECORDS = ROOT / "results" / "records"


@pytest.fixture(scope="module")
def data() -> PageData:
    return PageData(gather(RECORDS), document(load(RECORDS)))


@pytest.fixture(scope="module")
def text(data: PageData) -> str:
    return page(data.found, load(RECORDS), ROOT / "results" / "report" / "index.html")


class Cells(HTMLParser):
    """The text of every table row of a page, by the heading above it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str]]] = []
        self.heading, self.inside = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "h3":
            self.heading = ""
        if tag == "tr":
            self.rows.append((self.heading, []))
        if tag in ("th", "td"):
            self.rows[-1][1].append("")
        self.inside = tag if tag in ("h3", "th", "td") else self.inside

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h3", "th", "td"):
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "h3":
            self.heading += data
        elif self.inside:
            self.rows[-1][1][-1] += data


def test_its_tables_hold_the_numbers_of_tables_md(text: str, data: PageData) -> None:
    read = Cells()
    read.feed(text)
    shown = {(heading.strip(), row[0].strip()): row for heading, row in read.rows if row}
    tables = [table for table in data.tables if table.kind not in ("protocols", "origins")]
    lines = [(table, line) for table in tables for line in table.lines]
    assert len(lines) > 80
    for table, line in lines:
        row = shown[table.title, str(line.cells[0])]
        for cell, told in zip(line.cells[1:], row[1:], strict=False):
            folded = "tests" in told  # so many tests that they are behind a line which counts them
            assert numbers(told)[folded:] == numbers(str(cell)), (table.title, line.cells[0])


def numbers(text: str) -> list[str]:
    return re.findall(r"[-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e-\d+)?", text)


def test_every_number_that_was_measured_tells_its_runs(text: str, data: PageData) -> None:
    for table in data.tables:
        for line in table.lines:
            if line.runs:
                assert f'data-runs="{" ".join(line.runs)}"' in text
                assert set(line.runs) <= {found.record.run for found in data.found}


def test_the_chart_of_slopes_has_table_1(data: PageData) -> None:
    section = slopes_by_depth(data)
    assert section
    shared = section.charts[0]
    assert [series.name for series in shared.series] == ["paper, ImageNet", "ours, digits"]
    paper, digits = shared.series
    assert (paper.x[0], paper.y[0]) == ("conv1", 0.681)
    assert [round(value, 3) for value in (digits.y[0], digits.low[0], digits.high[0])] == [
        0.565,
        0.483,
        0.646,
    ]


def test_curves_are_means_over_the_seeds_of_an_arm(data: PageData) -> None:
    section = error_curves(data)
    assert section
    errors = section.charts[0]
    names = [
        "prelu · he, n = 5",
        "prelu_shared · he, n = 5",
        "relu · he, n = 5",
        "relu · xavier_forward, n = 5",
    ]
    assert [series.name for series in errors.series] == names
    runs = [
        each.record for each in data.found if each.record.choices["experiment"] == "table2/prelu"
    ]
    last = [run.history[-1]["val/top1_error_pct"] for run in runs if run.epochs == 75]
    assert errors.series[0].y[-1] == pytest.approx(sum(last) / 5, rel=1e-4)


def test_arms_that_share_their_choices_are_told_apart_by_their_keys() -> None:
    def run(**changed: Any) -> TrainingRecord:
        science = SCIENCE | {"optim": {"lr": 0.1, "epochs": 3} | changed}
        return training(choices={"activation": "relu", "init": "he"}, science=science)

    found = arms([run(), run(lr=0.2), run(drop_epochs=[1])])
    assert [(arm.name, len(arm.runs)) for arm in found] == [
        ("relu · lr=0.1", 2),
        ("relu · lr=0.2", 1),
    ]


@pytest.fixture(scope="module")
def answered() -> PageData:
    found = load_claims(ROOT / "results" / "claims")
    floor = load_floor(ROOT / "results")
    return PageData([], [], [answer(claim, found, floor) for claim in claims()], floor)


def test_the_signal_falls_as_eq_9_says_and_he_keeps_it(answered: PageData) -> None:
    section = propagation(answered)
    assert section
    by_claim = {
        part.title.partition("claim/")[2].partition(" ")[0]: part for part in section.charts
    }
    assert list(by_claim) == ["figure3", "mean_response", "signal"]
    start = by_claim["signal"]
    lines = {
        series.name.partition(",")[0] + ("*" if "Eq. 9" in series.name else ""): series
        for series in start.series
    }
    assert list(lines) == ["he", "xavier", "less", "more", "he*", "xavier*", "less*", "more*"]
    for arm, factor in (("he", 1.0), ("xavier", math.sqrt(0.5)), ("less", 0.9), ("more", 1.1)):
        expected, measured = lines[f"{arm}*"], lines[arm]
        assert expected.x == measured.x
        assert expected.y[-1] - expected.y[0] == pytest.approx(29 * math.log10(factor), abs=1e-3)
        assert (
            abs(measured.y[-1] - expected.y[-1]) < 0.5
        )  # of 30 layers of 128: finite width moves all arms alike


def test_the_claims_stand_under_their_verdicts_as_in_claims_md(answered: PageData) -> None:
    section = claims_section(answered)
    assert section
    lines = (ROOT / "results" / "CLAIMS.md").read_text()
    checks = next(heading for heading in section.lists if heading.startswith("Checks"))
    assert all(each.claim.is_check for each in section.lists[checks])
    for heading, listed in section.lists.items():
        for each in listed:
            assert each.claim.is_check == (heading == checks)
            if each.claim.tests:
                assert (
                    f"| {each.verdict if heading == checks else heading.lower()} | "
                    f"{each.claim.name} |" in lines
                )
    assert str(answered.floor).replace("`", "") in section.note


def test_the_page_begins_with_the_findings_their_effects_and_verdicts(
    data: PageData, answered: PageData
) -> None:
    text = page(data.found[:1], [], ROOT / "results" / "report" / "index.html", answered.answers)
    cards = re.findall(r"<article.*?</article>", text, re.DOTALL)
    names = [re.findall('aria-labelledby="finding-(.*?)"', each)[0] for each in cards]
    assert names == chosen()
    assert text.index("<article") < text.index("<table")
    by_name = {each.claim.name: each for each in answered.answers}
    for name, shown in zip(names, map(unescape, cards), strict=True):
        found = by_name[name]
        assert f'<span class="verdict {found.verdict.name.lower()}">{found.verdict}</span>' in shown
        assert shown.count('<svg class="strip"') == len(found.tested)
        for tested in found.tested:
            assert effect_of(tested.finding) in shown
            assert str(tested.test.criterion) in shown


def test_a_strip_shows_the_interval_where_its_verdict_lies(answered: PageData) -> None:
    drawn = [(each, strip(each)) for answer in answered.answers for each in answer.tested]
    decided = {Verdict.SUPPORTED: "supported", Verdict.CONTRADICTED: "contradicted"}
    seen = set()
    for tested, shown in drawn:
        region = decided.get(tested.finding.verdict)
        if shown is None or region is None:
            continue
        seen.add(region)
        low, high = shown.low, shown.high
        if tested.test.criterion.supported.side == "within" and region == "supported":
            low = high = shown.effect  # judged by a narrower interval than the one that is drawn
        assert any(
            name == region and start <= low <= high <= end for name, start, end in shown.spans
        )
        assert 0 < shown.low <= shown.effect <= shown.high < WIDTH
        assert len(shown.seeds) == len(tested.measured)
    assert seen == set(decided.values())


def test_a_section_without_records_is_none() -> None:
    assert [make(PageData([], [])) for make in SECTIONS] == [None] * len(SECTIONS)


def test_json_in_a_script_can_neither_end_it_nor_a_line() -> None:
    hostile = {
        "</script><script>alert(1)</script>": "<!-- & \N{LINE SEPARATOR} \N{PARAGRAPH SEPARATOR}"
    }
    text = script_json(hostile)
    assert not set("<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}") & set(text)
    assert json.loads(text) == hostile
    assert json.loads(gzip.decompress(base64.b64decode(packed(hostile)))) == hostile


def test_a_column_keeps_each_value_once_and_one_is_not_true() -> None:
    assert column([1, True, "1", 1, None, [1]]) == {
        "values": [1, True, "1", None, [1]],
        "at": [0, 1, 2, 0, 3, 4],
    }


@pytest.mark.process
def test_the_same_records_make_the_same_page(data: PageData, text: str) -> None:
    assert page(data.found, load(RECORDS), ROOT / "results" / "report" / "index.html") == text


def test_the_page_knows_no_folder_of_this_machine(text: str) -> None:
    assert str(ROOT) not in text
    blob = re.search(r'id="packed">(.*?)<', text)
    assert blob
    assert str(ROOT) not in gzip.decompress(base64.b64decode(blob[1])).decode()


def test_with_no_records_it_says_what_to_run(tmp_path: Path) -> None:
    empty = page([], [], tmp_path / "index.html")
    assert "make train" in empty
    assert "make report" in empty
    assert "<script" not in empty
