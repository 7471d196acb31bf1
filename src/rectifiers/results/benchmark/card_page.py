"""A card as Markdown and as one HTML file, from its chapters."""

from collections.abc import Sequence
from pathlib import Path

from rectifiers.results.benchmark.card import Card, Chapter
from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.layout import markdown

HERE = Path(__file__).parent


def facts(benchmark: Benchmark, card: Card) -> str:
    """Return where the card comes from, in one line."""
    typed = " ".join(card.overrides) or "activation=relu"
    return (
        f"Benchmark {benchmark.version} ({card.benchmark}), `python scripts/benchmark.py "
        f"{typed}`, code {card.code} on "
        f"{card.machine}."
    )


def render_markdown(benchmark: Benchmark, card: Card, chapters: Sequence[Chapter]) -> str:
    """Return the card as a document of Markdown."""
    parts = [
        f"# {card.entry}",
        f"{facts(benchmark, card)} [The benchmark](../../docs/benchmark.md) says what the "
        "chapters mean.",
        "![The function, a deep chain at the start, what trains, and the "
        f"errors]({card.entry}.svg)",
    ]
    for chapter in chapters:
        parts.append(f"## {chapter.title}")
        parts += chapter.text
        for table in chapter.tables:
            parts.append(markdown(table.head, table.rows).rstrip("\n"))
    return "\n\n".join(parts) + "\n"


def render_html(benchmark: Benchmark, card: Card, chapters: Sequence[Chapter], svg: str) -> str:
    """Return the card as one HTML file with its figure, which asks for nothing from anywhere."""
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )  # here and not above: only this needs it
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined
    )
    figure = Markup(svg[svg.index("<svg") :])  # drawn here, from numbers
    return environment.get_template("card.html.j2").render(
        card=card, facts=facts(benchmark, card), chapters=chapters, figure=figure
    )
