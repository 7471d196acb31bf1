"""The results of one entry: a small file of numbers, made from the records of its runs, that names
every run.

`results/benchmark/<entry>.json` holds a line per run. A run's name is the hash of its whole
configuration, so that the file need not hold that: who composes the task, the entry, the rate and
the seed again must come to the same name."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from rectifiers.claims.measures import dead_share, has_diverged
from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.frame import machine_of
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Count, Number, Percent, Positive, Rate
from rectifiers.runs.trust import check_overrides
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.schema import Section

LARGEST_BYTES = 2**24
BASELINES = ("relu", "prelu")  # with He's gain; every entry is paired with them


class Origin(Section):
    """Where runs come from: the code with its commit, the images, and the machine."""

    code: str
    git_sha: str | None
    git_dirty: bool | None
    data: str
    machine: str
    torch: str


class RunResult(Section):
    """What is kept of a run's record."""

    task: str
    rate: Rate
    seed: int = Field(ge=0)
    run: str  # its name: the hash of its configuration
    origin: int = Field(ge=0)  # which of the file's origins
    diverged: bool
    val_error_pct: Percent | None  # after the last epoch; null where it diverged
    correct: Count | None  # test images that were right; null where it diverged
    num_images: Positive | None
    least_loss: (
        Number | None
    )  # the lowest mean training loss of an epoch, nats; null where there is none
    dead_share: float | None = Field(
        ge=0, le=1
    )  # hidden units that are positive on no validation image, at the end
    parameters: Count
    seconds: Number

    @model_validator(mode="after")
    def _check(self) -> "RunResult":
        if (self.correct is None) != self.diverged or (self.num_images is None) != self.diverged:
            raise ValueError(
                f"run {self.run}: correct and num_images do not fit diverged, which is "
                f"{self.diverged}"
            )
        if (
            self.correct is not None
            and self.num_images is not None
            and self.correct > self.num_images
        ):
            raise ValueError(
                f"run {self.run}: correct is {self.correct} of {self.num_images} images"
            )
        return self

    def error_pct(self, classes: int = 10) -> float:
        """Return the error on the test images, in percent; that of guessing where it diverged."""
        if self.correct is None or self.num_images is None:
            return 100 * (1 - 1 / classes)
        return 100 * (1 - self.correct / self.num_images)


class EntryResults(Section):
    """An entry with all of its runs. refused: by task, why it cannot be run there."""

    benchmark: str  # hash of the benchmark's definition
    entry: str
    overrides: tuple[str, ...]  # as typed: the activation and the initialiser
    refused: dict[str, str]
    origins: tuple[Origin, ...]
    runs: tuple[RunResult, ...]

    @model_validator(mode="after")
    def _check(self) -> "EntryResults":
        places = [(run.task, run.rate, run.seed) for run in self.runs]
        if len(set(places)) < len(places):
            raise ValueError("a task, rate and seed stands twice")
        if any(run.origin >= len(self.origins) for run in self.runs):
            raise ValueError("a run names an origin that is not there")
        return self

    def joined(self, earlier: "EntryResults") -> "EntryResults":
        """Return these results with those of an earlier file for tasks that have none here."""
        own = {run.task for run in self.runs} | set(self.refused)
        if earlier.benchmark != self.benchmark:
            return self
        moved = [
            run.model_copy(update={"origin": run.origin + len(self.origins)})
            for run in earlier.runs
        ]
        kept = tuple(run for run in moved if run.task not in own)
        refused = {
            task: reason for task, reason in earlier.refused.items() if task not in own
        } | self.refused
        origins = (*self.origins, *earlier.origins) if kept else self.origins
        return self.model_copy(
            update={"runs": (*self.runs, *kept), "refused": refused, "origins": origins}
        )

    def runs_of(self, task: str) -> list[RunResult]:
        """Return the runs of a task."""
        return [run for run in self.runs if run.task == task]


def entry_name(overrides: Iterable[str]) -> str:
    """Return the name that an activation and an initialiser have as an entry: `mish`,
    `relu+orthogonal`, `X-slope=0.1`.

    He's gain, the default, is not named. What no file's name can hold becomes an underscore.

    Raises:
        InputError: where no activation is chosen, which would then be that of conf/train.yaml.
    """
    names = {"init": "he"}
    settings: dict[str, list[str]] = {"activation": [], "init": []}
    for override in overrides:
        key, _, value = override.removeprefix("+").partition("=")
        group, _, setting = key.partition(".")
        if setting == "_target_":
            names[group] = value.rpartition(".")[2]
        elif setting:
            settings[group].append(f"-{setting}={value}")
        else:
            names[group] = value
    if "activation" not in names:
        raise InputError("an entry has no activation; give one, such as activation=relu")
    activation, init = (
        "".join([names[group], *sorted(settings[group])]) for group in ("activation", "init")
    )
    return re.sub(r"[^\w.=+-]", "_", activation if init == "he" else f"{activation}+{init}")


def result_of(record: TrainingRecord, task: str, origin: int) -> RunResult:
    """Return what the benchmark keeps of a record."""
    lost = has_diverged(record)
    tested = None if lost else next(iter(record.protocols.values()))
    losses = [row["train_loss"] for row in record.history if row["train_loss"] is not None]
    hidden = [entry.layer for entry in record.init_report if entry.activation_after]
    is_measured = bool(hidden) and all(
        f"dead_units/{layer}" in row for row in record.history[-1:] for layer in hidden
    )
    return RunResult(
        task=task,
        rate=record.science["optim"]["lr"],
        seed=record.seed,
        run=record.run,
        origin=origin,
        diverged=lost,
        val_error_pct=None if lost else record.history[-1]["val/top1_error_pct"],
        correct=tested.top1_correct if tested else None,
        num_images=tested.num_images if tested else None,
        least_loss=min(losses, default=None),
        dead_share=dead_share(record) if is_measured else None,
        parameters=record.network.parameters,
        seconds=round(record.wall_s, 2),
    )


def origin_of(record: TrainingRecord) -> Origin:
    """Return where a record comes from."""
    found = record.provenance
    return Origin(
        code=found.code,
        git_sha=found.git_sha,
        git_dirty=found.git_dirty,
        data=found.data,
        machine=machine_of(record),
        torch=found.versions.get("torch", ""),
    )


def results_of(
    benchmark: Benchmark,
    overrides: Iterable[str],
    found: Mapping[str, Iterable[TrainingRecord]],
    refused: Mapping[str, str],
) -> EntryResults:
    """Return an entry of the records that were `found` of its tasks."""
    origins: list[Origin] = []
    runs: list[RunResult] = []
    for task, records in found.items():
        for record in sorted(
            records, key=lambda each: (-each.seed, each.science["optim"]["lr"])
        ):  # the search first
            origin = origin_of(record)
            if origin not in origins:
                origins.append(origin)
            runs.append(result_of(record, task, origins.index(origin)))
    given = tuple(overrides)
    return EntryResults(
        benchmark=benchmark.hash,
        entry=entry_name(given),
        overrides=given,
        refused=dict(refused),
        origins=tuple(origins),
        runs=tuple(runs),
    )


def path_of(folder: Path, entry: str) -> Path:
    """Return where an entry's file lies."""
    return folder / f"{entry}.json"


def save(folder: Path, results: EntryResults) -> Path:
    """Write an entry's file, a line per run, and return where it is."""
    plain = results.model_dump(mode="json")
    runs = ",\n".join(json.dumps(run) for run in plain.pop("runs"))
    head = json.dumps(plain, indent=1).removesuffix("\n}")
    path = path_of(folder, results.entry)
    write_text(path, f'{head},\n "runs": [\n{runs}\n]}}\n')
    return path


def load(path: Path) -> EntryResults:
    """Read an entry's file.

    Raises:
        InputError: where it cannot be read, holds no entry, or one whose overrides reach beyond
            `conf/`.
    """
    try:
        found = EntryResults.model_validate_json(read_bytes(path, LARGEST_BYTES))
    except (OSError, ValidationError, ValueError) as error:
        reason = " ".join(str(error).splitlines()[:3])
        raise InputError(
            f"{path} is no usable entry of the benchmark ({reason}); run it again"
        ) from error
    check_overrides(found.overrides, path)
    return found


def load_all(folder: Path) -> dict[str, EntryResults]:
    """Return the entries in a folder, by name."""
    return {path.stem: load(path) for path in sorted(folder.glob("*.json"))}
