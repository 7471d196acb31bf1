"""A card as Markdown, from its chapters."""

from collections.abc import Sequence

from rectifiers.results.benchmark.card import Card, Chapter
from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.layout import markdown


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
            rows = ([str(cell) for cell in line.cells] for line in table.lines)
            parts.append(markdown(table.head, rows).rstrip("\n"))
    return "\n\n".join(parts) + "\n"
