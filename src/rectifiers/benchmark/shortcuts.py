"""What shortcuts cost: how often a cheaper comparison of two entries names another winner than the
full protocol, from the same runs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from rectifiers.analysis.output import MAPS, MEASURED, new_figure
from rectifiers.benchmark.definition import benchmark
from rectifiers.benchmark.entries import GUESSING_PCT, EntryResults, RunResult, search, val_errors
from rectifiers.benchmark.ranking import REFERENCE, difference, ranked_tasks
from rectifiers.results.documents import Table

ONE_SEED = "one seed"
LEAST_FAVOURABLE = 10  # pairs in the table of pairs

PAGE = """# What shortcuts cost

Made by `python scripts/benchmark.py leaderboard` from the entries in `results/benchmark/`; do not
edit.

How often does a cheaper comparison of two activations name the wrong winner? In {least} to {most} %
of all comparisons; for close pairs, one seed does in up to {worst} %. We take each pair of entries
that differ on a task: the 95 % interval of their difference, paired by seed, excludes 0. The winner
by the full protocol counts as the right one. A coin toss names the other one in 50 % of all cases.

![Share of comparisons that name the other winner](benchmark/shortcuts.svg)
"""

MEANINGS = """The shortcuts compare two entries by

- **{one}**: one run of each, at the learning rate that five seeds chose.
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
            for name in first:
                if name in second:
                    gaps = np.sign(mean.mean) * (first[name] - second[name])
                    wrong = 100 * float(np.mean((1 - np.sign(gaps)) / 2))
                    judged.append(Judged(name, task, pair, wrong))
    return judged


def _errors(results: EntryResults, task: str, relu_rate: float | None) -> dict[str, np.ndarray]:
    """Return by shortcut the errors of which it would compare one, in percent."""
    seeds, judged = benchmark().search_seeds, results.judged(task)
    rates, _ = search(task, results.runs)
    val = val_errors(task, rates, results.runs)
    assert val is not None
    by_run = {(run.rate, run.seed): run.error_pct for run in results.runs if run.task == task}
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
    by_task = frame.pivot_table("wrong_pct", "shortcut", "task").reindex(columns=tasks)
    shortcut = frame.groupby("shortcut", sort=False).wrong_pct
    summary = shortcut.agg(["mean", "count"]).sort_values("mean", ascending=False, kind="stable")
    rows = []
    for name, share, number in summary.itertuples():
        shares = [f"{by_task.loc[name, task]:.1f}" for task in tasks]
        rows.append([name, f"{share:.1f}", *shares, str(number)])
    head = ["shortcut", "names the other winner, %", *tasks, "pairs"]
    task_table = Table("By task", 2, head, rows, MEANINGS.format(one=ONE_SEED).rstrip())

    cells = []
    pairs = [row for row in judged if row.shortcut == ONE_SEED]
    for row in sorted(pairs, key=lambda row: -row.wrong_pct)[:LEAST_FAVOURABLE]:
        mean = difference(entries[row.pair[0]], entries[row.pair[1]], row.task)
        cells.append([*row.pair, row.task, mean.signed(), f"{row.wrong_pct:.0f}"])
    head = ["entry", "other", "task", "entry minus other, points (95 % CI)", "wrong, %"]
    note = "The pairs for which one seed is wrong most often:"
    pair_table = Table("By pair", 2, head, cells, note)
    shares = summary["mean"]
    worst = max(row.wrong_pct for row in pairs)
    top = PAGE.format(least=f"{shares.min():.0f}", most=f"{shares.max():.0f}", worst=f"{worst:.0f}")
    text = "\n".join([top, task_table.markdown(), pair_table.markdown(), VERDICTS])
    return text, _figure(summary["mean"], by_task)


def _figure(shares: Series, by_task: DataFrame) -> Figure:
    """Draw a bar for each shortcut, and a dot for each of its tasks."""
    figure = new_figure(8, 3.2)
    axes = figure.subplots()
    for y, (name, share) in enumerate(shares.items()):
        axes.barh(y, share, color=MEASURED, alpha=0.35, height=0.6)
        for wrong in by_task.loc[name]:
            axes.plot(wrong, y, "o", ms=4, color=MAPS)
    axes.set_yticks(range(len(shares)), list(shares.index))
    axes.invert_yaxis()
    axes.set_xlabel("comparisons that name the other winner, % (dots: one task)")
    return figure
