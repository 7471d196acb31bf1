"""Documents that are committed and made from records: tables as Markdown, figures as SVG, blocks of
a page; written, or compared with what they would be."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from rectifiers.results.statistics import mean_of
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, atomic_file, write_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

TEXT = CONF.parent / "results" / "text"  # sentences about results, and the pages' templates
END = "<!-- end -->"
BARE = re.compile(r"[-+]?\d[\d,.]*|-?")  # a cell that is a number, or has none
NUMBER = re.compile(r"[-+]?\d[\d,.]*([ <].*)?|-?")  # a cell that begins with one
QUOTE = re.compile(r"(?<!`)`(?!`)")  # around code
ELEMENT = re.compile(r"<(?=[a-zA-Z/!?])(?!br>)")
MARKS = re.compile(r"[\\`*\[\]|]")  # of code, emphasis, links, images and cells
BORDERING = re.compile(r"(?<!\w)_|_(?!\w)")  # an underscore that begins or ends an emphasis


def estimate(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """Return the mean of values over runs with its interval and n, as in `34.00 (31.52 to 36.48,
    n = 3)`."""
    if not values:
        return "-"
    mean, style = mean_of(values), f"{sign}.{digits}f"
    spread = "" if mean.n == 1 else f"{mean.low:{style}} to {mean.high:{style}}, "
    return f"{mean.mean:{style}} ({spread}n = {mean.n})"


@dataclass(frozen=True)
class Table:
    """A titled table below a note; `level` is that of its heading. Without a head it is its note
    alone."""

    title: str
    level: int
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""

    def markdown(self) -> str:
        """Return heading, note and table."""
        parts = [f"{'#' * self.level} {without_html(self.title)}\n"]
        if self.note:
            parts.append(f"{without_html(self.note)}\n")
        if self.head:
            parts.append(markdown(self.head, self.rows))
        return "\n".join(parts)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Columns of numbers are aligned to the right, those of words to the left."""
    rows = [list(map(_plain, row)) for row in rows]
    columns = list(zip(*rows, strict=True)) or [()] * len(head)
    rule = ""
    for cells in columns:
        pattern = NUMBER if rule else BARE  # the first column names the rows
        rule += "---:|" if all(map(pattern.fullmatch, cells)) else "---|"
    lines = [f"| {' | '.join(head)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _plain(cell: str) -> str:
    """Escape HTML, and underscores at the borders of words, as in `_target_`, outside of code."""
    parts = QUOTE.split(printable(cell))  # every second one is code
    if len(parts) % 2 == 0:
        parts = ["`".join(parts)]
    return "`".join(
        part if i % 2 else BORDERING.sub(r"\_", without_html(part)) for i, part in enumerate(parts)
    )


def listed(words: Sequence[object]) -> str:
    """Return "a, b and c"."""
    *first, last = map(str, words or [""])
    return f"{', '.join(first)} and {last}" if first else last


def literal(text: str) -> str:
    """Return a text from elsewhere as Markdown that shows it as it is."""
    return MARKS.sub(lambda mark: f"\\{mark[0]}", without_html(printable(text)))


def without_html(text: str) -> str:
    """Return a Markdown text in which no element but a line break begins."""
    return ELEMENT.sub("&lt;", text)


def render(name: str, **values: object) -> str:
    """Return the page of a template of `results/text/`."""
    return _templates().get_template(f"{name}.md.j2").render(values)


def sentence(text: str, **values: object) -> str:
    """Return a text with these values; raise an InputError where it is no template, or names what
    there is not."""
    from jinja2 import TemplateError

    try:
        return _templates().from_string(text).render(values)
    except (TemplateError, TypeError) as error:
        raise InputError(f"'{text}' cannot be filled in: {error}") from error


@functools.cache
def _templates() -> "Environment":
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(  # texts of results/ may be anybody's
        loader=FileSystemLoader(TEXT),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


def filled(document: str, name: str, text: str) -> str:
    """Return `document` with `text` between `<!-- name -->` and the next `<!-- end -->`."""
    before, marker, after = document.partition(f"<!-- {name} -->\n")
    _, end, rest = after.partition(END)
    if not (marker and end):
        raise InputError(f"a document has no block <!-- {name} --> with an {END}; give it one")
    return f"{before}{marker}{text}{end}{rest}"


def write_svg(figure: "Figure", path: Path, name: str, description: str | None = None) -> None:
    """Write a figure as an SVG, the same bytes for the same figure and name."""
    import matplotlib as mpl

    # the ids of an SVG are made when it is written
    with atomic_file(path) as file, mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        metadata = {"Date": None, "Creator": None, "Description": description}
        figure.savefig(file, format="svg", metadata=metadata)


def shows(path: Path, description: str) -> bool:
    """Return whether the SVG at `path` is there, and was written with this description."""
    return path.is_file() and f">{escape(description)}<".encode() in path.read_bytes()


class Drawing(NamedTuple):
    """A figure that is drawn only where its SVG does not hold this description of its numbers."""

    description: str
    draw: "Callable[[], Figure]"


def write_or_check(
    texts: Mapping[Path, str],
    check: bool,
    command: str,
    drawings: Mapping[Path, Drawing] | None = None,
    existing: Iterable[Path] = (),
) -> None:
    """Write the files that are out of date, or with `check` refuse them, and those of the existing
    ones that are neither texts nor drawings; `command` is what writes them. Bytes are compared:
    reading text would accept any line's end, and fail where it is not UTF-8."""
    drawings = drawings or {}
    changed = [p for p, text in texts.items() if not p.is_file() or p.read_bytes() != text.encode()]
    redrawn = [p for p, drawing in drawings.items() if not shows(p, drawing.description)]
    if check:
        if left := sorted(set(existing) - texts.keys() - drawings.keys()):
            raise InputError(f"{', '.join(map(str, left))} belongs to nothing here; remove it")
        if named := ", ".join(map(str, [*changed, *redrawn])):
            raise InputError(f"not what the records say: {named}; run {command}")
        return
    for path in changed:
        write_text(path, texts[path])
    for path in redrawn:
        description, draw = drawings[path]
        write_svg(draw(), path, path.stem, description)
