"""The page in a real browser: it does what it says, asks for nothing, and shows a hostile record as text."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from conftest import ROOT
from made_up import altered, ensemble, parsed, result
from rectifiers.evaluation.scores import Scores, scores_path, write
from rectifiers.results.comparison import compare
from rectifiers.results.listing import Found, gather
from rectifiers.results.page.render import page as make_page
from rectifiers.results.statistics import error_interval_pct, mcnemar
from rectifiers.results.tables import load
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium; make browser installs it"),
]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

RECORDS = ROOT / "results" / "records"
PRELU, RELU = "6620acccce0a", "1fd564cecf6d"  # both on digits, with seed 0
CLASSES = [f"<i>{digit}</i>" for digit in range(10)]
PAYLOADS = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '"><svg onload=window.hacked=1>',
    "{{ 7 * 7 }}\N{LINE SEPARATOR}javascript:window.hacked=1",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=60_000)  # other work may have the cores
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the committed records; two of them are runs that are here, with scores that are made to fit."""
    folder = tmp_path_factory.mktemp("page")
    labels = np.arange(450) % 10
    for name in (PRELU, RELU):
        record = records.load(RECORDS / f"{name}.json")
        right = np.array(record.protocols["ten_view"].is_correct())
        scores = np.eye(10, dtype=np.float32)[np.where(right, labels, (labels + 1) % 10)]
        kept = Scores(scores, labels, record.provenance.data, "{}")
        write(scores_path(folder / "runs" / name, "ten_view"), kept)
        record = altered(record, {"protocols.ten_view.scores": kept.digest(), "class_names": CLASSES})
        records.write(folder / "runs" / name / "record.json", record)
    path = folder / "results" / "report" / "index.html"
    path.parent.mkdir(parents=True)
    found = [*gather(folder / "runs"), *(each for each in gather(RECORDS) if each.record.run not in (PRELU, RELU))]
    path.write_text(make_page(found, load(RECORDS), path))
    return path


class Visit:
    """A page that is open, and all that went wrong or out while it was."""

    def __init__(self, browser: Browser, path: Path, fragment: str = "", **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda said: self.faults.append(said.text))
        self.page.on("pageerror", lambda fault: self.faults.append(str(fault)))
        self.page.on("request", lambda asked: asked.url.startswith(path.as_uri()) or self.faults.append(asked.url))
        self.page.goto(path.as_uri() + fragment)

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.context.close()
        if kind is None:
            assert self.faults == []


def column(page: Page, number: int) -> list[str]:
    return [text.split("\n")[0] for text in page.locator(f"#list tbody tr > :nth-child({number})").all_inner_texts()]


def cells(page: Page, title: str) -> list[list[str]]:
    """The rows of the table of that heading in the comparison."""
    box = page.locator("#comparison div", has=page.locator(f":is(h3, h4):has-text('{title}')")).last
    return [row.locator("th, td").all_inner_texts() for row in box.locator("tbody tr").all()]


def see_everything(page: Page) -> None:
    for figure in page.locator("figure[data-chart]").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator("svg.marks")).to_be_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_it_loads_clean_and_draws_all_charts_within_any_width(
    browser: Browser, place: Path, scheme: Any, width: int
) -> None:
    fragment = f"#compare&a={PRELU}&b={RELU}"
    with Visit(browser, place, fragment, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
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


def assert_accessible(page: Page) -> None:
    """No rule of axe is violated: contrast, names, roles, the order of headings, landmarks."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


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
    with Visit(browser, place, "#runs&protocol=constructor&sort=toString&page=-3&run=x&a=__proto__&b=%3Cb%3E") as page:
        assert len(column(page, 1)) == 25
        expect(page.locator("#compare-status")).to_have_text("No run, or more than one, is named __proto__, <b>.")


def test_two_runs_are_compared_with_the_statistics_of_the_tables(browser: Browser, place: Path) -> None:
    one, other = (records.load(RECORDS / f"{name}.json") for name in (PRELU, RELU))
    compared = compare(one, other)
    with Visit(browser, place, "#runs&data=digits&find=table2") as page:
        page.get_by_role("button", name=f"Compare run {PRELU} as A").click()
        page.get_by_label("B", exact=True).fill(RELU[:4])
        page.keyboard.press("Enter")
        expect(page.locator("#comparison svg.marks")).to_have_count(3)
        assert f"a={PRELU}&b={RELU}" in page.evaluate("location.hash")
        keys = {row[0]: row[1:] for row in cells(page, "Configuration")}
        wanted = compared["configuration"] | compared["choices"]
        assert keys == {key: [str(value) for value in pair] for key, pair in wanted.items()}
        rows = {row[0]: row[1:] for row in cells(page, "Results")}
        assert rows.keys() == compared["results"].keys()
        for name, result in compared["results"].items():
            for side in (0, 1):
                low, high = result["interval_pct"][side]
                assert rows[name][side].split("\n") == [
                    f"{result['top1_error_pct'][side]:.2f}",
                    f"{low:.2f} to {high:.2f}",
                ]
            assert rows[name][2].replace("−", "-") == f"{result['difference']:+.2f}"
            pair = result["paired"]
            assert rows[name][5] == f"{pair['only_one_right']} / {pair['only_other_right']}"
            assert float(rows[name][6]) == pytest.approx(pair["p"], rel=0.06)  # printed to two digits


def test_classes_and_images_where_scores_were_kept(browser: Browser, place: Path) -> None:
    both = [records.load(RECORDS / f"{n}.json").protocols["ten_view"].is_correct() for n in (PRELU, RELU)]
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
            assert [float(ours), float(theirs)] == [pytest.approx(error, abs=0.005) for error in errors]
        page.locator("#images-protocol").select_option("dense")  # no scores of it were kept, but the masks were
        assert {tuple(row[2:]) for row in cells(page, "by index in the test split")} <= {
            ("right", "wrong"), ("wrong", "right")
        }  # fmt: skip


def test_the_scripts_statistics_are_those_of_python(browser: Browser, place: Path) -> None:
    """The functions of script/numbers.js by themselves, far beyond what committed records reach."""
    source = (ROOT / "src/rectifiers/results/page/script/numbers.js").read_text()
    cases = [(0, 0), (0, 1), (3, 7), (500, 400), (12_000, 12_001), (9_000, 12_000)]
    with Visit(browser, place) as page:
        z = page.evaluate("JSON.parse(document.getElementById('rows').textContent).z")
        values = page.evaluate(f"([cases, z]) => {{ {source}; return cases.map(([a, b]) => [mcnemar(a, b), "
                               "wilson(a, a + b + 1, z)]) }", [cases, z])  # fmt: skip
    for (first, second), (p, interval) in zip(cases, values, strict=True):
        exact = mcnemar([True] * first + [False] * second, [False] * first + [True] * second)[2]
        assert p == pytest.approx(exact, rel=1e-8)
        assert interval == pytest.approx(error_interval_pct(first, first + second + 1), rel=1e-12)


def test_a_number_leads_to_its_runs_their_command_record_and_provenance(browser: Browser, place: Path) -> None:
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
        for value in (record.provenance.git_sha, record.provenance.data, record.provenance.lock,
                      record.provenance.machine.cpu, record.provenance.versions["torch"]):  # fmt: skip
            assert value in text
        page.keyboard.press("Escape")
        expect(dialog).not_to_be_visible()
        page.wait_for_function("!location.hash.includes('run=')")
        expect(button).to_be_focused()


def test_an_own_run_and_the_committed_record_of_its_name_are_both_there(browser: Browser, tmp_path: Path) -> None:
    record = records.load(RECORDS / f"{PRELU}.json")
    changes = {"protocols.ten_view": result(441, 450), "codes": ["0123456789ab"]}
    records.write(tmp_path / "runs" / PRELU / "record.json", altered(record, changes))
    path = tmp_path / "index.html"
    path.write_text(make_page(gather(RECORDS, tmp_path / "runs"), load(RECORDS), path))
    committed = f"{PRELU} (committed)"
    with Visit(browser, path, f"#runs&find={PRELU}") as page:
        assert column(page, 1) == [PRELU, committed]
        assert column(page, 3) == ["2.00", "1.56"]
        assert column(page, 13) == ["0123456789ab", "68d58b6e9806"]
        dialog = page.locator("dialog")
        for name, code, source in (
            (PRELU, "0123456789ab", tmp_path / "runs" / PRELU / "record.json"),
            (committed, "68d58b6e9806", RECORDS / f"{PRELU}.json"),
        ):
            page.get_by_role("button", name=name, exact=True).click()
            expect(dialog.get_by_text(f"Code {code} on Intel(R) Xeon(R) Processor, 1 thread.")).to_be_visible()
            assert Path(dialog.locator("a").first.evaluate("link => link.href").removeprefix("file://")) == source
            page.keyboard.press("Escape")
        page.get_by_role("button", name="5 runs of Table 2 on digits").last.click()  # the tables' are the committed
        expect(dialog.get_by_role("button", name=PRELU)).to_have_text(committed)
        page.keyboard.press("Escape")
        page.get_by_label("A", exact=True).fill(PRELU[:5])
        page.get_by_label("B", exact=True).fill(committed)
        page.keyboard.press("Enter")
        keys = {row[0]: row[1:] for row in cells(page, "Provenance")}
        assert [code.strip('[]"') for code in keys["codes"]] == ["0123456789ab", "68d58b6e9806"]


def test_a_chart_has_its_numbers_as_a_table(browser: Browser, place: Path) -> None:
    with Visit(browser, place) as page:
        figure = page.locator("figure", has_text="Slopes, channel-shared")
        figure.scroll_into_view_if_needed()
        compared = "Learned slope of every layer from the first to the last, channel-shared: the paper's and ours"
        expect(figure.locator("[role=graphics-document]")).to_have_attribute("aria-label", compared)
        figure.get_by_text("The numbers").click()
        cells = figure.locator("tbody tr").first.locator("th, td")
        expect(cells.first).to_have_text("conv1")  # the table is made after the click has been answered
        first = cells.all_inner_texts()
        assert first[:3] == ["conv1", "0.681", "0.6368 (0.5694 to 0.7041)"]


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
            "choices": {"experiment": first, "activation": second, "init": third, "data": second + first,
                        "model": fourth},
            "science": base.science | {"seed": seed, first: {second: third, "__proto__": fourth}},
            "provenance.git_sha": second,
            "provenance.data": third,
            "provenance.versions": {first: second},
            "protocols": {name: base.protocols["dense"].model_dump() for name in (*PAYLOADS, "__proto__")},
            "slopes": {name: base.slopes["conv1"].model_dump() for name in PAYLOADS},
            "warnings": list(PAYLOADS),
            "class_names": list(PAYLOADS),
        }  # fmt: skip
        record = altered(base, changes)
        found.append(Found(record, RECORDS / f"{record.run}.json"))
    return found


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    """The policy is switched off, so that it is the page that withstands; the library needs no eval either way."""
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
        page.locator("figure svg.marks").first.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, iframe, script:not([type]), svg[onload]").count() == 0
        for payload in PAYLOADS[:3]:
            assert payload in page.locator("#list").inner_text()
            assert payload in page.locator("dialog").text_content()


def test_ensembles_and_diverged_runs_are_shown_and_compared(browser: Browser, tmp_path: Path) -> None:
    whole, other = (records.load_training(RECORDS / f"{name}.json") for name in (PRELU, RELU))
    gone = {"status": "diverged", "diverged": {"step": 7, "layer": "conv1"}, "protocols": {}, "slopes": {}}
    gone |= {"history": [whole.history[0] | {"train_loss": None}], "science.seed": 9}
    diverged = altered(whole, gone)
    together = ensemble(whole, other, choices={"experiment": None, "data": "digits", "debug": None})
    path = tmp_path / "index.html"
    found = [Found(record, RECORDS / f"{record.run}.json") for record in (whole, diverged, together)]
    path.write_text(make_page(found, [whole], path))
    with Visit(browser, path, f"#compare&a={together.run}&b={diverged.run}") as page:
        expect(page.locator("#compare-status")).to_contain_text(f"A: {together.run}, B: {diverged.run}.")
        expect(page.locator("#comparison")).to_contain_text("No protocol has tested both.")
        assert column(page, 3) == ["1.56", "diverged", "1.56"]
        page.locator("#list .run", has_text=diverged.run).click()
        expect(page.locator("dialog")).to_contain_text('{"step":7,"layer":"conv1"}')
        expect(page.locator("dialog")).not_to_contain_text("jsonnull")  # what a run does not have leaves nothing behind
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
    }"""
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
    """Real records varied: other seeds, one answer in twenty turned, all curves and slopes moved."""
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
