"""The page: one HTML file that needs nothing else, made from records."""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rectifiers.results.claims import Answer
from rectifiers.results.layout import Estimate, Table
from rectifiers.results.listing import Found
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.page.run_columns import details, rows
from rectifiers.results.page.sections import SECTIONS, PageData
from rectifiers.results.page.strips import strip
from rectifiers.results.tables import document
from rectifiers.results.wording import compared, counts, described, effect_of, scale, verdict_of
from rectifiers.runs.record import Record

HERE = Path(str(files(__package__)))
SCRIPTS = (
    "dom",
    "narrow",
    "numbers",
    "data",
    "state",
    "charts",
    "sources",
    "list",
    "compare",
    "main",
)
# A script's text ends at "</script", wherever it stands; U+2028 and U+2029 end a line of
# JavaScript.
ESCAPES = {
    ord(char): f"\\u{ord(char):04x}" for char in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"
}


def page(
    found: Sequence[Found],
    in_tables: Sequence[Record],
    path: Path,
    answers: Sequence[Answer] = (),
    floor: NumericalFloor | None = None,
    leaderboard: Sequence[Table] = (),
) -> str:
    """Return the page of all runs `found`, the tables of the records `in_tables`, and what answers
    the claims.

    path: where it will lie, which links to records depend on.
    floor: how far rounding alone moves a result, where it was measured.
    leaderboard: the benchmark's tables.
    """
    data = PageData(found, document(in_tables), answers, floor, leaderboard)
    sections = [section for make in SECTIONS if (section := make(data))] if found else []
    charts = [chart for section in sections for chart in section.charts]
    style = (HERE / "page.css").read_text()
    script = "\n".join((HERE / "script" / f"{name}.js").read_text() for name in SCRIPTS)
    library = _library() if found else ""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined
    )
    named = {each.record.run for each in found}
    environment.filters["listed"] = lambda runs: [run for run in runs if run in named]
    environment.tests["estimate"] = lambda value: isinstance(value, Estimate)
    environment.globals |= {
        "compared": compared,
        "counts": counts,
        "described": described,
        "effect_of": effect_of,
        "scale": scale,
        "strip": strip,
        "verdict_of": verdict_of,
    }
    return environment.get_template("page.html.j2").render(
        sections=sections,
        charts=charts,
        found=found,
        facts=_facts(found),
        policy=_policy(style, script, library),
        style=Markup(style),
        script=Markup(script),
        library=Markup(library),
        rows=Markup(script_json(rows(found, path))),
        packed=packed({"charts": [asdict(chart) for chart in charts], **details(found)}),
    )


def _facts(found: Sequence[Found]) -> dict[str, int]:
    """What the head of the page says of its contents."""
    records = [each.record for each in found]
    return {
        "committed runs": sum(each.folder is None for each in found),
        "runs of yours": sum(each.folder is not None for each in found),
        "data sets": len({record.choices.get("data") for record in records}),
        "test results": sum(len(record.protocols) for record in records),
        "diverged": sum(record.status == "diverged" for record in records),
    }


def _library() -> str:
    """Vega-Embed with Vega, Vega-Lite and Vega's interpreter, which needs no `eval`, as the wheel
    holds them."""
    from vl_convert import javascript_bundle  # here and not above: 90 MB that only this needs

    return javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _policy(style: str, *scripts: str) -> str:
    """Nothing is fetched, and nothing runs but what stands here, by its hash."""
    hashes = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; base-uri "
        "'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def script_json(value: Any) -> str:
    """Return JSON that can stand in a <script>, whatever its strings hold. Only strings can hold
    what is escaped."""
    return _json(value).translate(ESCAPES)


def packed(value: Any) -> str:
    """Return JSON, gzipped, in base64: what the page unpacks on demand, at a third of the size."""
    return base64.b64encode(gzip.compress(_json(value).encode(), mtime=0)).decode()
