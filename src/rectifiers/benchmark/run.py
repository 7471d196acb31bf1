"""The benchmark's runs: what is missing of an entry is run, the search of the learning rate first;
and an entry's file, `results/benchmark/<entry>.json`, with a row per run.

A run's name is the hash of its configuration, so an interrupted entry goes on, and who composes
task, entry, rate and seed of a row again must come to the same name."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from rectifiers.benchmark.definition import ENTRY_GROUPS, Entry, Size, Task, benchmark
from rectifiers.claims.measures import has_diverged
from rectifiers.runner import run_all
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import find
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Number, Percent, Rate
from rectifiers.runs.trust import check_overrides
from rectifiers.runtime.console import printable, stderr, without_progress
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.schema import Section

MAX_BYTES = 2**24
GUESSING_PCT = 90.0  # error of guessing among ten classes


class RunResult(Section):
    """What is kept of a run's record. The errors are null where the run diverged."""

    task: str
    rate: Rate
    seed: int = Field(ge=0)
    run: str  # hash of its configuration
    data: str  # hash of its images
    val_error_pct: Percent | None  # after the last epoch
    test_error_pct: Percent | None
    least_loss: Number | None  # lowest mean training loss of an epoch, nats

    @model_validator(mode="after")
    def _check_errors(self) -> "RunResult":
        if (self.val_error_pct is None) != self.diverged:
            raise ValueError(f"run {self.run}: one error is null, and the other is not")
        return self

    @property
    def diverged(self) -> bool:
        """Whether training ended in numbers that are not finite."""
        return self.test_error_pct is None

    def score(self, task: Task) -> float:
        """Return what the run is judged by, in percent, the lower the better: the error on test,
        or of a task with `reach`, 0 where an epoch's mean training loss came below it, else 100."""
        if task.reach is not None:
            return 0.0 if self.least_loss is not None and self.least_loss < task.reach else 100.0
        return GUESSING_PCT if self.test_error_pct is None else self.test_error_pct


class EntryResults(Section):
    """An entry with its runs. refused: by task, why it cannot be run there."""

    benchmark: str  # hash of the benchmark's definition
    entry: str
    overrides: tuple[str, ...]
    refused: dict[str, str]
    runs: tuple[RunResult, ...]

    @model_validator(mode="after")
    def _check_runs(self) -> "EntryResults":
        if len({(run.task, run.rate, run.seed) for run in self.runs}) < len(self.runs):
            raise ValueError("a task, rate and seed stands twice")
        return self

    def rate(self, task: str) -> float | None:
        """Return the learning rate that the search found best; None while it is incomplete."""
        return best_rate(task, self.runs)

    def judged(self, task: str) -> list[RunResult]:
        """Return the runs at the best rate, by seed."""
        rate, seeds = self.rate(task), benchmark().seeds
        runs = (run for run in self.runs if run.task == task and run.rate == rate)
        return sorted((run for run in runs if run.seed < seeds), key=lambda run: run.seed)

    def gap(self, task: str) -> str | None:
        """Return why the entry is not ranked on a task, or None: it is refused, or runs miss."""
        missing = len(missing_runs(task, self.runs))
        if self.rate(task) is None:
            missing += benchmark().seeds
        incomplete = f"{missing} run{'s' * (missing != 1)} missing" if missing else None
        return printable(self.refused[task]) if task in self.refused else incomplete

    def tasks(self) -> list[str]:
        """Return the tasks that the entry has runs of or is refused on, as the benchmark orders
        them."""
        present = {run.task for run in self.runs} | self.refused.keys()
        return [task for task in benchmark().tasks if task in present]


def best_rate(task: str, runs: Iterable[RunResult]) -> float | None:
    """Return the rate with the lowest error on val, the lower one of equals; None while a run of
    the search is missing. A run that diverged loses."""
    rates, seed = benchmark().tasks[task].rates, benchmark().search_seed
    errors = {
        run.rate: math.inf if run.val_error_pct is None else run.val_error_pct
        for run in runs
        if run.task == task and run.seed == seed
    }
    if not set(rates) <= errors.keys():
        return None
    return min(sorted(rates), key=lambda rate: errors[rate])


def planned_runs(task: str, runs: Iterable[RunResult]) -> list[tuple[float, int]]:
    """Return (rate, seed) of a task's runs: the search, and once it is there, the judged runs."""
    spec = benchmark()
    search = [(rate, spec.search_seed) for rate in spec.tasks[task].rates]
    rate = best_rate(task, runs)
    return search if rate is None else [*search, *((rate, seed) for seed in range(spec.seeds))]


def missing_runs(task: str, runs: Iterable[RunResult]) -> list[tuple[float, int]]:
    """Return (rate, seed) of the planned runs that are not among `runs`."""
    runs = list(runs)
    present = {(run.rate, run.seed) for run in runs if run.task == task}
    return [place for place in planned_runs(task, runs) if place not in present]


def run_entry(entry: Entry, size: Size, processes: int | None = None) -> EntryResults:
    """Run what is missing of an entry on the tasks of a size; return all results that it has.

    processes: how many at a time; None: one per free core.

    Raises:
        InputError: where the data of a task are not there, or runs failed.
        Stopped: where a signal asked for it; the same call goes on.
    """
    spec = benchmark()
    configs = {name: entry.config(task) for name, task in spec.tasks.items()}
    refused = {}
    with without_progress():
        for name in spec.of_size(size):
            if reason := refusal(configs[name]):
                refused[name] = reason
    tasks = {name: task for name, task in spec.of_size(size).items() if name not in refused}

    def stored() -> list[RunResult]:
        return [run for name in configs for run in stored_results(name, configs[name])]

    results = stored()
    total = sum(len(task.rates) + spec.seeds for task in tasks.values())
    complete = sum(run.task in tasks for run in results)
    text = f"{entry.name}: {total - complete} runs to do, {complete} of {total} are complete"
    stderr.print(text, highlight=False, soft_wrap=True, markup=False)
    while missing := [(name, run) for name in tasks for run in missing_runs(name, results)]:
        jobs = [entry.run_overrides(tasks[name], *run) for name, run in missing]
        if failures := run_all(jobs, processes):
            raise InputError(
                f"runs of {entry.name} that failed: {len(failures)}, named above; the same "
                "command makes them again"
            )
        results = stored()
    return EntryResults(
        benchmark=spec.hash,
        entry=entry.name,
        overrides=entry.overrides,
        refused=refused,
        runs=tuple(results),
    )


def refusal(config: RunConfig) -> str | None:
    """Return why an entry cannot be run on a task, or None.

    Raises:
        InputError: where the data are not there, or a function of the entry cannot be imported or
        called.
    """
    from rectifiers.analysis.setup import AnalysisSetup
    from rectifiers.training.build import initial_network
    from rectifiers.training.functions import check_functions, import_function

    for group in ENTRY_GROUPS:
        import_function(group, config.targets()[group])
    setup = AnalysisSetup(config)
    try:
        check_functions(config)
        initial_network(config, setup.data, setup.preprocess)
    except InputError as error:
        return str(error)
    return None


def stored_results(task: str, config: RunConfig) -> list[RunResult]:
    """Return the results of a task's runs that are complete in the folder of runs."""
    results: list[RunResult] = []
    for _ in range(2):  # the search says which runs are judged
        for rate, seed in missing_runs(task, results):
            run = find(config.replaced({"optim.lr": rate, "seed": seed}))
            if run is not None and run.is_complete:
                results.append(result_of(run.record, task))
    return results


def result_of(record: TrainingRecord, task: str) -> RunResult:
    """Return what the benchmark keeps of a record."""
    diverged = has_diverged(record)
    losses = [row["train_loss"] for row in record.history if row["train_loss"] is not None]
    return RunResult(
        task=task,
        rate=record.science["optim"]["lr"],
        seed=record.seed,
        run=record.run,
        data=record.provenance.data,
        val_error_pct=None if diverged else record.history[-1]["val/top1_error_pct"],
        test_error_pct=None if diverged else next(iter(record.protocols.values())).top1_error_pct,
        least_loss=min(losses, default=None),
    )


def save(folder: Path, results: EntryResults) -> Path:
    """Write an entry's file, a line per run, and return its path."""
    plain = results.model_dump(mode="json")
    rows = ",\n".join(json.dumps(run) for run in plain.pop("runs"))
    head = json.dumps(plain, indent=1).removesuffix("\n}")
    path = folder / f"{results.entry}.json"
    write_text(path, f'{head},\n "runs": [\n{rows}\n]}}\n')
    return path


def load(path: Path) -> EntryResults:
    """Read an entry's file, which anybody may have made.

    Raises:
        InputError: where it cannot be read, is no entry, is of another benchmark or configuration,
            or its overrides reach beyond `conf/`.
    """
    try:
        results = EntryResults.model_validate_json(read_bytes(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(
            f"{path} is no usable entry of the benchmark ({printable(reason)}); run it again"
        ) from error
    check_overrides(results.overrides, path)
    for reason in _objections(results, path.stem):
        raise InputError(f"{path}: {printable(reason)}")
    return results


def _objections(results: EntryResults, stem: str) -> Iterator[str]:
    spec = benchmark()
    if results.benchmark != spec.hash:
        yield (
            f"it is of the benchmark {results.benchmark}, and this is {spec.version}, "
            f"{spec.hash}; run the entry again"
        )
    entry = Entry.of(results.overrides)
    if entry.overrides != results.overrides:
        yield "its overrides are not an activation and an initialiser; run the entry again"
    if not results.entry == stem == entry.name:
        yield f"its entry is {entry.name}; name entry and file so"
    configs: dict[str, RunConfig] = {}
    for run in results.runs:
        label = f"run {run.run} of {run.task} at rate {run.rate:g}, seed {run.seed}"
        if run.task not in spec.tasks:
            yield f"{label}: {spec.version} has no such task"
        task = spec.tasks[run.task]
        if run.task not in configs:
            configs[run.task] = entry.config(task)
        changes = {"optim.lr": run.rate, "seed": run.seed}
        expected = run_id(science(configs[run.task].replaced(changes)))
        if run.run != expected:
            yield f"{label} has another configuration: that of the task is run {expected}"
        if (run.rate, run.seed) not in planned_runs(run.task, results.runs):
            yield f"{label} is neither of the search nor of the rate that it found"
        if run.data != task.data:
            yield f"{label} is of the data {run.data}, not of the task's"


def load_all(folder: Path) -> dict[str, EntryResults]:
    """Return the entries in a folder, by name."""
    return {path.stem: load(path) for path in sorted(folder.glob("*.json"))}
