"""Sphinx: `make docs` builds the site into site/, of pages that open without a server or a network.

The source folder is the repository, so a link in a Markdown file works there and on the site. The
README is the first page, and docs/toctree.md the navigation. Three comments in the pages are filled
in: `<!-- help: program -->` by what the program prints about itself, `<!-- fields: class -->` by
the fields of a schema, and `<!-- options: group -->` by the options of a configuration group."""

import html
import inspect
import json
import logging
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from jupyter_client.manager import KernelManager
from latex2mathml.converter import convert
from myst_nb import sphinx_ext
from pydantic import BaseModel
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticUndefined
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.writers.html5 import HTML5Translator

from rectifiers.runs.provenance import code_fingerprint

ROOT = Path(__file__).parents[1]
PAGES = ("docs", "results")  # the folders that hold pages

project, author, copyright = "rectifiers", "the rectifiers authors", "the rectifiers authors"
root_doc = "README"
include_patterns = ["*.md", "docs/**", "results/*.md", "results/claims/*/page.md"]
exclude_patterns = [
    *(path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in PAGES),
    "docs/toctree.md",
]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
highlight_language = "text"
default_role = "literal"
smartquotes_action = "D"  # dashes alone: quotes are code

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
# A notebook runs again when it or any source of the package changes.
nb_execution_cache_path = str(ROOT / ".cache" / "jupyter" / code_fingerprint())
nb_execution_raise_on_error = True
nb_execution_timeout = 300
# An unencrypted kernel warns of being overheard, and its client announces every notebook.
KernelManager.transport_encryption.default_value = "auto"
logging.getLogger("traitlets").setLevel(logging.WARNING)
sphinx_ext.OUTPUT_FOLDER = ".cache/jupyter_execute"  # beside the site; by default in the checkout
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # nothing is loaded from elsewhere

autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 80

html_theme = "furo"
html_title = "rectifiers"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["../src/rectifiers/explorer.html"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False}

# A picture that follows the reader's system, and two that follow the site's own switch.
PICTURE = (
    r'<picture>.*?srcset="(?P<dark>.*?)".*?alt="(?P<alt>.*?)" src="(?P<light>.*?)".*?</picture>'
)
IMAGES = "\n\n".join(
    f"```{{image}} \\g<{page}>\n:alt: \\g<alt>\n:class: only-{page}\n```"
    for page in ("light", "dark")
)


def help_text(comment: re.Match[str]) -> str:
    """Return what a program prints about itself, as a block."""
    arguments = [sys.executable, *comment[1].split(), "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    text = subprocess.check_output(arguments, cwd=ROOT, text=True, env=environment)
    return f"```text\n{text.rstrip()}\n```"


def escaped(words: str) -> str:
    """Return a text as a cell of a table in Markdown."""
    parts = re.split(r"(`.*?`)", " ".join(words.split()).replace("|", r"\|"))
    parts[::2] = [re.sub(r"([*_<$])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def fields_table(comment: re.Match[str]) -> str:
    """Return a table of a dataclass or a pydantic class: its keys, their types and
    defaults, and what they say."""
    section = pkgutil.resolve_name(comment[1])
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    if not issubclass(section, BaseModel):
        section = dataclass(section, frozen=True)
    for field, info in section.__pydantic_fields__.items():
        owner = next(base for base in section.__mro__ if field in base.__annotations__)
        analyzer = ModuleAnalyzer.for_module(owner.__module__)
        place = (owner.__name__, field)
        meaning = " ".join(analyzer.find_attr_docs().get(place, ()))
        if not meaning and isinstance(info.annotation, type) and info.annotation.__doc__:
            meaning = info.annotation.__doc__ if issubclass(info.annotation, BaseModel) else ""
        kind = analyzer.annotations[place].replace("|", "\\|")
        kind = re.sub(r"Annotated\[(.*?), (?:Range|Field)\((.*?)\)\]", r"\1 (\2)", kind)
        known = info.default is not PydanticUndefined
        default = json.dumps(info.default, default=str).strip('"') if known else ""
        rows.append(f"| `{info.alias or field}` | `{kind}` | {default} | {escaped(meaning)} |")
    return "\n".join(rows)


def options_table(comment: re.Match[str]) -> str:
    """Return a table of a group's options: the heads of their files, or else their functions'."""
    rows = ["| option | what it is |", "|---|---|"]
    for path in sorted((ROOT / "conf" / comment[1]).glob("*.yaml")):
        text = path.read_text().removeprefix("# @package _global_\n")
        head = re.match(r"(# .*\n)+", text)
        target = re.search(r"^ *_target_: (\S+) *(?:# (.*))?", text, flags=re.MULTILINE)
        if head:
            words = head[0].replace("\n# ", " ").removeprefix("# ")
        else:
            assert target, path
            doc = inspect.getdoc(pkgutil.resolve_name(target[1])) or ""
            words = " ".join(filter(None, [doc.partition("\n\n")[0], target[2]]))
        rows.append(f"| `{path.stem}` | {escaped(words)} |")
    return "\n".join(rows)


def fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill in what a page's comments ask for."""
    text = re.sub(r"<!-- help: (.*?) -->", help_text, source[0])
    text = re.sub(r"<!-- options: (.*?) -->", options_table, text)
    source[0] = re.sub(r"<!-- fields: (.*?) -->", fields_table, text)
    if docname.startswith("results/claims/"):  # results/CLAIMS leads to them
        source[0] = f"---\norphan: true\n---\n{source[0]}"
    source[0] = re.sub(PICTURE, IMAGES, source[0], flags=re.DOTALL)
    if docname == root_doc:
        source[0] += (ROOT / "docs" / "toctree.md").read_text()


def list_arguments(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Let the lines `name: meaning` of a docstring be a list of its arguments or fields."""
    names = set(getattr(obj, "__annotations__", ()))
    if inspect.isroutine(obj) or inspect.isclass(obj):
        names |= inspect.signature(obj).parameters.keys()
    text = "\n".join(lines)
    for argument in sorted(names):
        text = re.sub(rf"^{argument}: ", f"\n:param {argument}: ", text, flags=re.MULTILINE)
    lines[:] = text.split("\n")


def complete_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Let the navigation lead to files of the site that are no pages, give its captions a level as
    headings, and let a keyboard scroll what is wider than its frame."""
    if tree := context.get("furo_navigation_tree"):
        tree = tree.replace('role="heading"', 'role="heading" aria-level="2"')
        context["furo_navigation_tree"] = re.sub(
            r'class="reference external" href="site://(.*?)"',
            lambda link: f'class="reference internal" href="{context["pathto"](link[1], 1)}"',
            tree,
        )
    if "body" in context:
        scrolls = r'(<pre|<div class="table-wrapper[^"]*")(?=[ >])'
        context["body"] = re.sub(scrolls, r'\1 tabindex="0"', context["body"])


def open_explorer(app: Sphinx, doctree: nodes.document) -> None:
    """Let links to the explorer open it, where other files that are no pages are downloads."""
    for link in doctree.findall(download_reference):
        if link["reftarget"].endswith("explorer.html"):
            up = "../" * app.env.docname.count("/")
            link.replace_self(nodes.reference("", "", *link.children, refuri=f"{up}explorer.html"))


def visit_math(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    self.body.append(convert(html.unescape(node.astext()).strip(), display=display))
    raise nodes.SkipNode


def name_first_page(app: Sphinx, error: Exception | None) -> None:
    """Open the site at its first page, and show the explorer's link to it."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(app.outdir / f"{root_doc}.html", app.outdir / "index.html")
        explorer = app.outdir / "explorer.html"
        text = explorer.read_text()
        explorer.write_text(text.replace('<p id="documentation" hidden>', '<p id="documentation">'))


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-docstring", list_arguments)
    app.connect("doctree-read", open_explorer)
    app.connect("html-page-context", complete_page, priority=900)  # after the theme
    app.connect("build-finished", name_first_page)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
