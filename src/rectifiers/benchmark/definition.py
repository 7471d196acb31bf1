"""What a version of the benchmark is: its tasks with their learning rates, its seeds and rules, and
the hash that names all of it; and what an entry chooses."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from annotated_types import MinLen
from pydantic import model_validator

from rectifiers.cli.composition import compose_job
from rectifiers.cli.runner import Overrides
from rectifiers.runs.config import FREE, PATHS, RunConfig
from rectifiers.runs.identity import run_id, science, without
from rectifiers.runs.options import options
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.ranges import Count, Positive, Range
from rectifiers.runtime.schema import JsonObject, Section, checked

DEFINITION = Path(__file__).with_name("v4.yaml")
VARIED = ("activation", "init", "seed", "optim.lr")  # what a task's hash leaves out
DEFAULTS = {"activation": "relu", "init": "he"}  # options of an entry that does not choose
ENTRY_GROUPS = tuple(DEFAULTS)  # whose keys an entry may choose
FUNCTION = "relu"  # the option whose `_target_` a function of the user's replaces
# what may be given besides: none of it moves a number
PLACES = ("trainer", *(key for key in FREE if key != "evaluation"))
RUNS = "runs/cards"
Size = Literal["quick", "full", "late"]
SIZES: tuple[Size, ...] = ("quick", "full", "late")


class Task(Section):
    """A network, its data and its training, on which every entry gets the same budget."""

    # quick: minutes on two cores; full: for a GPU or a night; late: for the entries of `late`
    size: Size
    early: str | None = None  # the task that has fewer epochs, of one of size late
    title: str  # what it asks, in words
    # layers with weights, of a task that asks whether they train; null: the error counts
    depth: Count | None = None
    outside: bool = False  # whether its data are a user's, in data.root
    overrides: tuple[str, ...]  # as typed after train.py, besides `always`
    # of the search, neighbours on the benchmark's ladder
    rates: Annotated[tuple[Positive, ...], MinLen(2)]
    seeds: Annotated[int, Range(ge=5, le=1000)]  # judged runs, of seeds 0, 1, ...
    science: str  # hash of the configuration without what varies
    data: str  # hash of the images


class Admission(Section):
    """Entries of which the first must be worse than the second, by its whole 95 % interval."""

    worse: str
    better: str


class Benchmark(Section):
    """A version of the benchmark; a number belongs to the one whose `hash` its entry names."""

    version: str
    search_seeds: Annotated[tuple[Count, ...], MinLen(2)]  # of the runs that choose the rate
    reach: Positive  # training loss, nats, below which a run counts as trained
    admission: Admission  # of tasks whose error counts
    controls: tuple[str, ...]  # entries that are shown and not ranked
    late: tuple[str, ...]  # entries of size late, as typed; part of the hash alone
    ladder: tuple[Positive, ...]  # rates, ascending, to which a search may extend
    always: tuple[str, ...]  # as typed after train.py, for all tasks
    tasks: dict[str, Task]

    @property
    def hash(self) -> str:
        """12 hex digits of all that can change a number."""
        return run_id(self.model_dump(mode="json", exclude={"tasks": {"__all__": {"title"}}}))

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        for name, task in self.tasks.items():
            first = self.ladder.index(task.rates[0]) if task.rates[0] in self.ladder else 0
            if self.ladder[first : first + len(task.rates)] != task.rates:
                raise ValueError(f"the rates of {name} are no neighbours on the ladder")
        return self

    def of_size(self, size: Size, is_error: bool | None = None) -> dict[str, Task]:
        """Return the tasks of a size, by name; of one kind, where `is_error` says which."""
        tasks = {name: task for name, task in self.tasks.items() if task.size == size}
        return {n: t for n, t in tasks.items() if is_error in (None, t.depth is None)}

    def shallower(self, name: str) -> list[str]:
        """Return the tasks that ask for a smaller depth than `name` does, of its size, the
        shallowest first; none where it asks for no depth."""
        own = self.tasks[name]
        depths = {n: t.depth or 0 for n, t in self.of_size(own.size, is_error=False).items()}
        names = [other for other, depth in depths.items() if depth < (own.depth or 0)]
        return sorted(names, key=lambda other: depths[other])


@functools.cache
def benchmark() -> Benchmark:
    """Return the present version."""
    return checked(Benchmark, yaml.safe_load(DEFINITION.read_text()))


def task_hash(config: RunConfig) -> str:
    """Return the hash of what a task fixes of its runs' configuration."""
    return run_id(without(science(config), VARIED))


@dataclass(frozen=True)
class Entry:
    """What is judged: overrides of the activation and the initialiser; and places of its runs."""

    overrides: Overrides
    places: Overrides = ()

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "Entry":
        """Return the entry of a command line; an initialiser alone is taken with ReLU, and
        activation=my_file.my_function is a function of the user's.

        Raises:
            InputError: for a key that the protocol does not leave to an entry.
        """
        overrides, places = [], []
        for argument in arguments:
            key, equals, value = argument.partition("=")
            if equals and key == "activation" and "." in value and "/" not in value:
                overrides += [f"activation={FUNCTION}", f"activation._target_={value}"]
            elif equals and _is_of_entry(key.lstrip("+")):
                overrides.append(argument)
            elif equals and _is_place(key):
                places.append(argument)
            else:
                raise InputError(
                    f"{argument} cannot be chosen: a task fixes all but activation and "
                    "initialiser; give activation=, init=, their settings, or one of: "
                    f"{', '.join(PLACES)}"
                )

        if not any(override.startswith("activation=") for override in overrides):
            overrides = ["activation=relu", *overrides]
        return cls(tuple(overrides), tuple(places))

    @property
    def name(self) -> str:
        """`mish`, `relu+orthogonal`, `my_file.f`, `elu-alpha=2`: the activation and, unless it is
        He's, the initialiser. What no file name can hold becomes an underscore."""
        names = {"init": "he"}
        settings: dict[str, list[str]] = {"activation": [], "init": []}
        for override in self.overrides:
            key, _, value = override.removeprefix("+").partition("=")
            group, _, setting = key.partition(".")
            if setting == "_target_":
                names[group] = value  # with its dots: no option has any
            elif setting:
                settings[group].append(f"-{setting}={value}")
            else:
                names[group] = value

        activation, init = ("".join([names[g], *sorted(settings[g])]) for g in ENTRY_GROUPS)
        return re.sub(r"[^\w.=+-]", "_", activation if init == "he" else f"{activation}+{init}")

    def with_init(self, rule: str) -> "Entry":
        """Return the entry with another initialiser, without settings of its own."""
        keys = {o: o.removeprefix("+").partition("=")[0] for o in self.overrides}
        kept = [o for o, key in keys.items() if key.partition(".")[0] != "init"]
        return Entry((*kept, f"init={rule}"), self.places)

    def run_overrides(self, task: Task, rate: float, seed: int) -> Overrides:
        """Return the overrides of one run."""
        fixed = (*benchmark().always, *task.overrides, "logger=none", "threads=1")
        places = [p for p in self.places if task.outside or not p.startswith("data.root=")]
        places = [f"runs_dir={RUNS}", *places]  # of two places, the last counts
        return (*fixed, *self.overrides, *places, f"optim.lr={rate:g}", f"seed={seed}")

    def config(self, task: Task) -> RunConfig:
        """Return the configuration of its runs of a task, at one rate and seed.

        Raises:
            InputError: where conf/ is not that of the benchmark's version.
        """
        config = compose_job(self.run_overrides(task, task.rates[0], seed=0))[0]
        if (composed := task_hash(config)) != task.science:
            raise InputError(
                f"the task '{task.title}' comes to {composed}, and {benchmark().version} has "
                f"{task.science}: conf/ has changed; restore it, or make another version"
            )
        return config

    def configs(self) -> dict[str, RunConfig]:
        """Return the configuration of its runs of each task, at one rate and seed. Composing takes
        0.1 s, so each task is composed once for all entries, and an entry of options alone is
        read."""
        tasks, relu = benchmark().tasks, Entry(("activation=relu",), self.places)
        first = next(iter(tasks.values()))
        shared = relu.config(first).as_dict()
        own = self._read_groups(shared) or self.config(first).as_dict()

        configs = {}
        for name, task in tasks.items():
            config = relu.config(task)
            fixed = config.as_dict()
            groups = {g: _laid_over(fixed[g], own[g], shared[g]) for g in ENTRY_GROUPS}
            configs[name] = config.replaced(groups)
        return configs

    def _read_groups(self, shared: JsonObject) -> JsonObject | None:
        """Return the settings of the entry's groups by the files of its options, whose keys take
        the place of the default option's in `shared`; None for an entry with more than options,
        which has to be composed."""
        chosen = {**DEFAULTS, **dict(override.split("=", 1) for override in self.overrides)}
        if any(option not in options(group) for group, option in chosen.items()):
            return None

        groups = {}
        for group, default in DEFAULTS.items():
            replaced = _settings_of(group, default)
            kept = {k: value for k, value in shared[group].items() if k not in replaced}
            groups[group] = {**kept, **_settings_of(group, chosen[group])}
        return groups


@functools.cache
def _settings_of(group: str, option: str) -> JsonObject:
    return load_yaml((CONF / group / f"{option}.yaml").read_text())


def _laid_over(of_task: JsonObject, own: JsonObject, shared: JsonObject) -> JsonObject:
    """The settings of a group of an entry's: what the entry leaves as ReLU has it (`shared`), a
    task may change."""
    settings = dict(own)
    for key, value in own.items():
        if key in shared and value == shared[key]:
            settings[key] = of_task[key]
    return settings


def _is_of_entry(key: str) -> bool:
    """Return whether an entry may choose a key; none may name a file of this machine."""
    return key.partition(".")[0] in ENTRY_GROUPS and key not in PATHS


def _is_place(key: str) -> bool:
    is_within = any(key == place or key.startswith(f"{place}.") for place in PLACES)
    return is_within and (not key.startswith("trainer.") or key in FREE)
