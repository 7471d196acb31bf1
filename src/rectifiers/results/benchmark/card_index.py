"""`results/benchmark/CARDS.md`: the cards, a line each with the verdict over all tasks."""

from collections.abc import Iterable, Mapping

from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.benchmark.entries import BASELINES, EntryResults
from rectifiers.results.benchmark.leaderboard import board, place
from rectifiers.results.benchmark.verdict import NAMES, in_short
from rectifiers.results.layout import markdown

HEAD = """# Cards

Made by `python scripts/benchmark.py leaderboard` from `results/cards/` and `results/benchmark/`; do not edit. A card
says what an entry of [the leaderboard](LEADERBOARD.md) is worth: theory, the start, what trains, how well, and what
it costs. The place is that on the quick tasks. Beside it stands the probability that a run of the entry beats one of
ReLU or PReLU on the tasks that both have, with its 95 % interval.

"""  # noqa: E501


def render_markdown(
    benchmark: Benchmark, names: Iterable[str], entries: Mapping[str, EntryResults]
) -> str:
    """Return the page for the cards of these entries, in the order of their places, those without
    one last."""
    ranked = board(benchmark, entries, "quick").ranked
    places = {each.entry: place(each, ranked) for each in ranked}
    ordered = sorted(
        names, key=lambda name: (list(places).index(name) if name in places else len(places), name)
    )
    rows = [
        (
            f"[{name}](../cards/{name}.md)",
            places.get(name, "-"),
            *(in_short(benchmark, base, entries[name], entries) or "-" for base in BASELINES),
        )
        for name in ordered
    ]
    head = ("entry", "place", *(f"against {NAMES[base]}" for base in BASELINES))
    return HEAD + (markdown(head, rows) if rows else "There is none yet.\n")
