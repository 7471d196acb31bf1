"""The page in a browser, for tests: what a visitor does and sees."""

import shutil
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from conftest import ROOT

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

RECORDS = ROOT / "results" / "records"
PRELU, RELU, XAVIER = (
    "e6eb31a64f10",
    "0c255a4692ea",
    "3d5a28ef472d",
)  # on digits, with seed 0; XAVIER of a ReLU
CLASSES = [f"<i>{digit}</i>" for digit in range(10)]


class Visit:
    """A page that is open, and all that went wrong or out while it was."""

    def __init__(self, browser: Browser, path: Path, fragment: str = "", **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "request",
            lambda asked: asked.url.startswith(path.as_uri()) or self.errors.append(asked.url),
        )
        self.page.goto(path.as_uri() + fragment)

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.context.close()
        if kind is None:
            assert self.errors == []


def column(page: Page, number: int) -> list[str]:
    return [
        text.split("\n")[0]
        for text in page.locator(f"#list tbody tr > :nth-child({number})").all_inner_texts()
    ]


def cells(page: Page, title: str) -> list[list[str]]:
    """The rows of the table of that heading in the comparison."""
    box = page.locator("#comparison div", has=page.locator(f":is(h3, h4):has-text('{title}')")).last
    return [row.locator("th, td").all_inner_texts() for row in box.locator("tbody tr").all()]


def see_everything(page: Page) -> None:
    for figure in page.locator("figure[data-chart]").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator("svg.marks")).to_be_visible()


def assert_accessible(page: Page) -> None:
    """No rule of axe is violated: contrast, names, roles, the order of headings, landmarks."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
