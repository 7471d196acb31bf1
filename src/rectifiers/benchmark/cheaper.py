"""What shortcuts cost: how often a cheaper comparison of two entries names another winner than the
full protocol, from the same runs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import ceil
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame, cut, isna

from rectifiers.analysis.output import MEASURED, new_figure
from rectifiers.benchmark.definition import benchmark
from rectifiers.benchmark.entries import GUESSING_PCT, EntryResults, RunResult, search, val_errors
from rectifiers.benchmark.ranking import REFERENCE, difference, ranked_tasks
from rectifiers.results.documents import markdown, render
from rectifiers.results.statistics import mean_of

ONE_SEED = "one seed"
OF_JUDGED = (ONE_SEED, "one seed, on val", "one seed, best epoch on val")  # by a judged seed
LEAST_FAVOURABLE = 10  # pairs in the table of pairs
CLOSE = 1.0  # points of error between two entries, at most
SIZES = {"up to 1": CLOSE, "1 to 3": 3.0, "3 to 10": 10.0, "above 10": np.inf}  # points, up to
DRAWS = 2000  # of entries
POWER = 0.8
SMALLEST = (0.5, 1.0, 2.0, 3.0)  # points of error that are to be found


class Judged(NamedTuple):
    """How often, in percent, a shortcut names another winner of a pair on a task. A draw counts
    half.

    points: of error by which the pair differs. std: of the differences of its judged seeds.
    is_decided: whether the interval of the difference excludes 0."""

    shortcut: str
    task: str
    pair: tuple[str, str]
    points: float
    std: float
    is_decided: bool
    wrong_pct: float


def shortcuts(entries: Mapping[str, EntryResults], tasks: Sequence[str]) -> list[Judged]:
    """Judge the shortcuts by the runs that are there, on all pairs of entries."""
    judged = []
    for task in tasks:
        complete = [entry for entry in entries.values() if entry.gap(task) is None]
        rate = entries[REFERENCE].rate(task)
        errors = {entry.entry: _errors(entry, task, rate) for entry in complete}
        for one, other in combinations(complete, 2):
            first, second = errors[one.entry], errors[other.entry]
            gaps = first[ONE_SEED] - second[ONE_SEED]
            is_decided = mean_of(gaps.tolist()).excludes_zero
            of_others = (gaps.sum() - gaps) / (len(gaps) - 1)
            for name in (name for name in first if name in second):
                right = of_others if name in OF_JUDGED else gaps.mean()
                agrees = np.sign(first[name] - second[name]) * np.sign(right)
                row = Judged(
                    name,
                    task,
                    (one.entry, other.entry),
                    abs(float(gaps.mean())),
                    float(gaps.std(ddof=1)),
                    is_decided,
                    100 * float(np.mean((1 - agrees) / 2)),  # 1 where the other wins, 1/2: a draw
                )
                judged.append(row)
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
    """Return SHORTCUTS.md and its figure, of the quick tasks; None where no two entries are
    close."""
    placed = {name: e for name, e in entries.items() if name not in benchmark().controls}
    tasks = ranked_tasks(entries, "quick")
    judged = shortcuts(placed, tasks) if tasks else []
    if not judged:
        return None
    frame = DataFrame(judged)
    pairs = frame[frame.shortcut == ONE_SEED]
    close = pairs[pairs.points <= CLOSE]
    if close.empty:
        return None

    frame["size"] = cut(frame.points, [0, *SIZES.values()], labels=list(SIZES), include_lowest=True)
    by_size = frame.pivot_table("wrong_pct", "shortcut", "size", observed=True)
    by_size = by_size.sort_values(by_size.columns[0], ascending=False, kind="stable")
    sizes = frame["size"][pairs.index]
    by_size.columns = [f"{size} ({sum(sizes == size)} pairs)" for size in by_size]

    by_task = frame.pivot_table("wrong_pct", "shortcut", "task")
    by_task = by_task.reindex(index=by_size.index, columns=tasks)
    by_task.columns = [f"{task} ({sum(pairs.task == task)} pairs)" for task in tasks]

    text = render(
        "shortcuts",
        wrong=close.wrong_pct.mean(),
        interval=resampled(close),
        decided=100 * close.is_decided.mean(),
        by_size=_share_table(by_size),
        by_task=_share_table(by_task),
        seeds=_seeds_table(close, tasks),
        pairs=_pair_table(entries, pairs[pairs.is_decided]),
    )
    return text, _figure(by_size)


def resampled(pairs: DataFrame) -> tuple[float, float]:
    """Return the 95 % interval of the mean share of wrong comparisons over draws of entries: a pair
    counts as often as both its entries were drawn."""
    names = sorted({name for pair in pairs.pair for name in pair})
    first, second = (
        np.array(list(map(names.index, side))) for side in zip(*pairs.pair, strict=True)
    )
    counts = np.random.default_rng(0).multinomial(len(names), [1 / len(names)] * len(names), DRAWS)
    weights = counts[:, first] * counts[:, second]
    shares = (weights @ pairs.wrong_pct) / np.maximum(weights.sum(1), 1)
    low, high = np.quantile(shares[weights.any(1)], [0.025, 0.975])
    return float(low), float(high)


def seeds_for(effect: float) -> int:
    """Return the fewest seeds with which Student's test at 5 % finds an effect, in standard
    deviations, in four of five cases."""
    from scipy import stats  # here and not above: its import takes a second

    counts = np.arange(2, 1 + ceil(2 + (4 / effect) ** 2))
    found = stats.nct.sf(stats.t.ppf(0.975, counts - 1), counts - 1, effect * np.sqrt(counts))
    return int(counts[np.argmax(found >= POWER)])


def _seeds_table(close: DataFrame, tasks: Sequence[str]) -> str:
    """Return how many seeds find a difference of so many points."""
    rows = []
    for task in tasks:
        std = close[close.task == task]["std"].median()
        if std > 0:  # not NaN, either
            needed = [str(seeds_for(points / std)) for points in SMALLEST]
            rows.append([task, f"{std:.2f}", *needed])
    head = ["task", "std, points", *(f"for {points:g}" for points in SMALLEST)]
    return markdown(head, rows)


def _pair_table(entries: Mapping[str, EntryResults], pairs: DataFrame) -> str:
    """Return the pairs for which one seed names the other winner most often, each entry once."""
    cells: list[list[str]] = []
    shown: set[str] = set()
    for row in pairs.sort_values("wrong_pct", ascending=False, kind="stable").itertuples():
        if shown.isdisjoint(row.pair) and len(cells) < LEAST_FAVOURABLE:
            shown.update(row.pair)
            mean = difference(entries[row.pair[0]], entries[row.pair[1]], row.task)
            cells.append([*row.pair, row.task, mean.signed(), f"{row.wrong_pct:.0f}"])
    head = ["entry", "other", "task", "entry minus other, points (95 % CI)", "wrong, %"]
    return markdown(head, cells)


def _share_table(shares: DataFrame) -> str:
    """Return a table of shares of comparisons, in percent, a shortcut a row."""
    cells = shares.map(lambda share: "-" if isna(share) else f"{share:.1f}")
    rows = [[str(name), *row] for name, row in zip(cells.index, cells.values, strict=True)]
    return markdown(["names another winner, %", *shares.columns], rows)


def _figure(shares: DataFrame) -> Figure:
    """Draw a panel for each size of difference, with a bar for each shortcut."""
    figure = new_figure(8, 2.6)
    panels = figure.subplots(1, len(shares.columns), sharex=True, sharey=True, squeeze=False)[0]
    for axes, size in zip(panels, shares.columns, strict=True):
        axes.barh(range(len(shares)), shares[size], color=MEASURED, height=0.6)
        axes.set_title(f"difference {size}".replace(" (", "\n("), fontsize=9)
    panels[0].set_yticks(range(len(shares)), list(shares.index))
    panels[0].invert_yaxis()
    figure.supxlabel("comparisons that name another winner, %", fontsize=10)
    return figure
