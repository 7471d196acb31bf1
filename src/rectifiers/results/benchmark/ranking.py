"""From scores to places: paired differences, probabilities of improvement, and a stratified
bootstrap over seeds.

After Agarwal et al. 2021 (rliable): the probability that a run of one entry beats a run of another
is averaged over tasks, and its interval comes from resampling seeds within every task. The tasks
stay as they are: an interval speaks of these tasks, not of all that there could be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 2000
LEVEL = 0.95
EVEN = 0.5  # the probability of improvement of an entry over itself

Scores = Mapping[
    str, Mapping[str, Sequence[float]]
]  # by entry and task, seed by seed; the lower the better


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Ranked:
    """An entry among the others.

    place: one more than the number of entries whose probability of improvement over it has its
    whole interval above one half; entries that nothing tells apart share a place. mean_rank: over
    tasks, of the means over seeds, ties counted in the middle; it orders the entries of one place.
    improvement: its probability of improvement over the
    others, their mean. beats: the entries over which that has its whole interval above one half.
    """

    entry: str
    place: int
    mean_rank: Interval
    improvement: Interval
    beats: Sequence[str]


def probability_of_improvement(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return how often a run of `own` has a lower score than one of `other`, ties counted half, the
    mean over tasks.

    own, other: scores [..., tasks, seeds].
    """
    differences = own[..., :, None] - other[..., None, :]
    return ((differences < 0) + 0.5 * (differences == 0)).mean((-3, -2, -1))


def ranks(means: np.ndarray) -> np.ndarray:
    """Return the ranks from 1 along the first axis, [entries, ...]; equal ones share the mean of
    their ranks."""
    below = (means[:, None] > means[None, :]).sum(1)
    same = (means[:, None] == means[None, :]).sum(1)
    return below + (same + 1) / 2


def rank(scores: Scores, draws: int = DRAWS) -> list[Ranked]:
    """Return the entries in the order of their mean ranks, with places and intervals.

    All entries have the same tasks and the same number of seeds; a draw takes the same seeds of
    every entry, which are paired. The same scores give the same intervals."""
    names = sorted(scores)
    if len(names) < 2:
        return [
            Ranked(name, 1, Interval(1, 1, 1), Interval(EVEN, EVEN, EVEN), ()) for name in names
        ]
    tasks = sorted(scores[names[0]])
    values = np.array(
        [[scores[name][task] for task in tasks] for name in names]
    )  # [entries, tasks, seeds]
    drawn = _drawn(values, draws)  # [draws, entries, tasks, seeds]
    own_ranks = ranks(values.mean(-1)).mean(-1)
    drawn_ranks = np.stack([ranks(each.mean(-1)).mean(-1) for each in drawn])
    entries = range(len(names))
    over = np.full((len(names), len(names)), EVEN)
    spread = np.full((draws, len(names), len(names)), EVEN)
    for i in entries:
        for j in (j for j in entries if j != i):
            over[i, j] = probability_of_improvement(values[i], values[j])
            spread[:, i, j] = probability_of_improvement(drawn[:, i], drawn[:, j])
    low = np.quantile(spread, (1 - LEVEL) / 2, axis=0)
    others = len(names) - 1
    found = [
        Ranked(
            name,
            place=1 + int((low[:, i] > EVEN).sum()),
            mean_rank=_interval(own_ranks[i], drawn_ranks[:, i]),
            improvement=_interval(
                (over[i].sum() - EVEN) / others, (spread[:, i].sum(-1) - EVEN) / others
            ),
            beats=[names[j] for j in entries if low[i, j] > EVEN],
        )
        for i, name in enumerate(names)
    ]
    return sorted(found, key=lambda each: (each.place, each.mean_rank.value, each.entry))


def _drawn(values: np.ndarray, draws: int) -> np.ndarray:
    """Return `values` with the seeds of every task resampled with replacement, the same for all
    entries."""
    _, tasks, seeds = values.shape
    chosen = np.random.default_rng(0).integers(seeds, size=(draws, tasks, seeds))
    return np.stack([np.take_along_axis(values, each[None], axis=2) for each in chosen])


def _interval(value: float, drawn: np.ndarray) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(value), float(low), float(high))
