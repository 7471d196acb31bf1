"""What shortcuts cost: how often a cheaper comparison of two entries names another winner than the
full protocol, from the same runs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame, cut, isna

from rectifiers.analysis.output import MEASURED, new_figure
from rectifiers.benchmark.definition import benchmark
from rectifiers.benchmark.entries import GUESSING_PCT, EntryResults, RunResult, search, val_errors
from rectifiers.benchmark.ranking import REFERENCE, difference, ranked_tasks
from rectifiers.results.documents import Table

ONE_SEED = "one seed"
LEAST_FAVOURABLE = 10  # pairs in the table of pairs
SIZES = {"up to 1": 1.0, "1 to 3": 3.0, "3 to 10": 10.0, "above 10": np.inf}  # points, up to

PAGE = """# What shortcuts cost

Made by `python scripts/benchmark.py leaderboard` from the entries in `results/benchmark/`; do not
edit.

How often does a cheaper comparison of two activations name the wrong winner? The closer they are,
the more often: where their difference in points of error is {size}, in {least} to {most} % of all
comparisons. A coin toss does in 50 %.

We take each pair of entries, without the controls, that differ on a task: the 95 % interval of
their difference, paired by seed, excludes 0. The winner by the full protocol counts as the right
one. (Of pairs that do not differ, one in twenty passes this test, and its winner is chance.)

![Share of comparisons that name the other winner](benchmark/shortcuts.svg)
"""

MEANINGS = """The shortcuts compare two entries by

- **{one}**: one run of each, with the same seed, at the learning rate that five seeds chose.
- **one seed, search included**: one run of each. The search for its learning rate uses only the
  same seed.
- **ReLU's rate for all**: five runs of each, at the learning rate that was chosen for ReLU.
- **one seed, on val**: as "{one}", but by the validation error after the last epoch.
- **one seed, best epoch on val**: as "{one}, on val", but by the lowest error of any epoch. Papers
  often take the best epoch on test images. We test only once, so validation images stand for them.
  They are fewer, which adds noise: compare this row with "one seed, on val".
"""
VERDICTS = """## In claims

Of the first 84 claims, 17 changed their verdict during development, in
[23 changes](../docs/explanation/statistics.md#verdicts-that-changed): 9 came with a learning rate
for each arm, 8 with a test split that no choice had used, 3 with other tests, 2 with another
processor and 1 with other seeds.
"""


class Judged(NamedTuple):
    """How often, in percent, a shortcut names another winner of a pair on a task. A draw counts
    half."""

    shortcut: str
    task: str
    pair: tuple[str, str]
    points: float  # of error by which the pair differs
    wrong_pct: float


def shortcuts(entries: Mapping[str, EntryResults], tasks: Sequence[str]) -> list[Judged]:
    """Judge the shortcuts by the runs that are there, on the pairs of entries that differ."""
    judged = []
    for task in tasks:
        complete = [entry for entry in entries.values() if entry.gap(task) is None]
        rate = entries[REFERENCE].rate(task)
        errors = {entry.entry: _errors(entry, task, rate) for entry in complete}
        for one, other in combinations(complete, 2):
            mean = difference(one, other, task)
            if not mean.excludes_zero:
                continue

            pair = (one.entry, other.entry)
            first, second = (errors[name] for name in pair)
            for name in (name for name in first if name in second):
                gaps = np.sign(mean.mean) * (first[name] - second[name])
                wrong = (1 - np.sign(gaps)) / 2  # 1 where the other wins, 1/2 for a draw
                wrong_pct = 100 * float(np.mean(wrong))
                judged.append(Judged(name, task, pair, abs(mean.mean), wrong_pct))
    return judged


def _errors(results: EntryResults, task: str, relu_rate: float | None) -> dict[str, np.ndarray]:
    """Return by shortcut the errors of which it would compare one, in percent."""
    seeds, judged = benchmark().search_seeds, results.judged(task)
    rates, _ = search(task, results.runs)
    val = val_errors(task, rates, results.runs)
    assert val is not None
    by_run = {(run.rate, run.seed): run.error_pct for run in results.runs if run.task == task}
    # of each seed of the search, the rate that is best by this seed alone
    best = np.where(np.isnan(val), np.inf, val).argmin(0)

    def of_judged(error: Callable[[RunResult], float | None]) -> np.ndarray:
        found = [error(run) for run in judged]
        return np.array([GUESSING_PCT if value is None else value for value in found])

    errors = {
        ONE_SEED: of_judged(lambda run: run.test_error_pct),
        "one seed, search included": np.array(
            [by_run[rates[i], seed] for i, seed in zip(best, seeds, strict=True)]
        ),
        "one seed, on val": of_judged(lambda run: run.val_error_pct),
        "one seed, best epoch on val": of_judged(lambda run: run.least_val_error_pct),
    }
    if relu_rate in rates:
        at_rate = np.mean([by_run[relu_rate, seed] for seed in seeds])
        errors["ReLU's rate for all"] = np.array([at_rate])
    return errors


def page(entries: Mapping[str, EntryResults]) -> tuple[str, Figure] | None:
    """Return SHORTCUTS.md and its figure, of the quick tasks; None where no two entries differ."""
    placed = {name: e for name, e in entries.items() if name not in benchmark().controls}
    tasks = ranked_tasks(entries, "quick")
    judged = shortcuts(placed, tasks) if tasks else []
    if not judged:
        return None
    frame = DataFrame(judged)
    pairs = frame[frame.shortcut == ONE_SEED]

    frame["size"] = cut(frame.points, [0, *SIZES.values()], labels=list(SIZES))
    by_size = frame.pivot_table("wrong_pct", "shortcut", "size", observed=True)
    by_size = by_size.sort_values(by_size.columns[0], ascending=False, kind="stable")
    sizes = frame["size"][pairs.index]
    closest = by_size.columns[0]
    by_size.columns = [f"{size} ({sum(sizes == size)} pairs)" for size in by_size]

    by_task = frame.pivot_table("wrong_pct", "shortcut", "task")
    by_task = by_task.reindex(index=by_size.index, columns=tasks)
    by_task.columns = [f"{task} ({sum(pairs.task == task)} pairs)" for task in tasks]

    close = by_size.iloc[:, 0]
    parts = [
        PAGE.format(size=closest, least=f"{close.min():.0f}", most=f"{close.max():.0f}"),
        _share_table("By size of the difference", by_size, MEANINGS.format(one=ONE_SEED)),
        _share_table("By task", by_task),
        _pair_table(entries, pairs),
        VERDICTS,
    ]
    return "\n".join(parts), _figure(by_size)


def _pair_table(entries: Mapping[str, EntryResults], pairs: DataFrame) -> str:
    """Return the pairs for which one seed names the other winner most often."""
    cells = []
    worst = pairs.sort_values("wrong_pct", ascending=False, kind="stable")
    for row in worst.head(LEAST_FAVOURABLE).itertuples():
        mean = difference(entries[row.pair[0]], entries[row.pair[1]], row.task)
        cells.append([*row.pair, row.task, mean.signed(), f"{row.wrong_pct:.0f}"])
    head = ["entry", "other", "task", "entry minus other, points (95 % CI)", "wrong, %"]
    note = "The pairs for which one seed is wrong most often:"
    return Table("By pair", 2, head, cells, note).markdown()


def _share_table(title: str, shares: DataFrame, note: str = "") -> str:
    """Return a table of shares of comparisons, in percent, a shortcut a row."""
    cells = shares.map(lambda share: "-" if isna(share) else f"{share:.1f}")
    rows = [[str(name), *row] for name, row in zip(cells.index, cells.values, strict=True)]
    head = ["names the other winner, %", *shares.columns]
    return Table(title, 2, head, rows, note.rstrip()).markdown()


def _figure(shares: DataFrame) -> Figure:
    """Draw a panel for each size of difference, with a bar for each shortcut."""
    figure = new_figure(8, 2.6)
    panels = figure.subplots(1, len(shares.columns), sharex=True, sharey=True, squeeze=False)[0]
    for axes, size in zip(panels, shares.columns, strict=True):
        axes.barh(range(len(shares)), shares[size], color=MEASURED, height=0.6)
        axes.set_title(f"difference {size}".replace(" (", "\n("), fontsize=9)
    panels[0].set_yticks(range(len(shares)), list(shares.index))
    panels[0].invert_yaxis()
    figure.supxlabel("comparisons that name the other winner, %", fontsize=10)
    return figure
