"""A card's verdict in words, which says no more than its intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.benchmark.entries import BASELINES, EntryResults
from rectifiers.results.benchmark.ranking import EVEN, Interval, rank
from rectifiers.results.benchmark.standing import Standing, paired, scores, standing

NAMES = {"relu": "ReLU", "prelu": "PReLU"}


def sentences(
    benchmark: Benchmark,
    paper: Mapping[str, Any] | None,
    results: EntryResults,
    baselines: Mapping[str, EntryResults],
) -> list[str]:
    """Return the verdict, a sentence per finding; what no interval shows is called open."""
    own = {name: standing(benchmark, name, results) for name in benchmark.tasks}
    said = [f"{name} cannot be run: {each.refused}." for name, each in own.items() if each.refused]
    lacking = [
        name
        for name, each in own.items()
        if each.searched and not each.is_complete and not each.refused
    ]
    if lacking:
        said.append(f"Incomplete, and so without a verdict there: {', '.join(lacking)}.")
    complete = {name: each for name, each in own.items() if each.is_complete}
    for base in BASELINES:
        if base != results.entry and base in baselines:
            said += _against(benchmark, base, complete, baselines[base], results.entry)
    said += _deep(benchmark, complete, baselines, results.entry)
    lost = [run for each in complete.values() for run in each.judged.values() if run.diverged]
    if lost:
        said.append(
            f"{len(lost)} of {benchmark.seeds * len(complete)} judged runs diverged, at rates "
            "that a search chose."
        )
    ends = [name for name, each in complete.items() if _is_at_an_end(benchmark, each)]
    if ends:
        said.append(
            f"The best rate is an end of the grid on {', '.join(ends)}: a better one may lie "
            "outside."
        )
    if paper and paper["fixed_point_word"] == "repels":
        said.append(
            "On paper the variance that the gain keeps repels (an error grows by "
            f"{paper['map_slope']:.2f} per layer): "
            "deep chains without normalisation drift."
        )
    return said or ["Nothing has been run yet."]


def _against(
    benchmark: Benchmark,
    base: str,
    complete: Mapping[str, Standing],
    other: EntryResults,
    entry: str,
) -> list[str]:
    """What the paired differences of errors show, and the probability of improvement over all
    tasks."""
    lower, higher, open_ones = (list[str]() for _ in range(3))
    both = _scores(benchmark, base, complete, other, entry)
    for name in both[entry]:
        if benchmark.tasks[name].reach is not None:
            continue
        mean = paired(both[entry][name], both[base][name])
        assert mean.low is not None  # of five seeds or more
        assert mean.high is not None
        words = f"{name} ({mean.mean:+.1f} points, {mean.low:+.1f} to {mean.high:+.1f})"
        (lower if mean.high < 0 else higher if mean.low > 0 else open_ones).append(words)
    said = [
        f"{what} error than {NAMES[base]} on {', '.join(found)}."
        for what, found in (("A lower", lower), ("A higher", higher))
        if found
    ]
    if open_ones:
        said.append(f"No difference from {NAMES[base]} is shown on {', '.join(open_ones)}.")
    if both[entry]:
        chance, shows = _improvement(both, entry)
        said.append(
            f"Over {len(both[entry])} tasks a run of it beats one of {NAMES[base]} with "
            f"probability {chance}: {shows}, "
            "as far as these seeds show."
        )
    return said


def in_short(
    benchmark: Benchmark, base: str, results: EntryResults, baselines: Mapping[str, EntryResults]
) -> str | None:
    """Return the probability that a run beats one of `base` over all tasks, and what it shows; None
    without a task."""
    if base == results.entry or base not in baselines:
        return None
    own = {name: standing(benchmark, name, results) for name in benchmark.tasks}
    complete = {name: each for name, each in own.items() if each.is_complete}
    both = _scores(benchmark, base, complete, baselines[base], results.entry)
    if not both[results.entry]:
        return None
    chance, shows = _improvement(both, results.entry)
    return f"{shows}, {chance}"


def _scores(
    benchmark: Benchmark,
    base: str,
    complete: Mapping[str, Standing],
    other: EntryResults,
    entry: str,
) -> dict[str, dict[str, Sequence[float]]]:
    """The scores of an entry and a baseline on the tasks that both have."""
    both: dict[str, dict[str, Sequence[float]]] = {entry: {}, base: {}}
    for name, where in complete.items():
        reference = standing(benchmark, name, other)
        if reference.is_complete:
            both[entry][name], both[base][name] = (
                scores(benchmark, where),
                scores(benchmark, reference),
            )
    return both


def _improvement(
    both: Mapping[str, Mapping[str, Sequence[float]]], entry: str
) -> tuple[Interval, str]:
    chance = next(each for each in rank(both) if each.entry == entry).improvement
    shows = (
        "better"
        if chance.low > EVEN
        else "worse"
        if chance.high < EVEN
        else "neither better nor worse"
    )
    return chance, shows


def _deep(
    benchmark: Benchmark,
    complete: Mapping[str, Standing],
    baselines: Mapping[str, EntryResults],
    entry: str,
) -> list[str]:
    """How many seeds train, of the tasks that count them."""
    said = []
    for name, where in complete.items():
        if benchmark.tasks[name].reach is None:
            continue
        counts = [f"{_trained(benchmark, where)} of {benchmark.seeds} seeds train"]
        for base in (base for base in BASELINES if base != entry):
            reference = standing(benchmark, name, baselines[base]) if base in baselines else None
            if reference and reference.is_complete:
                counts.append(f"{NAMES[base]} {_trained(benchmark, reference)}")
        said.append(f"{name}: {', '.join(counts)}.")
    return said


def _trained(benchmark: Benchmark, where: Standing) -> int:
    return sum(score == 0 for score in scores(benchmark, where))


def _is_at_an_end(benchmark: Benchmark, where: Standing) -> bool:
    rates = benchmark.tasks[where.task].rates
    return where.rate in (min(rates), max(rates))
