"""What benchmark v1 is: its tasks with their grids of learning rates, its seeds, and the hash that
names all of it."""

import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from rectifiers.runs.identity import run_id, without
from rectifiers.runtime.ranges import Count, Positive, Range
from rectifiers.runtime.schema import Section, checked

PLACE = Path(__file__).with_name("v1.yaml")
VARIED = (
    "activation",
    "init",
    "seed",
    "optim.lr",
)  # what a task leaves to the entry, to the search and to the draw
Size = Literal["quick", "full"]


class Task(Section):
    """A network, its data and its training, at which every entry gets the same budget."""

    size: Size = Field(description="quick: minutes on two cores; full: for a GPU or a night")
    title: str = Field(description="what it asks, in words")
    overrides: tuple[str, ...] = Field(description="as typed after train.py, besides `always`")
    rates: Annotated[tuple[Positive, ...], Field(min_length=2)] = Field(
        description="the learning rates that are searched"
    )
    reach: Positive | None = Field(
        None,
        description="the training loss, in nats, below which a run counts as trained; null: the "
        "error counts",
    )
    science: str = Field(
        description="hash of the configuration without what varies: see `task_hash`"
    )
    data: str = Field(description="hash of the images")


class Benchmark(Section):
    """A version of the benchmark; a number belongs to the one whose `hash` its entry names."""

    version: str
    seeds: Annotated[int, Range(ge=5, le=1000)] = Field(
        description="judged runs per task, of seeds 0, 1, ..."
    )
    search_seed: Count = Field(description="of the runs that choose the learning rate")
    always: tuple[str, ...] = Field(description="as typed after train.py, for all tasks")
    tasks: dict[str, Task]

    @property
    def hash(self) -> str:
        """12 hex digits of all that can change a number."""
        numbers = self.model_dump(mode="json", exclude={"tasks": {"__all__": {"title"}}})
        return run_id(numbers)

    def of_size(self, size: Size) -> dict[str, Task]:
        """Return the tasks of a size, by name."""
        return {name: task for name, task in self.tasks.items() if task.size == size}

    def runs_of(self, task: Task) -> int:
        """Return how many runs an entry needs for a task: a search at every rate, and every
        seed."""
        return len(task.rates) + self.seeds


@functools.cache
def benchmark() -> Benchmark:
    """Return the present version."""
    return checked(Benchmark, yaml.safe_load(PLACE.read_text()))


def task_hash(science: dict[str, Any]) -> str:
    """Return the hash of what a run's task fixes."""
    return run_id(without(science, VARIED))
