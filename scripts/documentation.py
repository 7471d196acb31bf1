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
FENCED = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
ATTRIBUTE = re.compile(r'(src|srcset|href)="([^"]+)"')
HELP = re.compile(r"<!-- help: (.*?) -->")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that lie outside of docs/ and belong to the site."""
    places = {ROOT / "README.md": "index.md"}
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        places[ROOT / f"{name}.md"] = f"project/{name.lower()}.md"
    places[ROOT / "src" / "rectifiers" / "explorer.html"] = "explorer.html"
    for path in (ROOT / "results").glob("*.md"):
        places[path] = f"results/{path.name.lower()}"
    for pattern in ("claims/*.md", "figures/claims/*.svg"):
        for path in (ROOT / "results").glob(pattern):
            places[path] = path.relative_to(ROOT).as_posix()
    for path, place in places.items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def help_text(command: re.Match[str]) -> str:
    """Return what a program prints about itself, as a block."""
    arguments = [sys.executable, *command[1].split(), "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    text = subprocess.check_output(arguments, cwd=ROOT, text=True, env=environment)
    return f"```text\n{text.rstrip()}\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the programs' help, and let links lead to the site's pages."""
    pages = {Path(file.abs_src_path).resolve(): file for file in files if file.abs_src_path}
    folder = Path(page.file.abs_src_path or "").resolve().parent

    def in_text(link: re.Match[str]) -> str:
        words, address = link.groups()
        if ":" in address or address.startswith("#"):
            return link[0]
        name, hash_sign, anchor = address.partition("#")
        path = (folder / name).resolve()
        if path not in pages:  # in the repository alone; what is nowhere, MkDocs reports
            return words if path.exists() else link[0]
        place = relpath(pages[path].src_uri, Path(page.file.src_uri).parent.as_posix())
        return f"[{words}]({place}{hash_sign}{anchor})"

    def in_markup(attribute: re.Match[str]) -> str:
        file = pages.get((folder / attribute[2].partition("#")[0]).resolve())
        return f'{attribute[1]}="{file.url_relative_to(page.file)}"' if file else attribute[0]

    parts = FENCED.split(HELP.sub(help_text, markdown))
    parts[::2] = [ATTRIBUTE.sub(in_markup, LINK.sub(in_text, part)) for part in parts[::2]]
    return "".join(parts)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML."""

    def as_mathml(formula: re.Match[str]) -> str:
        display = "block" if formula[1] == "div" else "inline"
        return convert(html.unescape(formula[2]).strip(), display=display)

    return FORMULA.sub(as_mathml, content)
