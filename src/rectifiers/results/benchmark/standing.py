"""Where an entry stands on a task: the rate that its search found best, its scores by seed, and
what is missing."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rectifiers.results.benchmark.definition import Benchmark, Task
from rectifiers.results.benchmark.entries import EntryResults, RunResult
from rectifiers.results.statistics import Mean, mean_of


@dataclass(frozen=True)
class Standing:
    """One entry on one task.

    rate: the best one, None while the search is not whole. judged: the runs at that rate, by seed.
    missing: how many
    runs there still must be. refused: why it cannot be run there, or None.
    """

    task: str
    rate: float | None
    judged: Mapping[int, RunResult]
    searched: Mapping[float, RunResult]
    missing: int
    refused: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it can be ranked."""
        return self.missing == 0 and self.refused is None


def val_error(run: RunResult) -> float:
    """Return the error on the validation images; infinity of a run that diverged."""
    return math.inf if run.val_error_pct is None else run.val_error_pct


def best_rate(task: Task, searched: Mapping[float, RunResult]) -> float | None:
    """Return the rate with the lowest error on val, the lower one of equals; None while one of the
    grid is missing."""
    if not set(task.rates) <= set(searched):
        return None
    return min(sorted(task.rates), key=lambda rate: val_error(searched[rate]))


def standing(benchmark: Benchmark, name: str, results: EntryResults) -> Standing:
    """Return where an entry stands on the task `name`."""
    task, runs = benchmark.tasks[name], results.runs_of(name)
    searched = {
        run.rate: run
        for run in runs
        if run.seed == benchmark.search_seed and run.rate in task.rates
    }
    rate = best_rate(task, searched)
    judged = {run.seed: run for run in runs if run.rate == rate and run.seed < benchmark.seeds}
    missing = len(task.rates) - len(searched) + benchmark.seeds - len(judged)
    return Standing(name, rate, judged, searched, missing, results.refused.get(name))


def score(task: Task, run: RunResult) -> float:
    """Return what a run is judged by, in percent, the lower the better.

    The error on test; of a task with `reach`, 0 where an epoch's mean training loss came below it,
    else 100."""
    if task.reach is None:
        return run.error_pct()
    return 0.0 if run.least_loss is not None and run.least_loss < task.reach else 100.0


def scores(benchmark: Benchmark, where: Standing) -> list[float]:
    """Return the scores of a complete standing, seed by seed."""
    task = benchmark.tasks[where.task]
    return [score(task, where.judged[seed]) for seed in range(benchmark.seeds)]


def incomplete(standings: Iterable[Standing]) -> list[str]:
    """Return, in words, what keeps an entry from being ranked."""
    found = []
    for each in standings:
        if each.refused:
            found.append(f"{each.task}: {each.refused}")
        elif each.missing:
            found.append(f"{each.task}: {each.missing} run{'s' * (each.missing != 1)} missing")
    return found


def paired(own: Sequence[float], other: Sequence[float]) -> Mean:
    """Return the mean difference of two entries' scores, seed by seed, with its interval (Student's
    t)."""
    return mean_of([a - b for a, b in zip(own, other, strict=True)])
