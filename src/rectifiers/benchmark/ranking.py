"""Rank entries by mean log error ratios to ReLU, with a hierarchical bootstrap, and admit tasks.

The bootstrap resamples the search seeds, which may then choose another learning rate, and the
judged seeds. Each draw is the same for all entries. Tasks are not resampled, so an interval holds
for these tasks only.

An entry's place is a range: those before it are clearly better, and those behind it clearly worse,
by Welch's test of each difference, corrected for the number of pairs (Holm)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp

import numpy as np

from rectifiers.benchmark.definition import Size, Task, benchmark
from rectifiers.benchmark.entries import EntryResults, search, select, val_errors
from rectifiers.results.documents import listed, markdown
from rectifiers.results.statistics import Mean, holm, mean_of

DRAWS = 2000
TAILS = (0.025, 0.975)
LEVEL = 0.05  # of all pairs of entries together
LEAST_VARIANCE = 1e-24  # of a difference's logarithm; what is below it is rounding
REFERENCE = "relu"  # with He's gain
BASELINES = ("relu", "prelu", "gelu", "silu")  # that cards compare with
LEAST_ERROR_PCT = 0.01  # whose logarithm is finite
POWER = 2.8  # standard normal quantiles of .975 and of .8, added: a test that finds 4 of 5 effects


def bootstrap(results: EntryResults, task: str) -> np.ndarray:
    """Return an entry's mean error on test, in percent, [1 + DRAWS]: as it is, and then with seeds
    drawn with replacement, the same for all entries.

    Where a draw of the search's seeds chooses another rate, the error is that of these runs."""
    spec = benchmark()
    judged = np.array([run.error_pct for run in results.judged(task)])
    rates, chosen = search(task, results.runs)
    val = val_errors(task, rates, results.runs)
    assert val is not None
    assert chosen is not None
    by_run = {(run.rate, run.seed): run.error_pct for run in results.runs if run.task == task}
    test = np.array([[by_run[rate, seed] for seed in spec.search_seeds] for rate in rates])

    generator = np.random.default_rng([0, list(spec.tasks).index(task)])
    seeds = len(spec.search_seeds)
    drawn = generator.integers(seeds, size=(DRAWS, seeds))
    picked = select(val[:, drawn].swapaxes(0, 1))
    at_rate = test[picked[:, None], drawn].mean(-1)

    means = judged[generator.integers(len(judged), size=(DRAWS, len(judged)))].mean(-1)
    means = np.where(picked == rates.index(chosen), means, at_rate)
    return np.concatenate([[judged.mean()], means])


@dataclass(frozen=True)
class Ranking:
    """Entries by mean log error ratio to ReLU, the best first. samples: of each task,
    [tasks, 1 + DRAWS, entries]. seeds: how many are judged, by task."""

    names: list[str]
    samples: np.ndarray
    seeds: Sequence[int]

    @classmethod
    def of(cls, entries: Mapping[str, EntryResults], tasks: Sequence[str]) -> "Ranking":
        """Rank the entries that are complete on `tasks`, controls among them; ReLU's is one."""
        logs = {}
        for name, results in entries.items():
            if any(results.gap(task) for task in tasks):
                continue
            errors = [bootstrap(results, task).clip(LEAST_ERROR_PCT) for task in tasks]
            logs[name] = np.log(errors)
        names = sorted(logs, key=lambda name: (logs[name][:, 0].mean(), name))
        samples = np.stack([logs[name] - logs[REFERENCE] for name in names], axis=-1)
        return cls(names, samples, [benchmark().tasks[task].seeds for task in tasks])

    @property
    def means(self) -> np.ndarray:
        """The mean log error ratios over the tasks, [1 + DRAWS, entries]."""
        return self.samples.mean(0)

    def ratio(self, name: str) -> tuple[float, float, float]:
        """Return an entry's error as a factor of ReLU's, with its interval."""
        logs = self.means[:, self.names.index(name)]
        low, high = np.quantile(logs[1:], TAILS)
        return exp(logs[0]), exp(low), exp(high)

    def ratio_text(self, name: str) -> str:
        """Return "0.86 (0.81 to 0.98)"."""
        ratio, low, high = self.ratio(name)
        return f"{ratio:.2f} ({low:.2f} to {high:.2f})"

    @property
    def placed(self) -> list[str]:
        """The entries that have a place: all but the controls."""
        return [name for name in self.names if name not in benchmark().controls]

    @cached_property
    def is_clear(self) -> np.ndarray:
        """Whether two placed entries differ clearly, [placed, placed].

        A task with few seeds and much noise leaves few degrees of freedom, whatever the seeds of
        the others: Welch (1947), Satterthwaite (1946)."""
        from scipy.special import stdtr  # here and not above: its import takes time

        samples = self.samples[..., [self.names.index(name) for name in self.placed]]
        first, second = np.triu_indices(samples.shape[-1], 1)
        differences = samples[..., first] - samples[..., second]  # [tasks, 1 + DRAWS, pairs]

        seeds = np.array(self.seeds)[:, None]
        drawn = differences[:, 1:].var(1, ddof=1)  # of n seeds: smaller by (n - 1) / n
        variances = (drawn * seeds / (seeds - 1)).clip(LEAST_VARIANCE)
        variance = variances.sum(0)
        freedom = variance**2 / (variances**2 / (seeds - 1)).sum(0)
        p_values = 2 * stdtr(freedom, -np.abs(differences[:, 0].sum(0)) / np.sqrt(variance))

        clear = np.zeros((samples.shape[-1],) * 2, dtype=bool)
        clear[first, second] = np.array(holm(p_values.tolist())) < LEVEL
        return clear | clear.T

    def places(self, name: str) -> tuple[int, int]:
        """Return the first and the last place that a placed entry may have."""
        own = self.placed.index(name)
        clear = self.is_clear[own]
        return 1 + int(clear[:own].sum()), len(clear) - int(clear[own:].sum())

    def place_text(self, name: str) -> str:
        """Return "3", or "2 to 7"."""
        first, last = self.places(name)
        return str(first) if first == last else f"{first} to {last}"


@dataclass(frozen=True)
class Admission:
    """Whether a task tells the worse entry of the rule from the better one. errors: of both, in
    percent, paired by seed, [2, seeds]."""

    task: str
    errors: np.ndarray

    @cached_property
    def difference(self) -> Mean:
        """The worse entry's error minus the better one's."""
        return mean_of((self.errors[0] - self.errors[1]).tolist())

    @property
    def is_admitted(self) -> bool:
        return self.difference.low > 0

    @property
    def seeds_per_point(self) -> int:
        """How many seeds find a difference of one point between two entries like the better one in
        four of five cases, unpaired."""
        return max(2, ceil(2 * (POWER * float(self.errors[1].std(ddof=1))) ** 2))


def admissions(entries: Mapping[str, EntryResults], tasks: Mapping[str, Task]) -> list[Admission]:
    """Return the admission of each task of errors on which the two entries of the rule share two or
    more judged seeds."""
    rule, checked = benchmark().admission, []
    pair = [entries[name] for name in (rule.worse, rule.better) if name in entries]
    for name, task in tasks.items():
        if task.depth is not None or len(pair) < 2:
            continue
        errors = [{run.seed: run.error_pct for run in entry.judged(name)} for entry in pair]
        seeds = sorted(errors[0].keys() & errors[1].keys())
        if len(seeds) >= 2:
            checked.append(Admission(name, np.array([[e[s] for s in seeds] for e in errors])))
    return checked


def admission_table(checked: Sequence[Admission]) -> str:
    """Return the admissions as Markdown."""
    rule, rows = benchmark().admission, []
    for task in checked:
        mean, (worse, better) = task.difference, task.errors.mean(1)
        cells = [f"{worse:.2f}", f"{better:.2f}", mean.signed(), str(mean.n)]
        verdict = "yes" if task.is_admitted else "no"
        rows.append([task.task, verdict, *cells, str(task.seeds_per_point)])
    difference = f"{rule.worse} minus {rule.better} (95 % CI)"
    head = ["task", "does it count", f"{rule.worse}, %", f"{rule.better}, %", difference, "seeds"]
    return markdown([*head, "seeds to find one point"], rows)


def depth_reached(results: EntryResults, size: Size) -> int | None:
    """Return the depth to which at least half of the seeds train, of the tasks that ask for it,
    the shallowest first; 0 where the first does not; None where none asks, or one is incomplete
    whose search has not failed."""
    tasks = benchmark().of_size(size, is_error=False)
    reached = 0 if tasks else None
    for name, task in sorted(tasks.items(), key=lambda item: item[1].depth or 0):
        if results.gap(name) is not None:
            return reached if results.has_failed(name) else None
        if np.mean([run.trained for run in results.judged(name)]) < 0.5:
            break
        reached = task.depth or 0
    return reached


def score_text(results: EntryResults, task: str) -> str:
    """Return the mean error, or how many seeds train."""
    judged = results.judged(task)
    if benchmark().tasks[task].depth is None:
        return f"{np.mean([run.error_pct for run in judged]):.2f}"
    return f"{sum(run.trained for run in judged)} of {len(judged)} seeds"


def difference(results: EntryResults, base: EntryResults, task: str) -> Mean:
    """Return the mean difference of errors to a baseline, paired by seed, in percent."""
    pairs = zip(results.judged(task), base.judged(task), strict=True)
    return mean_of([one.error_pct - other.error_pct for one, other in pairs])


def ranked_tasks(entries: Mapping[str, EntryResults], size: Size) -> list[str]:
    """Return the tasks of errors that count: ReLU is complete on them, and they are admitted as far
    as the two entries of the rule are there."""
    tasks = benchmark().of_size(size, is_error=True)
    refused = {check.task for check in admissions(entries, tasks) if not check.is_admitted}
    reference = entries.get(REFERENCE)
    if reference is None:
        return []
    return [name for name in tasks if reference.gap(name) is None and name not in refused]


def early_and_late(entries: Mapping[str, EntryResults]) -> str | None:
    """Return whether the leader of the short training leads the long one, too, as far as places are
    clear, with the rank correlation of both orders; None unless three entries train on all tasks of
    both."""
    from scipy.stats import rankdata  # here and not above: its import takes a second

    pairs = {t.early: name for name, t in benchmark().of_size("late").items() if t.early}
    tasks = [*pairs, *pairs.values()]
    shared = {
        name: results
        for name, results in entries.items()
        if name not in benchmark().controls
        and not any(results.gap(task) or results.has_failed(task) for task in tasks)
    }
    if len(shared) < 3 or REFERENCE not in shared:
        return None

    early, late = (Ranking.of(shared, names) for names in (list(pairs), list(pairs.values())))
    order = [late.names.index(name) for name in early.names]
    ranks = [rankdata(means) for means in (early.means[0], late.means[0, order])]
    correlation = np.corrcoef(ranks)[0, 1]

    leader, winner = early.names[0], late.names[0]
    places = [ranking.place_text(leader) for ranking in (early, late)]
    may_lead_both = any(early.places(name)[0] == late.places(name)[0] == 1 for name in early.placed)
    if leader == winner and set(places) == {"1"}:
        answer = f"Yes, {leader}."
    elif not may_lead_both:
        answer = f"No: {leader} leads early and {winner} late."
    else:
        leads = (
            f"{leader} leads both" if leader == winner else f"{leader} leads early, {winner} late"
        )
        answer = f"This is not clear: {leads}."
    return (
        f"**Is the early leader the late one?** {answer} Of these {len(shared)} entries {leader} "
        f"has the place {places[0]} early and {places[1]} late, on {listed(list(pairs))} at both "
        f"lengths. Their orders have a rank correlation (Spearman) of {correlation:.2f}, which "
        "noise alone makes smaller than 1."
    )
