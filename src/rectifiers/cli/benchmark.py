"""The benchmark's runs: what is missing of an entry is run, the search of the learning rate first.

Runs are named by what they are, so that an interrupted entry goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rectifiers.cli.composition import COMPUTED, Choices, compose_job
from rectifiers.results.benchmark.definition import Benchmark, Size, Task, benchmark, task_hash
from rectifiers.results.benchmark.entries import EntryResults, entry_name, result_of, results_of
from rectifiers.results.benchmark.standing import best_rate
from rectifiers.runner import Overrides, run_all
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import find
from rectifiers.runs.identity import science
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import stderr, without_progress
from rectifiers.runtime.errors import InputError

OF_ENTRY = ("activation", "init")  # the groups whose keys an entry may give
WITHOUT_CHOICE = "activation=relu"  # what an initialiser alone is run with
# what may be given besides
PLACES = ("runs_dir", "cache_dir", "data.root", "trainer", *COMPUTED, "logger")
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

    def overrides_of(self, task: Task) -> Overrides:
        """Return the overrides of its runs of a task, but for the rate and the seed."""
        fixed = (*benchmark().always, *task.overrides, "logger=none", "threads=1")
        return (*fixed, *self.overrides, *self.places)

    def configuration(self, task: Task) -> tuple[RunConfig, Choices]:
        """Return (configuration, choices) of its runs of a task, but for the rate and the seed."""
        return compose_job(self.overrides_of(task))


def _is_place(key: str) -> bool:
    is_within = any(key == place or key.startswith(f"{place}.") for place in PLACES)
    return is_within and (not key.startswith("trainer.") or key in COMPUTED)


@dataclass
class Progress:
    """The runs of an entry on some tasks: those that are there, and the tasks that it is refused
    on, with the reasons."""

    benchmark: Benchmark
    entry: Entry
    tasks: dict[str, Task]
    found: dict[str, dict[Place, TrainingRecord]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

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

    def missing(self) -> list[Overrides]:
        """Note the runs that are there, and return the overrides of those that are known and are
        not."""
        missing = []
        for name in self.tasks:
            if name in self.refused:
                continue
            records = self.found.setdefault(name, {})
            for _ in range(2):  # what is judged is known when the search is there
                for place in self.places(name):
                    if place not in records and (record := self.look(name, place)) is not None:
                        records[place] = record
            missing += [
                self.run(name, place) for place in self.places(name) if place not in records
            ]
        return missing

    def run(self, name: str, place: Place) -> Overrides:
        """Return the overrides of one run."""
        rate, seed = place
        overrides = self.entry.overrides_of(self.tasks[name])
        return (*overrides, f"optim.lr={rate:g}", f"seed={seed}")

    def look(self, name: str, place: Place) -> TrainingRecord | None:
        """Return the record of a run that is there already."""
        result = find(compose_job(self.run(name, place))[0])
        return result.record if result is not None and result.is_complete else None

    def announce(self) -> None:
        """Print how many runs there are in all, and how many are there."""
        tasks = {name: task for name, task in self.tasks.items() if name not in self.refused}
        done = sum(len(self.found.get(name, ())) for name in tasks)
        total = sum(map(self.benchmark.runs_of, tasks.values()))
        text = f"{self.entry.name}: {total} runs in all, of which {done} are done already"
        stderr.print(text, highlight=False, soft_wrap=True, markup=False)

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


def work(entry: Entry, size: Size, processes: int | None = None) -> EntryResults:
    """Run what is missing of an entry, and return its results.

    processes: how many at a time; None: one per free core.

    Raises:
        InputError: where the data of a task are not there, or runs failed.
        Stopped: where a signal asked for it; the same call goes on.
    """
    progress = Progress(benchmark(), entry, benchmark().of_size(size))
    for name, task in progress.tasks.items():
        config, _ = entry.configuration(task)
        check_task(name, task, config)
        with without_progress():
            reason = refusal(config)
        if reason is not None:
            progress.refused[name] = reason
    missing = progress.missing()
    progress.announce()
    while missing:  # the search, and then what is judged
        if failures := run_all(missing, processes):
            raise InputError(
                f"runs of {entry.name} that failed: {len(failures)}, named above; the same "
                "command makes them again"
            )
        missing = progress.missing()
    return progress.results()
