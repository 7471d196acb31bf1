"""`results/benchmark/LEADERBOARD.md`: the entries by task and over all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rectifiers.results.benchmark.definition import Benchmark, Size, Task
from rectifiers.results.benchmark.entries import BASELINES, EntryResults
from rectifiers.results.benchmark.ranking import Ranked, rank
from rectifiers.results.benchmark.standing import Standing, incomplete, paired, scores, standing
from rectifiers.results.layout import Table

HEAD = """# The rectifier benchmark

Made by `python scripts/benchmark.py leaderboard` from the results in `results/benchmark/`; do not edit. Every entry has
the learning rate that its own search on validation images found best, by the same grid and budget for all;
[docs/benchmark.md](../../docs/benchmark.md) says how, and what places and intervals mean. Entries that share a place are
ties: nothing here tells them apart. A name leads to the entry's card; [CARDS.md](CARDS.md) lists them. `identity` is a
control: no activation at all, in networks that are linear but for max pooling. Where it stands high, a task rewards
what trains soon, and not what can express more.

"""  # noqa: E501
TITLES: dict[Size, str] = {"quick": "Quick tasks", "full": "Full tasks"}


@dataclass(frozen=True)
class Board:
    """The entries on all tasks of a size: the ranked, and by name of the others what is missing.

    standings: by entry and task. scores: the same where an entry has all of a task's runs, ranked
    or not."""

    size: Size
    ranked: Sequence[Ranked]
    standings: Mapping[str, Mapping[str, Standing]]
    scores: Mapping[str, Mapping[str, Sequence[float]]]
    unranked: Mapping[str, Sequence[str]]


def board(benchmark: Benchmark, entries: Mapping[str, EntryResults], size: Size) -> Board:
    """Return where all entries stand on the tasks of a size; those that have no run of it are left
    out."""
    tasks = benchmark.of_size(size)
    standings = {
        name: {task: standing(benchmark, task, results) for task in tasks}
        for name, results in entries.items()
        if any(task in tasks for task in (*results.refused, *(run.task for run in results.runs)))
    }
    unranked = {
        name: found for name, own in standings.items() if (found := incomplete(own.values()))
    }
    complete = {
        name: {task: scores(benchmark, each) for task, each in own.items() if each.is_complete}
        for name, own in standings.items()
    }
    ranked = rank({name: own for name, own in complete.items() if name not in unranked})
    return Board(size, ranked, standings, complete, unranked)


def render_markdown(
    benchmark: Benchmark, entries: Mapping[str, EntryResults], with_card: Collection[str] = ()
) -> str:
    """Return the whole page, on which the names of entries with a card lead to it."""
    parts = [
        f"{HEAD}Benchmark {benchmark.version} ({benchmark.hash}), {benchmark.seeds} seeds per "
        "task.\n"
    ]
    made = [_linked(table, with_card) for table in document(benchmark, entries)]
    return "\n".join([*parts, *(table.markdown() for table in made)])


def _linked(table: Table, with_card: Collection[str]) -> Table:
    def cell(head: str, shown: str) -> str:
        has_card = head == "entry" and shown in with_card
        return f"[{shown}](../cards/{shown}.md)" if has_card else shown

    lines = [[*map(cell, table.head, line)] for line in table.rows]
    return replace(table, rows=lines)


def document(benchmark: Benchmark, entries: Mapping[str, EntryResults]) -> list[Table]:
    """Return every table in the order of LEADERBOARD.md."""
    return [
        table for size in TITLES for table in tables(benchmark, board(benchmark, entries, size))
    ]


def tables(benchmark: Benchmark, found: Board) -> list[Table]:
    """Return the tables of a board: over all, one per task, and what is not ranked; none where
    nobody took part."""
    if not found.standings:
        return []
    made = [overall(found)]
    made += [_of_task(name, task, found) for name, task in benchmark.of_size(found.size).items()]
    if found.unranked:
        head = ("entry", "incomplete, and not ranked")
        lines = [[name, "; ".join(reasons)] for name, reasons in found.unranked.items()]
        made.append(Table("Not ranked", 3, head, lines))
    return made


def place(own: Ranked, ranked: Sequence[Ranked]) -> str:
    """Return the place of an entry, with a sign where others share it."""
    return f"{own.place}{' =' * (sum(other.place == own.place for other in ranked) > 1)}"


def overall(found: Board) -> Table:
    """Return the table over all tasks."""
    lines = []
    for each in found.ranked:
        cells = [place(each, found.ranked), each.entry, str(each.mean_rank), str(each.improvement)]
        lines.append([*cells, str(len(each.beats))])
    head = (
        "place",
        "entry",
        "mean rank (95 %)",
        "probability of improvement over the others (95 %)",
        "entries it beats",
    )
    return Table(TITLES[found.size], 2, head, lines)


def _of_task(name: str, task: Task, found: Board) -> Table:
    """Return the table of one task, the best mean first, each entry paired with the baselines seed
    by seed.

    An entry that is not ranked for want of another task stands in it.
    """
    lines = []
    here = {entry: own[name] for entry, own in found.scores.items() if name in own}
    for entry in sorted(here, key=lambda entry: (fmean(here[entry]), entry)):
        own, where = here[entry], found.standings[entry][name]
        beside = [
            difference(task, own, here[base]) if base in here and base != entry else "-"
            for base in BASELINES
        ]
        lines.append([entry, shown(task, own), f"{where.rate:g}", *beside])
    measure = "error on test, %" if task.reach is None else f"training loss below {task.reach:g}"
    note = "" if lines else "No entry is complete."
    head = ("entry", measure, "rate", *(f"minus {base} (95 %)" for base in BASELINES))
    return Table(f"{name}: {task.title}", 3, head, lines, note)


def shown(task: Task, values: Sequence[float]) -> str:
    """Return scores as a reader wants them: the mean error, or how many seeds trained."""
    if task.reach is not None:
        return f"{sum(value == 0 for value in values)} of {len(values)} seeds"
    return f"{fmean(values):.2f}"


def difference(task: Task, own: Sequence[float], other: Sequence[float]) -> str:
    """Return the mean paired difference with its interval, or of a task that counts seeds how many
    more train."""
    if task.reach is not None:
        return f"{sum(value == 0 for value in own) - sum(value == 0 for value in other):+d} seeds"
    mean = paired(own, other)
    if mean.low is None or mean.high is None:
        return f"{mean.mean:+.2f}"
    return f"{mean.mean:+.2f} ({mean.low:+.2f} to {mean.high:+.2f})"
