"""What the documentation site has beyond docs/: hooks of MkDocs, named in mkdocs.yml.

The README is its first page, and the documents of results/ and of the project are pages too. Links
are written as the files lie in the repository, where they work for a reader of it, and are changed
here to the addresses of the pages. Formulas between dollar signs become MathML, which browsers show
without a script, and `<!-- help: program -->` becomes what the program prints about itself."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from posixpath import relpath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "src/rectifiers/explorer.html": "explorer.html",
}
FENCED = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
ATTRIBUTE = re.compile(r'(src|srcset|href)="([^"]+)"')
HELP = re.compile(r"<!-- help: (.*?) -->")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def pages_from_elsewhere() -> dict[Path, str]:
    """Return the files that lie outside of docs/ and belong to the site, with their places in
    it."""
    places = {ROOT / name: place for name, place in ELSEWHERE.items()}
    results = ROOT / "results"
    places |= {path: f"results/{path.name.lower()}" for path in results.glob("*.md")}
    figures = (results / "figures" / "claims").glob("*.svg")
    return places | {path: path.relative_to(ROOT).as_posix() for path in figures}


def help_text(found: re.Match[str]) -> str:
    """Return what a program prints about itself, as a block."""
    done = subprocess.run(
        [sys.executable, *found[1].split(), "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    return f"```text\n{done.stdout.rstrip()}\n```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, place in pages_from_elsewhere().items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    places = {Path(file.abs_src_path).resolve(): file for file in files if file.abs_src_path}
    folder = Path(page.file.abs_src_path or "").resolve().parent

    def target(link: str) -> tuple[File | None, bool]:
        """Return the page or file of the site that a link leads to, and whether it leads to a file
        at all."""
        path = (folder / link.partition("#")[0]).resolve()
        return places.get(path), path.exists()

    def in_text(found: re.Match[str]) -> str:
        words, link = found.groups()
        if ":" in link or link.startswith("#"):
            return found[0]
        file, exists = target(link)
        if file is None:
            return (
                words if exists else found[0]
            )  # of the repository alone; what is nowhere, MkDocs reports
        _, hash_sign, anchor = link.partition("#")
        return f"[{words}]({relpath(file.src_uri, Path(page.file.src_uri).parent.as_posix())}{hash_sign}{anchor})"  # noqa: E501

    def in_markup(found: re.Match[str]) -> str:
        file, _ = target(found[2])
        return found[0] if file is None else f'{found[1]}="{file.url_relative_to(page.file)}"'

    parts = FENCED.split(HELP.sub(help_text, markdown))
    parts[::2] = [ATTRIBUTE.sub(in_markup, LINK.sub(in_text, part)) for part in parts[::2]]
    return "".join(parts)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def as_mathml(found: re.Match[str]) -> str:
        return convert(
            html.unescape(found[2]).strip(), display="block" if found[1] == "div" else "inline"
        )

    return FORMULA.sub(as_mathml, content)
