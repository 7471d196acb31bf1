"""An entry's results: a row per run, in `results/benchmark/<entry>.json`; the rate that its search
chooses, and the runs that are missing.

A run's name is the hash of its configuration, so an interrupted entry goes on, and who composes
task, entry, rate and seed of a row again must come to the same name."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import from_json

from rectifiers.benchmark.definition import Entry, benchmark
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.options import options
from rectifiers.runs.provenance import committed_file, has_commit
from rectifiers.runs.record_parts import NonNegative, Percent, Rate
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, read_bytes, write_text
from rectifiers.runtime.ranges import Positive
from rectifiers.runtime.schema import Section, checked

MAX_BYTES = 2**24
DIRTY = "-dirty"  # as `git describe` marks a checkout with changes
GUESSING_PCT = 90.0  # error of guessing among ten classes
WITHOUT_COMMIT = ("prelu_shared",)  # entries that ran before it was kept


@cache
def is_installed(target: str) -> bool:
    """Return whether a dotted name is of an installed package, and not of a user's file."""
    return target.partition(".")[0] in {"rectifiers", *packages_distributions()}


class RunResult(Section):
    """What is kept of a run's record. The errors are null where the run diverged."""

    task: str
    rate: Rate
    seed: int = Field(ge=0)
    run: str  # hash of its configuration
    data: str  # hash of its images
    # of the code that made it, with "-dirty" for changes to it; null: made outside a checkout,
    # or before it was kept
    commit: Annotated[str, Field(pattern=rf"^[0-9a-f]{{7,40}}({DIRTY})?$")] | None = None
    val_error_pct: Percent | None  # after the last epoch
    least_val_error_pct: Percent | None  # of any epoch
    test_error_pct: Percent | None
    least_loss: NonNegative | None  # lowest mean training loss of an epoch, nats

    @model_validator(mode="after")
    def _check_errors(self) -> "RunResult":
        errors = (self.val_error_pct, self.least_val_error_pct, self.test_error_pct)
        if errors.count(None) not in (0, len(errors)):
            raise ValueError(f"run {self.run}: one error is null, and the other is not")
        return self

    @property
    def diverged(self) -> bool:
        """Whether training ended in numbers that are not finite."""
        return self.test_error_pct is None

    @property
    def trained(self) -> bool:
        """Whether an epoch's mean training loss came below that of the benchmark."""
        low = self.least_loss is not None and self.least_loss < benchmark().reach
        return low and not self.diverged

    @property
    def error_pct(self) -> float:
        """The error on test; that of guessing where the run diverged."""
        return GUESSING_PCT if self.test_error_pct is None else self.test_error_pct


class EntryResults(Section):
    """An entry with its runs. refused: by task, why it is not run there."""

    benchmark: str  # hash of the benchmark's definition
    entry: str
    overrides: tuple[str, ...]
    refused: dict[str, str]
    runs: tuple[RunResult, ...]
    cost: Positive | None = None  # CPU seconds of a training step over ReLU's

    @model_validator(mode="after")
    def _check_runs(self) -> "EntryResults":
        if len({(run.task, run.rate, run.seed) for run in self.runs}) < len(self.runs):
            raise ValueError("a task, rate and seed stands twice")
        return self

    def rate(self, task: str) -> float | None:
        """Return the learning rate that the search chose; None while it is incomplete."""
        return search(task, self.runs)[1]

    def judged(self, task: str) -> list[RunResult]:
        """Return the judged runs, by seed."""
        rate, seeds = self.rate(task), benchmark().tasks[task].seeds
        runs = (run for run in self.runs if run.task == task and run.rate == rate)
        return sorted((run for run in runs if run.seed < seeds), key=lambda run: run.seed)

    def gap(self, task: str) -> str | None:
        """Return why the entry is not ranked on a task, or None: it is refused, or runs miss."""
        if task in self.refused:
            return printable(self.refused[task])

        missing = len(missing_runs(task, self.runs))
        if self.rate(task) is None:  # before it is chosen, no judged run is planned
            missing += benchmark().tasks[task].seeds
        if missing == 0:
            return None
        reason = f"{missing} run{'' if missing == 1 else 's'} missing"
        cause = stopped_by(task, self.runs)
        return f"{reason}, because no learning rate trains {cause}" if cause else reason

    def has_failed(self, task: str) -> bool:
        """Return whether the search of a task ended without a run that trains, at any rate."""
        return has_failed(task, self.runs)

    def objection(self) -> str | None:
        """Return why the leaderboard cannot take the entry as it is, or None: runs miss, or the
        code of some was not committed or is not of this repository."""
        spec, present = benchmark(), self.tasks()
        sizes = {spec.tasks[task].size for task in present} or {"quick"}
        for name, task in spec.tasks.items():  # data of a user's may lack, and with them the task
            is_asked = name in present or (task.size in sizes and not task.outside)
            if is_asked and name not in self.refused and (gap := self.gap(name)):
                option = " --all" if stopped_by(name, self.runs) else ""
                return f"{name}: {gap}; run the entry again with size={task.size}{option}"

        again = "remove this file, and run the entry again with runs_dir=<another folder>"

        dirty = [run.run for run in self.runs if (run.commit or "").endswith(DIRTY)]
        if dirty:
            return f"the code of {len(dirty)} run(s) was not committed; commit it, {again}"
        if self.entry not in WITHOUT_COMMIT and any(run.commit is None for run in self.runs):
            return f"the commit of its code is not known; in a clone with git, {again}"

        for commit in sorted({run.commit for run in self.runs if run.commit is not None}):
            if has_commit(commit) is False:
                reason = f"its code is that of commit {commit}, which this repository does not have"
                return f"{reason}; {again}"
            for file in self.files() if has_commit(commit) else ():
                if committed_file(commit, file) is None:
                    return f"commit {commit} has no {file}; commit it, {again}"
        return None

    def files(self) -> list[str]:
        """Return the files of the user's functions that the entry names."""
        pairs = (override.partition("=")[::2] for override in self.overrides)
        targets = [target for key, target in pairs if key.endswith("._target_")]
        own = [target for target in targets if not is_installed(target)]
        return [f"{target.rpartition('.')[0].replace('.', '/')}.py" for target in own]

    def tasks(self) -> list[str]:
        """Return the tasks that the entry has runs of or is refused on, as the benchmark orders
        them."""
        present = {run.task for run in self.runs} | self.refused.keys()
        return [task for task in benchmark().tasks if task in present]


def select(errors: np.ndarray) -> np.ndarray:
    """Return the index of the rate with the lowest mean error, [...]; the lowest of equal ones.

    errors: on val, in percent, [..., rates, seeds], rates ascending, NaN where a run failed. A rate
    at which any seed failed is out (where all are, those with more failures than others)."""
    return _means(errors).argmin(-1)


def _means(errors: np.ndarray) -> np.ndarray:
    """The mean error of each rate, [..., rates]; infinite where more seeds failed than at others,
    and that of guessing for those that failed."""
    failures = np.isnan(errors).sum(-1)
    filled = np.where(np.isnan(errors), GUESSING_PCT, errors)
    means = filled.mean(-1).round(6)  # so that equal ones are equal
    return np.where(failures == failures.min(-1, keepdims=True), means, np.inf)


def val_errors(task: str, rates: Iterable[float], runs: Iterable[RunResult]) -> np.ndarray | None:
    """Return what `select` takes, [rates, search seeds]; None where a run of them is missing."""
    own = (run for run in runs if run.task == task)
    by_run = {(run.rate, run.seed): run.val_error_pct if run.trained else np.nan for run in own}
    places = [[(rate, seed) for seed in benchmark().search_seeds] for rate in rates]
    if any(place not in by_run for row in places for place in row):
        return None
    return np.array([[by_run[place] for place in row] for row in places], dtype=float)


def search(task: str, runs: Iterable[RunResult]) -> tuple[list[float], float | None]:
    """Return the rates of a task's search, ascending, and the chosen one; None while runs of it are
    missing. Where the best has no worse neighbour on a side, the next rate of the ladder joins
    them."""
    spec, runs = benchmark(), list(runs)
    rates = list(spec.tasks[task].rates)
    while (errors := val_errors(task, rates, runs)) is not None:
        index, means = int(select(errors)), _means(errors)
        first, last = np.flatnonzero(means == means[index])[[0, -1]]

        low, high = spec.ladder.index(rates[0]), spec.ladder.index(rates[-1])
        is_hopeless = np.isnan(errors[index]).all()
        lowest = [run for run in runs if (run.task, run.rate) == (task, rates[0])]
        is_too_high = any(run.diverged for run in lowest if run.seed in spec.search_seeds)

        if first == 0 and low > 0 and (is_too_high or not is_hopeless):
            rates.insert(0, spec.ladder[low - 1])
        elif last == len(rates) - 1 and high < len(spec.ladder) - 1 and not is_hopeless:
            rates.append(spec.ladder[high + 1])
        else:
            return rates, rates[index]
    return rates, None


def rival_rate(task: str, runs: Iterable[RunResult]) -> float | None:
    """Return the best rate beside the chosen one if the search cannot tell them apart: their mean
    errors on val differ by less than one standard error of the difference, paired by seed."""
    runs = list(runs)
    rates, chosen = search(task, runs)
    errors = val_errors(task, rates, runs)
    if chosen is None or errors is None:
        return None
    index = rates.index(chosen)
    means = _means(errors)
    means[index] = np.inf
    other = int(means.argmin())
    if np.isinf(means[other]) or np.isnan(errors[[index, other]]).any():
        return None
    gaps = errors[other] - errors[index]
    noise = gaps.std(ddof=1) / np.sqrt(len(gaps))
    return rates[other] if abs(gaps.mean()) <= noise else None


def has_failed(task: str, runs: Iterable[RunResult]) -> bool:
    """Return whether a task's search has ended without a run that trains, at any rate."""
    runs = list(runs)
    rates, chosen = search(task, runs)
    errors = val_errors(task, rates, runs)
    return chosen is not None and errors is not None and bool(np.isnan(errors).all())


def stopped_by(task: str, runs: Iterable[RunResult]) -> str | None:
    """Return the task whose failed search ends a card's work on `task`, or None: that of a
    shallower one, or its own."""
    runs = list(runs)
    names = (*benchmark().shallower(task), task)
    return next((name for name in names if has_failed(name, runs)), None)


def planned_runs(task: str, runs: Iterable[RunResult]) -> list[tuple[float, int]]:
    """Return (rate, seed) of a task's runs: the search, and once it is there, the judged runs."""
    rates, chosen = search(task, runs)
    planned = [(rate, seed) for rate in rates for seed in benchmark().search_seeds]
    if chosen is not None:
        planned += [(chosen, seed) for seed in range(benchmark().tasks[task].seeds)]
    return planned


def missing_runs(task: str, runs: Iterable[RunResult]) -> list[tuple[float, int]]:
    """Return (rate, seed) of the planned runs that are not among `runs`."""
    runs = list(runs)
    present = {(run.rate, run.seed) for run in runs if run.task == task}
    return [place for place in planned_runs(task, runs) if place not in present]


def save(folder: Path, results: EntryResults) -> Path:
    """Write an entry's file, a line per run, and return its path."""
    plain = results.model_dump(mode="json")
    rows = ",\n".join(json.dumps(run) for run in plain.pop("runs"))
    head = json.dumps(plain, indent=1).removesuffix("\n}")
    path = folder / f"{results.entry}.json"
    write_text(path, f'{head},\n "runs": [\n{rows}\n]}}\n')
    return path


def order(run: RunResult) -> tuple[int, bool, float, int]:
    """Return what runs are sorted by: task, search before judged runs, rate, seed."""
    spec = benchmark()
    is_judged = run.seed not in spec.search_seeds
    return list(spec.tasks).index(run.task), is_judged, run.rate, run.seed


def load(path: Path, are_runs_checked: bool = True) -> EntryResults:
    """Read an entry's file, which anybody may have made.

    are_runs_checked: whether each run's name is compared with its configuration, which has to be
        composed (0.1 s).

    Raises:
        InputError: where it cannot be read, is no entry, is of another benchmark or configuration,
            or its overrides reach beyond `conf/`.
    """
    try:
        results = checked(EntryResults, from_json(read_bytes(path, MAX_BYTES)))
    except (OSError, ValueError, InputError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path} is no usable entry of the benchmark ({printable(reason)}); run it again"
        ) from error

    check_overrides(results.overrides, path)
    try:
        objection = next(_objections(results, path.stem, are_runs_checked), None)
    except InputError as error:  # of an override or a seed that no run could have
        objection = str(error)
    if objection is not None:
        raise InputError(f"{path}: {printable(objection)}")
    return results


def check_overrides(overrides: Sequence[str], place: Path) -> None:
    """Refuse overrides, read from `place`, that Hydra would follow out of the configuration: of
    `hydra`, that remove or move anything, choose no option of a group, or have a `$` (Hydra reads
    `$\\{oc.env:X\\}` as a reference, too)."""
    for override in overrides:
        key, equals, value = override.partition("=")
        parts = key.removeprefix("+").split(".")
        is_setting = len(parts) > 1  # the one thing that a plus may add
        is_key = all(part.isidentifier() for part in parts) and parts[0] != "hydra"
        is_key = is_key and (is_setting or not key.startswith("+"))
        is_usable = equals and is_key and "$" not in value and override == printable(override)

        if is_usable and not is_setting and (CONF / key).is_dir():
            chosen = {name.strip(" '\"") for name in value.strip("[]").split(",")}
            is_usable = chosen <= {"null", *options(key)}
        if not is_usable:
            raise InputError(
                f"{place}: {printable(override)} is no value of a key, or option of a group, of a "
                "run; remove it"
            )


def _objections(results: EntryResults, stem: str, are_runs_checked: bool) -> Iterator[str]:
    spec, again = benchmark(), "run the entry again"
    if results.benchmark != spec.hash:
        known = f"this is {spec.version}, {spec.hash}"
        yield f"it is of the benchmark {results.benchmark}, and {known}; {again}"
    entry = Entry.of(results.overrides)
    if entry.overrides != results.overrides:
        yield f"its overrides are not an activation and an initialiser; {again}"
    if not results.entry == stem == entry.name:
        yield f"its entry is {entry.name}; name entry and file so"
    if are_runs_checked:
        yield from _objections_to_runs(results, entry)


def _objections_to_runs(results: EntryResults, entry: Entry) -> Iterator[str]:
    spec, again = benchmark(), "run the entry again"
    # of a run at one rate and seed: checking a configuration for each row takes five times as long
    hashed = {name: science(config) for name, config in entry.configs().items()}
    planned: dict[str, set[tuple[float, int]]] = {}
    for run in results.runs:
        label = f"run {run.run} of {run.task} at rate {run.rate:g}, seed {run.seed}"
        if run.task not in spec.tasks:
            yield f"{label}: {spec.version} has no such task; {again}"
        task = spec.tasks[run.task]

        # where the search is incomplete, `objection` says what is missing
        if run.task not in planned and results.rate(run.task) is not None:
            planned[run.task] = set(planned_runs(run.task, results.runs))

        at_rate = {**hashed[run.task]["optim"], "lr": run.rate}
        expected = run_id({**hashed[run.task], "optim": at_rate, "seed": run.seed})
        if run.run != expected:
            yield f"{label} has another configuration: that of the task is run {expected}; {again}"
        if run.task in planned and (run.rate, run.seed) not in planned[run.task]:
            yield f"{label} is neither of the search nor of the rate that it found; {again}"
        if run.data != task.data:
            yield f"{label} is of the data {run.data}, not of the task's; {again}"


def load_all(folder: Path, but: str = "", are_runs_checked: bool = True) -> dict[str, EntryResults]:
    """Return the entries in a folder, by name; without the one named `but`."""
    paths = (path for path in sorted(folder.glob("*.json")) if path.stem != but)
    return {path.stem: load(path, are_runs_checked) for path in paths}
