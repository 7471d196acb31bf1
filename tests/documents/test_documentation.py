"""The documentation: the site builds without a warning and needs nothing from elsewhere, and links
in the repository lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from conftest import ROOT

LOADED = re.compile(
    r"""<(?:script|img|source|iframe|link)\b[^>]*?\s(?:src|srcset|href)=["']?([^"'\s>]+)"""
)
WRITTEN = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("results/**/*.md"),
    *ROOT.glob(".github/**/*.md"),
]


@pytest.mark.process  # it runs the notebooks
def test_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """A warning, such as of a link that leads to no page or no place on it, is an error."""
    options = ("--quiet", "--fail-on-warning", "--keep-going", "-d", str(tmp_path / "doctrees"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-c", "docs", ".", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert loaded or page.name == "explorer.html"  # which holds all that it needs
        assert not [address for address in loaded if re.match(r"(\w+:)?//", address)], page
        files = [re.split("[?#]", address)[0] for address in loaded if ":" not in address]
        assert not [file for file in files if not (page.parent / file).exists()], page
    styles = "".join(path.read_text() for path in (tmp_path / "site").rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()[\s'\"]*(?:https?:)?//", styles)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_of_the_repository(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text)
    local = [
        link
        for pair in links
        for link in pair
        if link and not urlsplit(link).scheme and not link.startswith("#")
    ]
    assert not [link for link in local if not (path.parent / link.partition("#")[0]).exists()]
