"""The documentation site: it builds without a warning, needs nothing from elsewhere, and its links
lead somewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from conftest import ROOT

LOADED = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
}
LINKED = {*LOADED, ("a", "href")}
WRITTEN = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("results/**/*.md"),
    *ROOT.glob(".github/**/*.md"),
]


class Markup(HTMLParser):
    """The ids of a page, and its links as (tag, attribute, address)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if (tag, name) in LINKED and value:
                self.links.append((tag, name, value))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Markup]:
    """Every page of the site by its path."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {path: Markup(path.read_text()) for path in place.rglob("*.html")}


@pytest.mark.process
def test_the_site_loads_nothing_from_elsewhere(site: dict[Path, Markup]) -> None:
    (root,) = (path.parent for path in site if path.name == "index.html")
    for page, markup in site.items():
        loaded = [value for tag, name, value in markup.links if (tag, name) in LOADED]
        assert loaded
        assert not [
            address for address in loaded if urlsplit(address).scheme or address.startswith("//")
        ], page
    styles = "".join(path.read_text() for path in root.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()[\s'\"]*(?:https?:)?//", styles)


@pytest.mark.process
def test_every_link_of_the_site_leads_to_a_page_and_to_a_place_on_it(
    site: dict[Path, Markup],
) -> None:
    broken = []
    for page, markup in site.items():
        if page.name == "404.html":  # its addresses begin at the server's root
            continue
        for _, _, address in markup.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            if not path.is_file() or (path in site and anchor and anchor not in site[path].ids):
                broken.append(f"{page.name}: {address}")
    assert not broken


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_of_the_documents_lead_to_files_of_the_repository(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text)
    local = [
        link
        for pair in links
        for link in pair
        if link and not urlsplit(link).scheme and not link.startswith("#")
    ]
    assert not [link for link in local if not (path.parent / link.partition("#")[0]).exists()]
