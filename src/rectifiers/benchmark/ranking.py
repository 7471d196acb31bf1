"""From scores to places: paired differences, probabilities of improvement, and the leaderboard.

After Agarwal et al. 2021 (rliable): the probability that a run of one entry beats a run of another
is averaged over tasks, and its interval comes from resampling seeds within every task. The tasks
stay as they are: an interval speaks of these tasks, not of all that there could be."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from rectifiers.benchmark.definition import Size, Task, benchmark
from rectifiers.benchmark.run import EntryResults
from rectifiers.results.documents import markdown
from rectifiers.results.statistics import mean_of

DRAWS = 2000
LEVEL = 0.95
EVEN = 0.5  # the probability of improvement of an entry over itself
COLUMNS = ["place", "entry", "mean_rank", "improvement"]
BASELINES = ("relu", "prelu")  # with He's gain; every entry is paired with them

HEAD = """# The rectifier benchmark

Made by `python scripts/benchmark.py leaderboard` from the results beside it; do not edit. Every
entry has the learning rate that its own search on validation images found best, by the same grid
and budget for all. Entries that share a place are ties. `identity` is a control, no activation at
all. Where it stands high, the task measures trainability, not expressiveness.
"""
Scores = Mapping[str, Mapping[str, Sequence[float]]]  # by entry and task, seed by seed; low is good


class Interval(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    @property
    def verdict(self) -> str:
        """What a probability of improvement shows."""
        if self.low > EVEN:
            return "better"
        return "worse" if self.high < EVEN else "neither better nor worse"


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how often a run has a lower score than one of `others`, ties counted half, the mean
    over tasks; both are [..., tasks, seeds]."""
    differences = scores[..., :, None] - others[..., None, :]
    return ((differences < 0) + 0.5 * (differences == 0)).mean((-3, -2, -1))


def rank(scores: Scores, draws: int = DRAWS) -> pd.DataFrame:
    """Return a row per entry, in the order of places and of mean ranks.

    place: one more than the number of entries whose probability of improvement over it has its
    whole interval above one half; entries that nothing tells apart share a place. mean_rank: over
    tasks, of the means over seeds. improvement: its probability of improvement over the others,
    their mean.

    All entries have the same tasks and the same number of seeds; a draw takes the same seeds of
    every entry, which are paired. The same scores give the same intervals."""
    if not scores:
        return pd.DataFrame(columns=COLUMNS)
    names = sorted(scores)
    tasks = sorted(scores[names[0]])
    values = np.array([[scores[name][task] for task in tasks] for name in names])
    over = np.full((1 + draws, len(names), len(names)), EVEN)
    # [1 + draws, entries, tasks, seeds]: the scores, and after them the draws
    samples = _resampled(values, draws)
    mean_ranks = stats.rankdata(samples.mean(-1), axis=1).mean(-1)
    for i in range(len(names)):
        for j in range(len(names)):
            if i != j:
                over[:, i, j] = probability_of_improvement(samples[:, i], samples[:, j])
    low = np.quantile(over[1:], (1 - LEVEL) / 2, axis=0)
    others = max(len(names) - 1, 1)
    rows = []
    for i, name in enumerate(names):
        improvement = (over[:, i].sum(-1) - EVEN) / others if len(names) > 1 else over[:, i, i]
        place = 1 + int((low[:, i] > EVEN).sum())
        rows.append((place, name, _interval(mean_ranks[:, i]), _interval(improvement)))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.sort_values(["place", "mean_rank", "entry"], ignore_index=True)


def _resampled(values: np.ndarray, draws: int) -> np.ndarray:
    """Return `values`, and then draws with the seeds of every task resampled with replacement, the
    same for all entries."""
    _, tasks, seeds = values.shape
    chosen = np.random.default_rng(0).integers(seeds, size=(draws, tasks, seeds))
    drawn = [np.take_along_axis(values, seeds_of_draw[None], axis=2) for seeds_of_draw in chosen]
    return np.stack([values, *drawn])


def _interval(samples: np.ndarray) -> Interval:
    low, high = np.quantile(samples[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(samples[0]), float(low), float(high))


def scores_of(results: EntryResults, tasks: Mapping[str, Task]) -> dict[str, list[float]]:
    """Return the scores of the tasks that an entry is complete on, by task, seed by seed."""
    return {
        name: [run.score(task) for run in results.judged(name)]
        for name, task in tasks.items()
        if results.gap(name) is None
    }


def improvement(results: EntryResults, baseline: EntryResults) -> tuple[int, Interval] | None:
    """Return the number of tasks that both are complete on, and the probability that a run of the
    entry beats one of the baseline on them; None where there is no such task."""
    pair = [scores_of(entry, benchmark().tasks) for entry in (results, baseline)]
    common = sorted(pair[0].keys() & pair[1].keys())
    if not common:
        return None
    names = ("entry", "baseline")
    ranks = rank({n: {task: s[task] for task in common} for n, s in zip(names, pair, strict=True)})
    return len(common), ranks.set_index("entry")["improvement"]["entry"]


def score_text(task: Task, scores: Sequence[float]) -> str:
    """Return the mean error, or how many seeds trained."""
    if task.reach is None:
        return f"{np.mean(scores):.2f}"
    return f"{sum(score == 0 for score in scores)} of {len(scores)} seeds"


def difference_text(task: Task, scores: Sequence[float], others: Sequence[float]) -> str:
    """Return the mean difference, paired by seed, with Student's interval, or of a task that counts
    seeds how many more train."""
    difference = mean_of(np.subtract(scores, others).tolist())
    if task.reach is not None:
        return f"{-round(difference.mean * len(scores) / 100):+d} seeds"
    return f"{difference.mean:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})"


def leaderboard(entries: Mapping[str, EntryResults]) -> str:
    """Return LEADERBOARD.md: over all tasks of a size, then by task, then what is not ranked."""
    spec = benchmark()
    parts = [HEAD, f"Benchmark {spec.version} ({spec.hash}), {spec.seeds} seeds per task.\n"]
    sizes: tuple[Size, ...] = ("quick", "full")
    for size in sizes:
        tasks = spec.of_size(size)
        present = {name: e for name, e in entries.items() if tasks.keys() & set(e.tasks())}
        if present:
            parts.append(f"## {size.capitalize()} tasks\n")
            parts += _size_tables(tasks, present)
    return "\n".join(parts)


def _size_tables(tasks: Mapping[str, Task], entries: Mapping[str, EntryResults]) -> list[str]:
    scores = {name: scores_of(results, tasks) for name, results in entries.items()}
    ranks = rank({name: rows for name, rows in scores.items() if len(rows) == len(tasks)})
    ties = ranks["place"].duplicated(keep=False)
    ranks["place"] = [f"{p}{' =' * tie}" for p, tie in zip(ranks["place"], ties, strict=True)]
    head = ["place", "entry", "mean rank (95 %)"]
    head.append("probability of improvement over the others (95 %)")
    parts = [markdown(head, ranks.astype(str).to_numpy().tolist())]
    for name, task in tasks.items():
        complete = {entry: rows[name] for entry, rows in scores.items() if name in rows}
        rows = []
        for entry, values in sorted(complete.items(), key=lambda item: np.mean(item[1])):
            row = [entry, score_text(task, values), f"{entries[entry].rate(name):g}"]
            for base in BASELINES:
                is_paired = base in complete and base != entry
                row.append(difference_text(task, values, complete[base]) if is_paired else "-")
            rows.append(row)
        measure = "error on test, %" if task.reach is None else f"training loss < {task.reach:g}"
        head = ["entry", measure, "rate", *(f"minus {base} (95 %)" for base in BASELINES)]
        table = markdown(head, rows) if rows else "No entry is complete.\n"
        parts += [f"### {name}: {task.title}\n", table]
    incomplete = []
    for name, results in entries.items():
        if gaps := [f"{task}: {gap}" for task in tasks if (gap := results.gap(task))]:
            incomplete.append([name, "; ".join(gaps)])
    if incomplete:
        parts += ["### Not ranked\n", markdown(("entry", "incomplete, and not ranked"), incomplete)]
    return parts
