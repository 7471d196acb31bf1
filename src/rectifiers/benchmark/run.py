"""The benchmark's runs: what is missing of an entry is run, the search of the learning rate first,
then the judged runs at the rate that `select` chooses.

A search without a run that trains, at any rate, ends the work on its task and on deeper ones, where
not all runs are asked for."""

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from rectifiers.benchmark.definition import ENTRY_GROUPS, Entry, Size, Task, benchmark
from rectifiers.benchmark.entries import (
    DIRTY,
    EntryResults,
    RunResult,
    is_installed,
    missing_runs,
    order,
    search,
    stopped_by,
)
from rectifiers.claims.measures import has_diverged
from rectifiers.cli.runner import Overrides, run_all
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import find
from rectifiers.runs.provenance import committed_file
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import missing_extra, say, without_progress
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CHECKOUT, root_folder, write_text
from rectifiers.runtime.own_modules import find_modules, named_by


def run_entry(
    entry: Entry,
    size: Size,
    processes: int | None = None,
    before: EntryResults | None = None,
    *,
    only: Collection[str] | None = None,
    is_whole: bool = False,
    keep: Callable[[EntryResults], object] | None = None,
) -> EntryResults:
    """Run what is missing of an entry on the tasks of a size; return all results that it has.

    processes: how many at a time; None: one per core. Each makes many runs. before: results of it
    that were made elsewhere; what they hold of committed code, with the user's functions as they
    are, is not run again. only: the tasks to run; None: all of the size. is_whole: whether the
    judged runs and the deeper tasks are run after a failed search, too. keep: gets the results
    after each run that ends, so that an interruption loses none.

    Raises:
        InputError: where a function of the entry cannot be imported or called, or has changed since
            it ran, no task can be run, the data of one that is not `outside` are not there, or runs
            failed.
        Stopped: where a signal asked for it; the same call goes on.
    """
    from rectifiers.training.targets import import_functions

    spec = benchmark()
    configs = entry.configs()
    config = next(iter(configs.values()))
    import_functions(config)

    tasks = {n: t for n, t in spec.of_size(size).items() if only is None or n in only}
    refused, absent = _refused(configs, tasks)
    others = spec.tasks.keys() - tasks.keys()
    kept = before.refused if before else {}
    refused |= {task: kept[task] for task in others & kept.keys()}

    known = _known_runs(before)
    results = {name: stored_results(name, config, known) for name, config in configs.items()}
    usable = {n: t for n, t in tasks.items() if n not in {*refused, *absent}}
    if not usable and not any(results.values()):  # nothing is kept: the function may be mended
        reasons = [*refused.values(), *absent.values()]
        raise InputError(f"{entry.name} cannot be run: {reasons[0]}")
    refused |= {name: "its data are not there" for name in absent if not results[name]}

    for group in ENTRY_GROUPS:
        note = config.runs_dir / ".functions" / f"{entry.name}.{group}"
        check_unchanged(getattr(config, group).target, note)
    for reason in absent.values():
        say(reason)

    def all_results() -> EntryResults:
        runs = sorted((run for name in configs for run in results[name]), key=order)
        return EntryResults(
            benchmark=spec.hash,
            entry=entry.name,
            overrides=entry.overrides,
            refused=refused,
            runs=tuple(runs),
            cost=before.cost if before else None,
        )

    def run_ended() -> None:
        if keep is not None:
            keep(all_results())

    _EntryRuns(entry, configs, usable, results, is_whole, run_ended).run(processes)
    return all_results()


def check_available(entry: Entry, size: Size) -> None:
    """Refuse, before torch is imported, an entry that names a module, an option or a folder that is
    not there, and a task or a card whose package is not installed; then, with torch, a function
    that its module does not have."""
    targets = {target: o for o in entry.overrides for target in named_by([o])}
    for target, override in targets.items():
        name = target.partition(".")[0]
        if CHECKOUT is not None:  # whose conf/ may name modules beside it
            find_modules([target], CHECKOUT)
        if name not in sys.modules and find_spec(name) is None:
            raise InputError(
                f"{override} cannot be imported (No module named '{name}'); give the dotted "
                "name of a function"
            )

    tasks = list(benchmark().of_size(size).values())
    packages = ["matplotlib", *("mnist1d" for task in tasks if "data=mnist1d" in task.overrides)]
    for package in packages:
        if find_spec(package) is None:
            raise InputError(str(missing_extra(ModuleNotFoundError(name=package))))

    outside = [task for task in tasks if task.outside]
    for task in outside[:1] or tasks[:1]:  # composing refuses what is no option
        config = entry.config(task)
        if config.data.root:
            root_folder(str(config.data.root))
        if targets:
            from rectifiers.training.targets import import_functions

            import_functions(config)


def _refused(
    configs: Mapping[str, RunConfig], tasks: Mapping[str, Task]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the tasks that cannot be run, and those whose data are not there, with the reasons;
    raise an InputError for data that every checkout has."""
    refused: dict[str, str] = {}
    absent: dict[str, str] = {}
    with without_progress():
        for name, task in tasks.items():
            try:
                if reason := refusal(configs[name]):
                    refused[name] = reason
            except InputError as error:
                if not task.outside:
                    raise
                absent[name] = f"{name} is left out: {error}"
    return refused, absent


def _known_runs(before: EntryResults | None) -> list[RunResult]:
    """The runs of committed code that earlier results hold."""
    runs = before.runs if before else ()
    return [run for run in runs if before and is_of_present_code(run, before.files())]


class _EntryRuns:
    """The runs of an entry that its results ask for: a search's first, and the judged ones when it
    ends.

    tasks: those that are run. results: by task, what is there, to which each run that ends is
    added. is_whole: whether a failed search ends nothing. run_ended: is called after that."""

    def __init__(
        self,
        entry: Entry,
        configs: Mapping[str, RunConfig],
        tasks: Mapping[str, Task],
        results: dict[str, list[RunResult]],
        is_whole: bool,
        run_ended: Callable[[], None],
    ) -> None:
        self.entry, self.configs, self.tasks = entry, configs, tasks
        self.results, self.is_whole = results, is_whole
        self.run_ended = run_ended
        self.places: dict[Overrides, tuple[str, float, int]] = {}  # of all runs asked for

    def run(self, processes: int | None) -> None:
        """Run what is missing."""
        jobs = [overrides for name in self.tasks for overrides in self.next_runs(name)]
        complete = sum(len(self.results[name]) for name in self.tasks)
        to_do = len(jobs) + self.expected()
        text = f"{self.entry.name}: {complete} runs done, {to_do} to do"
        if jobs:
            text += ", fewer where no learning rate trains, more where a search tries further ones"
        say(text)
        if failures := run_all(jobs, processes, self.follow_up, self.expected):
            raise InputError(
                f"runs of {self.entry.name} that failed: {len(failures)}, named above; the same "
                "command runs them again"
            )

    def next_runs(self, name: str) -> list[Overrides]:
        """Return the runs of a task that its results ask for and that nobody was asked for."""
        if self._is_stopped(name) or self._is_waiting(name):
            return []
        jobs = []
        for rate, seed in missing_runs(name, self.results[name]):
            overrides = self.entry.run_overrides(self.tasks[name], rate, seed)
            if overrides not in self.places:
                self.places[overrides] = (name, rate, seed)
                jobs.append(overrides)
        return jobs

    def follow_up(self, overrides: Overrides) -> list[Overrides]:
        """Keep the result of a run that ended; return what is asked for after it."""
        name, rate, seed = self.places[overrides]
        if run := stored_result(name, self.configs[name], rate, seed):
            self.results[name].append(run)
            self.run_ended()
        return [job for task in self.tasks for job in self.next_runs(task)]

    def expected(self) -> int:
        """Return how many runs the results will ask for, if each search ends at the rates that it
        has now and trains."""
        number = 0
        for name, task in self.tasks.items():
            if self._is_stopped(name):
                continue
            if self._is_waiting(name):
                number += len(missing_runs(name, self.results[name]))
            if self._rate(name) is None:
                number += task.seeds
        return number

    def _rate(self, name: str) -> float | None:
        return search(name, self.results[name])[1]

    def _is_waiting(self, name: str) -> bool:
        """Whether the search of a shallower task goes on, which may end this one's work."""
        before = [task for task in benchmark().shallower(name) if task in self.tasks]
        return not self.is_whole and any(self._rate(task) is None for task in before)

    def _is_stopped(self, name: str) -> bool:
        """Whether a failed search ended the work on a task."""
        runs = [run for task in self.tasks for run in self.results[task]]
        return not self.is_whole and stopped_by(name, runs) is not None


def check_unchanged(target: str, note: Path) -> None:
    """Check that a user's function is in the file that it was in when it first ran, of which `note`
    holds the hash: a run's name does not tell two functions of one name apart."""
    from rectifiers.training.targets import source_file

    source = None if is_installed(target) else source_file(target)
    if source is None:
        return
    content = hashlib.sha256(Path(source).read_bytes()).hexdigest()
    if note.is_file() and note.read_text() != content:
        raise InputError(
            f"{source} has changed since {target} ran; give the function another name, or "
            "runs_dir=<another folder>"
        )
    write_text(note, content)


def is_of_present_code(run: RunResult, files: Iterable[str]) -> bool:
    """Return whether a run's code was committed, with the user's `files` as they are here."""
    commit, paths = run.commit or "", [Path(file) for file in files]
    return DIRTY not in commit and all(
        path.is_file() and path.read_text().strip() == committed_file(commit, str(path))
        for path in paths
    )


def refusal(config: RunConfig) -> str | None:
    """Return why an entry cannot be run on a task, or None.

    Raises:
        InputError: where the data are not there.
    """
    from rectifiers.analysis.setup import AnalysisSetup
    from rectifiers.training.checks import check_functions

    setup = AnalysisSetup(config)
    try:
        check_functions(config, setup.functions)
        setup.initial_network(config.seed)
    except InputError as error:
        return str(error)
    return None


def stored_results(
    task: str, config: RunConfig, known: Iterable[RunResult] = ()
) -> list[RunResult]:
    """Return the results of a task's runs that are complete in the folder of runs, or known."""
    by_place = {(run.rate, run.seed): run for run in known if run.task == task}
    results: list[RunResult] = []
    tried: set[tuple[float, int]] = set()
    while new := [place for place in missing_runs(task, results) if place not in tried]:
        tried.update(new)  # what is there may ask for more
        for place in new:
            if run := stored_result(task, config, *place) or by_place.get(place):
                results.append(run)
    return results


def stored_result(task: str, config: RunConfig, rate: float, seed: int) -> RunResult | None:
    """Return the result of a run; None where it is not complete in the folder of runs."""
    run = find(config.replaced({"optim.lr": rate, "seed": seed}))
    return result_of(run.record, task) if run is not None and run.is_complete else None


def result_of(record: TrainingRecord, task: str) -> RunResult:
    """Return what the benchmark keeps of a record."""
    diverged = has_diverged(record)
    val = record.curve("val/top1_error_pct")
    sha, is_dirty = record.provenance.git_sha, record.provenance.git_dirty
    losses = [row["train_loss"] for row in record.history if row["train_loss"] is not None]
    return RunResult(
        task=task,
        rate=record.science["optim"]["lr"],
        seed=record.seed,
        run=record.run,
        data=record.provenance.data,
        commit=sha and f"{sha[:12]}{DIRTY if is_dirty else ''}",
        val_error_pct=None if diverged else val[-1],
        least_val_error_pct=None if diverged else min(val),
        test_error_pct=None if diverged else next(iter(record.protocols.values())).top1_error_pct,
        least_loss=min(losses, default=None),
    )
