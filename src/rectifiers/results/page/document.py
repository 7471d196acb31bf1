"""The page: one HTML file that needs nothing else, made from records."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rectifiers.results.claims import Answer
from rectifiers.results.layout import Estimate
from rectifiers.results.listing import Found
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.page.blocks import Chart, Folded, Material, Part
from rectifiers.results.page.embedding import packed, script_json
from rectifiers.results.page.runs import details, rows
from rectifiers.results.page.sections import SECTIONS
from rectifiers.results.tables import document
from rectifiers.runs.record import Record

HERE = Path(str(files(__package__)))
SCRIPTS = ("dom", "numbers", "data", "state", "charts", "sources", "list", "compare", "main")


def page(
    found: Sequence[Found],
    in_tables: Sequence[Record],
    path: Path,
    answers: Sequence[Answer] = (),
    floor: NumericalFloor | None = None,
) -> str:
    """Return the page of all runs `found`, the tables of the records `in_tables`, and what answers the claims.

    path: where it will lie, which links to records depend on.
    floor: how far rounding alone moves a result, where it was measured.
    """
    material = Material(found, document(in_tables), answers, floor) if found else Material([], [])
    blocks = [block for block in (section(material) for section in SECTIONS) if block] if found else []
    charts = [chart for block in blocks for part in block.parts for chart in _charts(part)]
    style, script, library = _read("page.css"), _script(), _library() if found else ""
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.tests |= {"estimate": _is(Estimate), "chart": _is(Chart), "folded": _is(Folded)}
    return environment.get_template("page.html.j2").render(
        blocks=blocks,
        charts=charts,
        found=found,
        facts=_facts(found),
        policy=_policy(style, script, library),
        style=Markup(style),
        script=Markup(script),
        library=Markup(library),
        rows=Markup(script_json(rows(found, path))),
        packed=packed({"charts": [chart.as_dict() for chart in charts], **details(found)}),
    )


def _charts(part: Part) -> list[Chart]:
    """The charts of a part, in the order in which the page has them."""
    if isinstance(part, Folded):
        return [chart for each in part.parts for chart in _charts(each)]
    return [part] if isinstance(part, Chart) else []


def _is(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _facts(found: Sequence[Found]) -> dict[str, int]:
    """What the head of the page says of its contents."""
    records = [each.record for each in found]
    return {
        "runs": len(records),
        "data sets": len({record.choices.get("data") for record in records}),
        "test results": sum(len(record.protocols) for record in records),
        "diverged": sum(record.status == "diverged" for record in records),
    }


def _read(name: str) -> str:
    return (HERE / name).read_text()


def _script() -> str:
    return "\n".join(_read(f"script/{name}.js") for name in SCRIPTS)


def _library() -> str:
    """Vega-Embed with Vega, Vega-Lite and Vega's interpreter, which needs no `eval`, as the wheel holds them."""
    from vl_convert import javascript_bundle  # here and not above: 90 MB that only this needs

    return javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _policy(style: str, *scripts: str) -> str:
    """Nothing is fetched, and nothing runs but what stands here, by its hash."""
    hashes = " ".join(_hash(script) for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
