"""Whether committed results are of this benchmark: its grid, its budget, its data, and code that is
committed."""

import functools
from collections.abc import Iterator

import yaml

from rectifiers.cli.benchmark import Entry, check_task
from rectifiers.results.benchmark.definition import PLACE, Benchmark, benchmark
from rectifiers.results.benchmark.entries import EntryResults, Origin, RunResult, entry_name
from rectifiers.results.benchmark.standing import standing
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.provenance import committed_file, committed_fingerprint
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CHECKOUT, git
from rectifiers.runtime.schema import checked


def check(results: EntryResults, stem: str) -> None:
    """Check an entry's file, whose name without its ending is `stem`; runs may be missing.

    Raises:
        InputError: for the first thing that is of another benchmark, another configuration or other
        code.
    """
    for reason in _reasons(results, stem):
        raise InputError(f"results/benchmark/{stem}.json: {printable(reason)}")


def _reasons(results: EntryResults, stem: str) -> Iterator[str]:
    own = benchmark()
    if results.benchmark != own.hash:
        yield (
            f"it is of the benchmark {results.benchmark}, and this is {own.version}, "
            f"{own.hash}; run the entry again"
        )
    entry = Entry.of(results.overrides)
    if entry.overrides != results.overrides:
        yield (
            "it names no activation, so its runs were of the default of conf/train.yaml; run "
            "the entry again"
        )
    if not results.entry == stem == entry_name(results.overrides):
        yield f"its entry is {entry_name(results.overrides)}; name entry and file so"
    for run in results.runs:
        if run.task not in own.tasks:
            yield f"{run.task} is no task of {own.version}"
            continue
        if (expected := expected_name(entry, run)) != run.run:
            yield (
                f"run {run.run} of {run.task} at rate {run.rate:g}, seed {run.seed} is of "
                "another configuration, for "
                f"that is {expected}: other data, grid, budget or settings"
            )
        if not _is_planned(own, results, run):
            yield (
                f"run {run.run} of {run.task} is neither of the search nor of the rate that "
                f"it found, {run.rate:g}"
            )
        if results.origins[run.origin].data != own.tasks[run.task].data:
            yield (
                f"run {run.run} is of the data {results.origins[run.origin].data}, not of "
                "the task's"
            )
    for origin in results.origins:
        if reason := _reason_of(origin):
            yield reason


def expected_name(entry: Entry, run: RunResult) -> str:
    """Return the name that the run of an entry has, by what the benchmark says of its task.

    Raises:
        InputError: where conf/ is not that of the benchmark's version.
    """
    task = benchmark().tasks[run.task]
    config, _ = entry.configuration(task)
    check_task(run.task, task, config)
    return run_id(
        {**science(config), "seed": run.seed, "optim": {**science(config)["optim"], "lr": run.rate}}
    )


def _is_planned(own: Benchmark, results: EntryResults, run: RunResult) -> bool:
    if run.seed == own.search_seed:
        return run.rate in own.tasks[run.task].rates
    return run.seed < own.seeds and run.rate == standing(own, run.task, results).rate


def _reason_of(origin: Origin) -> str | None:
    """Return what is wrong with where runs come from, or None."""
    if origin.git_sha is None or origin.git_dirty is not False:
        return (
            "it has runs of code that was not committed; commit, remove their folders and "
            "run them again"
        )
    if (code := committed_code(origin.git_sha)) is None:
        if git("rev-parse", "--is-shallow-repository", at=CHECKOUT) == "true" if CHECKOUT else True:
            return None  # nothing can be said of a commit that is not here
        return (
            f"commit {origin.git_sha[:8]}, which made runs, is not known; merge its branch "
            "without rewriting it"
        )
    if code != origin.code:
        return f"its runs are of code {origin.code}, and commit {origin.git_sha[:8]} has {code}"
    if committed_benchmark(origin.git_sha) != benchmark().hash:
        return (
            f"commit {origin.git_sha[:8]}, which made runs, has another benchmark than "
            f"{benchmark().version}"
        )
    return None


committed_code = functools.cache(committed_fingerprint)


@functools.cache
def committed_benchmark(commit: str) -> str | None:
    """Return the hash of the benchmark that a commit defines, or None."""
    place = PLACE.relative_to(CHECKOUT).as_posix() if CHECKOUT else ""
    text = committed_file(commit, place)
    try:
        return None if text is None else checked(Benchmark, yaml.safe_load(text)).hash
    except InputError:
        return None
