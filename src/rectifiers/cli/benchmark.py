"""The benchmark's runs: what is missing of an entry is run, the search of the learning rate first.

Runs are named by what they are, so that an interrupted entry goes on, and several processes can
work on one."""

import functools
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rectifiers.cli.composition import COMPUTED, Choices, compose_with_choices, resolve
from rectifiers.results.benchmark.definition import Benchmark, Size, Task, benchmark, task_hash
from rectifiers.results.benchmark.entries import EntryResults, entry_name, result_of, results_of
from rectifiers.results.benchmark.standing import best_rate
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import RunLockedError, find, is_locked, run_folder
from rectifiers.runs.identity import science
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import LineTimer, duration, stderr, without_progress
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import deferring_signals, stop_if_requested

OF_ENTRY = ("activation", "init")  # the groups whose keys an entry may give
WITHOUT_CHOICE = "activation=relu"  # what an initialiser alone is run with
# what may be given besides
PLACES = ("runs_dir", "cache_dir", "data.root", "trainer", *COMPUTED, "logger")
WAIT_S = 0.5  # between looks at runs that another process has
Place = tuple[float, int]  # of a run in a task: its learning rate and its seed


@dataclass(frozen=True)
class Entry:
    """What is judged, and where its runs are to be: overrides of the activation and the
    initialiser, and of places."""

    overrides: tuple[str, ...]
    places: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The entry's name, that of its file."""
        return entry_name(self.overrides)

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "Entry":
        """Return the entry of a command line; an initialiser alone is taken with ReLU.

        Raises:
            InputError: for a key that the protocol does not leave to an entry.
        """
        own, places = [], []
        for each in arguments:
            key, equals, _ = each.partition("=")
            if equals and key.removeprefix("+").partition(".")[0] in OF_ENTRY:
                own.append(each)
            elif equals and _is_place(key):
                places.append(each)
            else:
                raise InputError(
                    f"{each} is not the entry's to choose, for tasks fix all but the "
                    "activation and the initialiser; "
                    f"give activation=, init= and their settings, or a place: {', '.join(PLACES)}"
                )
        if not any(each.startswith("activation=") for each in own):
            own = [WITHOUT_CHOICE, *own]
        return cls(tuple(own), tuple(places))

    def configuration(self, task: Task) -> tuple[RunConfig, Choices, tuple[str, ...]]:
        """Return (configuration, choices, overrides) of its runs of a task, but for the rate and
        the seed."""
        return _configuration(self, task.overrides)


def _is_place(key: str) -> bool:
    is_within = any(key == place or key.startswith(f"{place}.") for place in PLACES)
    return is_within and (not key.startswith("trainer.") or key in COMPUTED)


@functools.cache
def _configuration(
    entry: Entry, of_task: tuple[str, ...]
) -> tuple[RunConfig, Choices, tuple[str, ...]]:
    overrides = (
        *benchmark().always,
        *of_task,
        "logger=none",
        "threads=1",
        *entry.overrides,
        *entry.places,
    )
    config, choices = compose_with_choices(overrides)
    return resolve(config), choices, overrides


@dataclass
class Progress:
    """The runs of an entry on some tasks: what is there, what is refused, and what is next."""

    benchmark: Benchmark
    entry: Entry
    tasks: dict[str, Task]
    found: dict[str, dict[Place, TrainingRecord]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    timer: LineTimer = field(default_factory=LineTimer)
    before: int = 0  # runs that were there when this began

    def places(self, name: str) -> list[Place]:
        """Return the runs of a task that are known: the search, and where that is whole, those that
        are judged."""
        task, own = self.tasks[name], self.found[name]
        seed = self.benchmark.search_seed
        searched = {
            rate: result_of(own[rate, seed], name, 0) for rate in task.rates if (rate, seed) in own
        }
        rate = best_rate(task, searched)
        judged = [] if rate is None else [(rate, seed) for seed in range(self.benchmark.seeds)]
        return [*((rate, seed) for rate in task.rates), *judged]

    def missing(self, name: str) -> Iterator[Place]:
        """Yield the runs of a task that are not there, and note those that are; the search comes
        first."""
        own, seen = self.found.setdefault(name, {}), set[Place]()
        while (
            new := []
            if name in self.refused
            else [place for place in self.places(name) if place not in seen]
        ):
            for place in new:
                seen.add(place)
                if place not in own and (record := self.look(name, place)) is not None:
                    own[place] = record
                if place not in own:
                    yield place

    def run(self, name: str, place: Place) -> tuple[RunConfig, Choices, list[str]]:
        """Return the configuration, choices and overrides of one run."""
        config, choices, overrides = self.entry.configuration(self.tasks[name])
        rate, seed = place
        typed = [*overrides, f"optim.lr={rate:g}", f"seed={seed}"]
        return config.replaced({"optim.lr": rate, "seed": seed}), choices, typed

    def look(self, name: str, place: Place) -> TrainingRecord | None:
        """Return the record of a run that is there already."""
        found = find(self.run(name, place)[0])
        return found.record if found is not None and found.is_complete else None

    def count(self) -> tuple[int, int]:
        """Return how many runs are there, of how many."""
        own = {name: task for name, task in self.tasks.items() if name not in self.refused}
        return sum(len(self.found.get(name, ())) for name in own), sum(
            map(self.benchmark.runs_of, own.values())
        )

    def announce(self) -> None:
        """Print what is to be done, and what is done already."""
        for name in self.tasks:
            for _ in self.missing(name):  # notes what is there
                pass
        done, total = self.count()
        self._say(f"{total} runs in all, of which {done} are done already")

    def tell(self) -> None:
        """Print how far it is, where a line is due."""
        done, total = self.count()
        self.before = self.before or done - 1
        if self.timer.is_due():
            left = (total - done) * (self.timer.clock() - self.timer.started) / (done - self.before)
            self._say(f"{done} of {total} runs, {duration(left)} left")

    def _say(self, text: str) -> None:
        stderr.print(f"{self.entry.name}: {text}", highlight=False, soft_wrap=True, markup=False)

    def results(self) -> EntryResults:
        """Return what there is as an entry's results."""
        found = {name: list(self.found.get(name, {}).values()) for name in self.tasks}
        return results_of(self.benchmark, self.entry.overrides, found, self.refused)


def check_task(name: str, task: Task, config: RunConfig) -> None:
    """Check that the configuration is what the benchmark's version says of a task.

    Raises:
        InputError: where conf/ has changed since.
    """
    if (own := task_hash(science(config))) != task.science:
        raise InputError(
            f"task {name} comes to {own} here, and {benchmark().version} has {task.science}: "
            "conf/ has changed; "
            "restore it, or make another version of the benchmark"
        )


def refusal(config: RunConfig) -> str | None:
    """Return why an entry cannot be run on a task, or None.

    Raises:
        InputError: where the data are not there, or a function of the entry cannot be imported or
        called.
    """
    from rectifiers.analysis.setup import AnalysisSetup
    from rectifiers.training.build import initial_network
    from rectifiers.training.checks import check_functions
    from rectifiers.training.functions import import_function

    for group in OF_ENTRY:
        import_function(group, config.targets()[group])
    setup = AnalysisSetup(config)
    try:
        check_functions(config)
        initial_network(config, setup.data, setup.preprocess)
    except InputError as error:
        return str(error)
    return None


def work(entry: Entry, size: Size, first: int = 0) -> EntryResults:
    """Run what is missing of an entry, and return its results; runs that another process has are
    waited for.

    first: the task to begin with, so that several processes meet seldom.

    Raises:
        InputError: where the data of a task are not there.
        Stopped: where a signal asked for it; the same call goes on.
    """
    progress = Progress(benchmark(), entry, benchmark().of_size(size))
    for name, task in progress.tasks.items():
        config = entry.configuration(task)[0]
        check_task(name, task, config)
        with without_progress():
            reason = refusal(config)
        if reason is not None:
            progress.refused[name] = reason
    if not first:
        progress.announce()
    names = list(progress.tasks)
    with deferring_signals():
        while not _pass(progress, [*names[first:], *names[:first]]):
            time.sleep(WAIT_S)
            stop_if_requested("between two runs")
    return progress.results()


def _pass(progress: Progress, names: Sequence[str]) -> bool:
    """Run what is missing and no other process has; return whether nothing is left, not even
    elsewhere."""
    is_done = True
    for name in names:
        for place in progress.missing(name):
            is_done = False
            config, choices, typed = progress.run(name, place)
            if is_locked(_folder(config)):
                continue
            with suppress(
                RunLockedError
            ):  # by a process that looked in the same instant; the next pass finds what it made
                progress.found[name][place] = _train(config, choices, typed)
                progress.tell()
                stop_if_requested("between two runs")
    return is_done


def _train(config: RunConfig, choices: Choices, overrides: Sequence[str]) -> TrainingRecord:
    from rectifiers.training.run import train

    with (
        without_progress(),
        warnings.catch_warnings(action="ignore"),
    ):  # of a drift, which the card draws
        return train(config, choices, overrides).record


def _folder(config: RunConfig) -> Path:
    folder = run_folder(config)
    assert folder is not None  # a task's data are named by their hash, or by what makes them
    return folder
