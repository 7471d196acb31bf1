"""The page in a real browser: it does what it says, asks for nothing, and shows a hostile record as
text."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from benchmark_made_up import SMALL, results
from conftest import ROOT
from made_up import altered, ensemble, parsed, result
from pages import (
    CHROMIUM,
    PRELU,
    RECORDS,
    RELU,
    Visit,
    assert_accessible,
    cells,
    column,
    see_everything,
)
from rectifiers.results.benchmark.leaderboard import document
from rectifiers.results.claim_records import load as load_claims
from rectifiers.results.claims import answer, claims
from rectifiers.results.listing import Found, gather
from rectifiers.results.page.render import page as make_page
from rectifiers.results.statistics import error_interval_pct, mcnemar
from rectifiers.results.tables import load
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium; make browser installs it"
    ),
]

# the width of what chromium prints on A4 across: 297 mm at 96 px per inch, less its margins
SHEET_PX = 1046
PAYLOADS = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '"><svg onload=window.hacked=1>',
    "{{ 7 * 7 }}\N{LINE SEPARATOR}javascript:window.hacked=1",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_it_loads_clean_and_draws_all_charts_within_any_width(
    browser: Browser, place: Path, scheme: Any, width: int
) -> None:
    fragment = f"#compare&a={PRELU}&b={RELU}"
    with Visit(
        browser, place, fragment, color_scheme=scheme, viewport={"width": width, "height": 800}
    ) as page:
        see_everything(page)
        expect(page.locator("#comparison svg.marks")).to_have_count(3)
        page.locator("figure details summary").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width > 360:
            assert_accessible(page)
        page.locator("#list .run").first.click()
        expect(page.locator("dialog")).to_be_visible()
        if scheme == "dark":
            assert_accessible(page)


def test_sorting_by_mouse_and_by_key(browser: Browser, place: Path) -> None:
    with Visit(browser, place, "#runs&data=digits") as page:
        head = page.locator("th[data-key=error]")
        assert head.get_attribute("aria-sort") is None
        page.locator("th[data-key=error] button").click()
        expect(head).to_have_attribute("aria-sort", "ascending")
        errors = [float(text) for text in column(page, 3)]
        assert len(errors) == 20
        assert errors == sorted(errors)
        page.keyboard.press("Enter")  # the button has the focus
        expect(head).to_have_attribute("aria-sort", "descending")
        assert [float(text) for text in column(page, 3)] == sorted(errors, reverse=True)
        page.locator("th[data-key=init] button").click()
        assert head.get_attribute("aria-sort") is None
        assert column(page, 7) == sorted(column(page, 7))


def test_filters_narrow_and_the_address_keeps_them(browser: Browser, place: Path) -> None:
    with Visit(browser, place) as page:
        expect(page.locator("#count")).to_have_text("35 runs; errors by ten_view")
        assert len(column(page, 1)) == 25  # a page of them
        page.locator("#next").click()
        assert len(column(page, 1)) == 10
        page.locator("#filter-activation").select_option("relu")
        page.locator("#filter-init").select_option("xavier_forward")
        page.get_by_label("tested by").select_option("dense")
        expect(page.locator("#count")).to_have_text("5 runs of 35; errors by dense")
        names, address = column(page, 1), page.evaluate("location.hash")
        known = {each.record.run: each.record for each in gather(RECORDS)}
        assert {known[name].choices["experiment"] for name in names} == {"text/xavier14"}
        errors = [f"{known[name].protocols['dense'].top1_error_pct:.2f}" for name in names]
        assert column(page, 3) == errors
        page.get_by_role("link", name="Error by epoch").click()
        expect(page).to_have_url(f"{place.as_uri()}#curves&{address.removeprefix('#')}")
        page.get_by_label("find").fill("table2")
        expect(page.locator("#count")).to_have_text("0 runs of 35; errors by dense")
        page.get_by_role("button", name="Reset").click()
        expect(page.locator("#count")).to_have_text("35 runs; errors by ten_view")
    with Visit(browser, place, address) as page:
        assert column(page, 1) == names
        expect(page.locator("#filter-activation")).to_have_value("relu")


def test_what_stands_in_an_address_cannot_break_the_page(browser: Browser, place: Path) -> None:
    with Visit(
        browser,
        place,
        "#runs&protocol=constructor&sort=toString&page=-3&run=x&a=__proto__&b=%3Cb%3E",
    ) as page:
        assert len(column(page, 1)) == 25
        expect(page.locator("#compare-status")).to_have_text(
            "No run, or more than one, is named __proto__, <b>."
        )


def test_the_scripts_statistics_are_those_of_python(browser: Browser, place: Path) -> None:
    """The functions of script/numbers.js by themselves, far beyond what committed records reach."""
    source = (ROOT / "src/rectifiers/results/page/script/numbers.js").read_text()
    cases = [(0, 0), (0, 1), (3, 7), (500, 400), (12_000, 12_001), (9_000, 12_000)]
    with Visit(browser, place) as page:
        z = page.evaluate("JSON.parse(document.getElementById('rows').textContent).z")
        values = page.evaluate(
            f"([cases, z]) => {{ {source}; return cases.map(([a, b]) => [mcnemar(a, b), "
            "wilson(a, a + b + 1, z)]) }",
            [cases, z],
        )
    for (first, second), (p, interval) in zip(cases, values, strict=True):
        exact = mcnemar([True] * first + [False] * second, [False] * first + [True] * second)[2]
        assert p == pytest.approx(exact, rel=1e-8)
        assert interval == pytest.approx(error_interval_pct(first, first + second + 1), rel=1e-12)


def test_a_number_leads_to_its_runs_their_command_record_and_provenance(
    browser: Browser, place: Path
) -> None:
    record = records.load(RECORDS / f"{PRELU}.json")
    with Visit(browser, place, permissions=["clipboard-read", "clipboard-write"]) as page:
        button = page.get_by_role("button", name="5 runs of Table 2 on digits").last
        button.focus()
        page.keyboard.press("Enter")
        dialog = page.locator("dialog")
        expect(dialog.get_by_role("heading", level=2)).to_be_focused()
        dialog.get_by_role("button", name=PRELU).click()
        expect(dialog.get_by_role("heading", level=2)).to_have_text(f"Run {PRELU}")
        expect(dialog.locator("pre")).to_have_text(record.command)
        dialog.get_by_role("button", name="Copy").click()
        expect(dialog.get_by_text("Copied.")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == record.command
        href = dialog.locator("a").first.evaluate("link => link.href")
        assert Path(href.removeprefix("file://")).is_file()
        text = dialog.inner_text()
        for value in (
            record.provenance.git_sha,
            record.provenance.data,
            record.provenance.lock,
            record.provenance.machine.cpu,
            record.provenance.versions["torch"],
        ):
            assert value in text
        page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
        page.wait_for_function("!location.hash.includes('run=')")
        expect(button).to_be_focused()


def test_an_own_run_and_the_committed_record_of_its_name_are_both_there(
    browser: Browser, tmp_path: Path
) -> None:
    record = records.load(RECORDS / f"{PRELU}.json")
    changes = {"protocols.ten_view": result(441, 450, split="test"), "codes": ["0123456789ab"]}
    records.write(tmp_path / "runs" / PRELU / "record.json", altered(record, changes))
    path = tmp_path / "index.html"
    path.write_text(make_page(gather(RECORDS, tmp_path / "runs"), load(RECORDS), path))
    committed = f"{PRELU} (committed)"
    with Visit(browser, path, f"#runs&find={PRELU}") as page:
        assert column(page, 1) == [PRELU, committed]
        assert column(page, 3) == ["2.00", "1.78"]
        assert column(page, 13) == ["0123456789ab", "9ca19b9840f9"]
        dialog = page.locator("dialog")
        for name, code, source in (
            (PRELU, "0123456789ab", tmp_path / "runs" / PRELU / "record.json"),
            (committed, "9ca19b9840f9", RECORDS / f"{PRELU}.json"),
        ):
            page.get_by_role("button", name=name, exact=True).click()
            expect(dialog.get_by_text(f"Code {code} on AMD EPYC, 1 thread.")).to_be_visible()
            assert (
                Path(
                    dialog.locator("a").first.evaluate("link => link.href").removeprefix("file://")
                )
                == source
            )
            page.keyboard.press("Escape")
        page.get_by_role(
            "button", name="5 runs of Table 2 on digits"
        ).last.click()  # the tables' are the committed
        expect(dialog.get_by_role("button", name=PRELU)).to_have_text(committed)
        page.keyboard.press("Escape")
        page.get_by_label("A", exact=True).fill(PRELU[:5])
        page.get_by_label("B", exact=True).fill(committed)
        page.keyboard.press("Enter")
        keys = {row[0]: row[1:] for row in cells(page, "Provenance")}
        assert [code.strip('[]"') for code in keys["codes"]] == ["0123456789ab", "9ca19b9840f9"]


def test_a_chart_has_its_numbers_as_a_table(browser: Browser, place: Path) -> None:
    with Visit(browser, place) as page:
        figure = page.locator("figure", has_text="Slopes, channel-shared")
        figure.scroll_into_view_if_needed()
        compared = (
            "Learned slope of every layer from the first to the last, channel-shared: the "
            "paper's and ours"
        )
        expect(figure.locator("[role=graphics-document]")).to_have_attribute("aria-label", compared)
        figure.get_by_text("The numbers").click()
        cells = figure.locator("tbody tr").first.locator("th, td")
        expect(cells.first).to_have_text(
            "conv1"
        )  # the table is made after the click has been answered
        first = cells.all_inner_texts()
        assert first[:3] == ["conv1", "0.681", "0.5645 (0.4831 to 0.6459)"]


def test_every_chart_is_there_without_being_scrolled_to(browser: Browser, place: Path) -> None:
    """What a print needs."""
    with Visit(browser, place) as page:
        page.emulate_media(media="print")
        figures = page.locator("figure[data-chart]")
        expect(page.locator("figure[data-chart] svg.marks")).to_have_count(figures.count())
        for table in page.locator(".scroll").all():  # nothing is cut off at a table's side
            assert table.evaluate("each => getComputedStyle(each).overflowX") == "visible"
        expect(page.locator("#list tbody .run").first).to_be_visible()
        page.set_viewport_size({"width": SHEET_PX, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= SHEET_PX


def test_ticks_are_whole_epochs_each_once(browser: Browser, tmp_path: Path) -> None:
    short = altered(records.load(RECORDS / f"{PRELU}.json"), {"science.optim.epochs": 3})
    path = tmp_path / "index.html"
    path.write_text(make_page([Found(short, RECORDS / f"{PRELU}.json", tmp_path)], [], path))
    with Visit(browser, path) as page:
        expect(page.get_by_role("heading", name="Your runs")).to_be_visible()
        figure = page.locator("figure[data-chart]").first
        expect(figure.locator("svg.marks")).to_be_visible()
        assert figure.locator(".role-axis-label").first.locator("text").all_text_contents() == [
            "1",
            "2",
            "3",
        ]


@pytest.mark.parametrize("width", [1280, 360])
def test_names_of_thirty_layers_do_not_overlap(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    claim = next(each for each in claims() if each.name == "figure3")
    path = tmp_path / "index.html"
    found, answers = gather(RECORDS)[:1], [answer(claim, load_claims(RECORDS.parent / "claims"))]
    path.write_text(make_page(found, [], path, answers))
    with Visit(browser, path, viewport={"width": width, "height": 800}) as page:
        figure = page.locator("figure[data-chart]", has_text="30 layers")
        expect(figure.locator("svg.marks")).to_be_visible()
        labels = figure.locator(".role-axis-label").first.locator("text:not([opacity='0'])")
        boxes = sorted(
            (box["x"], box["x"] + box["width"])
            for each in labels.all()
            if (box := each.bounding_box())
        )
        assert len(boxes) >= 10
        assert all(
            right <= left + 2 for (_, right), (left, _) in pairwise(boxes)
        )  # a box is wider than its letters


def test_the_leaderboard_and_the_claims_are_narrowed_down(browser: Browser, tmp_path: Path) -> None:
    entries = {
        name: results(name, [10 + i] * 5) for i, name in enumerate(("relu", "prelu", "mish"))
    }
    ranked = document(SMALL, entries)
    judged = [answer(claim, []) for claim in claims() if claim.name in ("figure3", "table2")]
    path = tmp_path / "index.html"
    path.write_text(make_page(gather(RECORDS)[:1], [], path, judged, None, ranked))
    with Visit(browser, path) as page:
        board = page.locator("section", has=page.get_by_role("heading", name="Leaderboard"))
        expect(board.locator("tbody tr:visible")).to_have_count(9)  # over all, and on two tasks
        page.get_by_label("find entries").fill("mish")
        expect(board.locator("tbody tr:visible")).to_have_count(3)
        board.get_by_label("show").select_option("Quick tasks")
        expect(board.locator("tbody tr:visible")).to_have_count(1)
        expect(board.get_by_role("status")).to_have_text("1 of 9 lines")
        page.get_by_label("find claims").fill("stalls xavier")
        expect(page.locator(".claims li:visible")).to_have_count(1)
        assert_accessible(page)


def test_the_first_key_skips_to_the_content(browser: Browser, place: Path) -> None:
    with Visit(browser, place) as page:
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()


def hostile() -> list[Found]:
    """Two runs all of whose names are markup."""
    found = []
    for seed in (0, 1):
        first, second, third, fourth = PAYLOADS
        base = records.load(RECORDS / f"{PRELU}.json")
        changes = {
            "choices": {
                "experiment": first,
                "activation": second,
                "init": third,
                "data": second + first,
                "model": fourth,
            },
            "science": base.science | {"seed": seed, first: {second: third, "__proto__": fourth}},
            "provenance.git_sha": second,
            "provenance.data": third,
            "provenance.versions": {first: second},
            "protocols": {
                name: base.protocols["dense"].model_dump() for name in (*PAYLOADS, "__proto__")
            },
            "slopes": {name: base.slopes["conv1"].model_dump() for name in PAYLOADS},
            "warnings": list(PAYLOADS),
            "class_names": list(PAYLOADS),
        }
        record = altered(base, changes)
        found.append(Found(record, RECORDS / f"{record.run}.json"))
    return found


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    """The policy is switched off, so that it is the page that withstands; the library needs no eval
    either way."""
    path = tmp_path / "index.html"
    found = hostile()
    path.write_text(make_page(found, [], path))
    one, other = (each.record.run for each in found)
    fragment = f"#compare&a={one}&b={other}&run={one}"
    with Visit(browser, path, fragment, bypass_csp=True) as page:
        expect(page.locator("#comparison svg.marks")).to_have_count(3)
        see_everything(page)
        for figure in page.locator("figure details").all():
            figure.evaluate("details => { details.open = true }")
        box = page.locator("figure svg.marks").first.bounding_box()
        assert box
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        page.locator("figure svg.marks").first.hover(
            position={"x": box["width"] / 2, "y": box["height"] / 2}
        )
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, iframe, script:not([type]), svg[onload]").count() == 0
        for payload in PAYLOADS[:3]:
            assert payload in page.locator("#list").inner_text()
            assert payload in page.locator("dialog").text_content()


def test_ensembles_and_diverged_runs_are_shown_and_compared(
    browser: Browser, tmp_path: Path
) -> None:
    whole, other = (records.load_training(RECORDS / f"{name}.json") for name in (PRELU, RELU))
    gone = {
        "status": "diverged",
        "diverged": {"step": 7, "layer": "conv1"},
        "protocols": {},
        "slopes": {},
    }
    gone |= {"history": [whole.history[0] | {"train_loss": None}], "science.seed": 9}
    diverged = altered(whole, gone)
    together = ensemble(whole, other, choices={"experiment": None, "data": "digits", "debug": None})
    path = tmp_path / "index.html"
    found = [
        Found(record, RECORDS / f"{record.run}.json") for record in (whole, diverged, together)
    ]
    path.write_text(make_page(found, [whole], path))
    with Visit(browser, path, f"#compare&a={together.run}&b={diverged.run}") as page:
        expect(page.locator("#compare-status")).to_contain_text(
            f"A: {together.run}, B: {diverged.run}."
        )
        expect(page.locator("#comparison")).to_contain_text("No protocol has tested two of them.")
        assert column(page, 3) == ["1.78", "diverged", "1.78"]
        page.locator("#list .run", has_text=diverged.run).click()
        expect(page.locator("dialog")).to_contain_text('{"step":7,"layer":"conv1"}')
        expect(page.locator("dialog")).not_to_contain_text(
            "jsonnull"
        )  # what a run does not have leaves nothing behind
        page.keyboard.press("Escape")
        page.locator("#list .run", has_text=together.run).click()
        expect(page.locator("dialog pre")).to_have_text(together.command)


def test_the_policy_lets_nothing_in_or_out(browser: Browser, place: Path) -> None:
    visit = Visit(browser, place)
    tries = """() => {
        const met = [];
        document.addEventListener("securitypolicyviolation", (event) => met.push(event.effectiveDirective));
        document.body.append(Object.assign(new Image(), { src: "http://127.0.0.1:9/x.png" }));
        document.body.append(Object.assign(document.createElement("script"), { textContent: "window.hacked = 1" }));
        document.body.append(Object.assign(document.createElement("style"), { textContent: "body { color: red }" }));
        fetch("http://127.0.0.1:9/").catch(() => {});
        setTimeout(() => { try { eval("window.hacked = 1"); } catch { met.push("eval"); } });
        return new Promise((done) => setTimeout(() => done([met, window.hacked]), 200));
    }"""  # noqa: E501
    met, hacked = visit.page.evaluate(tries)
    visit.context.close()
    assert hacked is None
    assert {"img-src", "script-src-elem", "style-src-elem", "connect-src", "eval"} <= set(met)


def test_with_no_records_it_says_what_to_run(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(make_page([], [], path))
    with Visit(browser, path, viewport={"width": 360, "height": 700}) as page:
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert_accessible(page)


@pytest.mark.slow
def test_a_page_of_two_thousand_runs_stays_small(browser: Browser, tmp_path: Path) -> None:
    """Real records varied: other seeds, one answer in twenty turned, all curves and slopes
    moved."""
    draw = random.Random(0)
    known, path = gather(RECORDS), tmp_path / "index.html"
    found = [varied(known[seed % len(known)], seed, draw) for seed in range(100, 2100)]
    path.write_text(make_page(found, [each.record for each in found], path))
    assert path.stat().st_size < 5e6
    with Visit(browser, path) as page:
        expect(page.locator("#count")).to_have_text("2,000 runs; errors by ten_view")
        assert len(column(page, 1)) == 25
        page.locator("th[data-key=error] button").click()
        best = min(each.record.protocols["ten_view"].top1_error_pct for each in found)
        assert column(page, 3)[0] == f"{best:.2f}"
        see_everything(page)


def varied(found: Found, seed: int, draw: random.Random) -> Found:
    record = found.record.model_dump()
    record["science"]["seed"] = seed
    record["run"] = run_id(record["science"])
    for name, tested in record["protocols"].items():
        bits, n = found.record.protocols[name].is_correct(), tested["num_images"]
        for image in draw.sample(range(n), n // 20):
            bits[image] = not bits[image]
        number = int("".join("01"[bit] for bit in bits) + "0" * (-n % 4), 2)
        right = sum(bits)
        tested |= {"correct_mask": f"{number:0{-(-n // 4)}x}", "top1_correct": right}
        tested["top1_error_pct"] = 100 * (n - right) / n
    for numbers in (*record["history"], *record["slopes"].values()):
        for key, value in numbers.items():
            if isinstance(value, float):
                numbers[key] = value * draw.uniform(0.95, 1.05)
    return Found(parsed(record), found.path.with_name(f"{record['run']}.json"))
