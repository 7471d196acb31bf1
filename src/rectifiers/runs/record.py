"""The record of a run: one JSON file, whole or absent, that tables and reports are made of.

`load` and `parse` validate a record completely, and `write` refuses what `load` would. Errors are
in percent, times in seconds, multiply-adds per image."""

import json
import math
import reprlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import from_json

from rectifiers.initialization.report import LARGEST, LayerReport, NonNegative, Positive, Rate
from rectifiers.runs.identity import run_id
from rectifiers.runs.record_parts import (
    Count,
    Divergence,
    EnsembleResult,
    Epoch,
    Json,
    Network,
    ProtocolResult,
    Provenance,
    Science,
    Slopes,
    SplitSizes,
    require,
)
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.schema import Section, describe_error

SCHEMA_VERSION: Final = 4
LARGEST_BYTES = 2**26  # of a record's file


class Member(Section):
    """A run as part of an ensemble."""

    run: str
    choices: dict[str, str | None]
    """Option of each configuration group; for an activation that is no option its module, such as
    LeakyReLU(...)."""
    science: Science
    """The configuration that can change a number; its hash is the run's name."""
    images: SplitSizes

    @model_validator(mode="after")
    def _check(self) -> "Member":
        require({"run": self.run == run_id(self.science)})
        self.images.check_split(self.science)
        return self

    @property
    def seed(self) -> int:
        return self.science["seed"]


class _Common(Section):
    schema_version: Literal[4]
    kind: str
    run: str
    """Name of the run: the hash of its science."""
    status: str
    choices: dict[str, str | None]
    science: Json
    codes: list[str]
    """Fingerprints of all sources that the run was made with."""
    provenance: Provenance
    """Code, data and machine."""


class TrainingRecord(_Common):
    """The record of a training."""

    kind: Literal["training"]
    status: Literal["finished", "diverged"]
    diverged: Divergence | None
    """Where it diverged; null if it finished."""
    overrides: list[str] | None
    """Command line after `python train.py`, without paths of the machine; null for a run from
    Python."""
    science: Science
    compute: Json
    """Configuration of the device and its processes."""
    protocols: dict[str, ProtocolResult]
    network: Network
    class_names: list[str] | None
    """Names of the classes; null in the oldest records."""
    init_report: list[LayerReport]
    """One entry per layer with weights, from the first."""
    warnings: list[str]
    """Sentences about the start and the images that a reader should know."""
    slopes: dict[str, Slopes]
    """Learned slopes by layer; empty without any, and for a diverged run."""
    activation_parameters: dict[str, Slopes] = Field({}, exclude_if=lambda learned: not learned)
    """What activations other than PReLU learned, as `<layer>/<parameter>`; absent without any, for
    a diverged run, and in older records."""
    drop_epochs: list[Positive]
    """Epochs after which the learning rate dropped."""
    epochs: Count
    stopped_by: str | None = Field(None, exclude_if=lambda name: name is None)
    """The callback that ended the training before its last step, such as EarlyStopping."""
    history: list[Epoch]
    """Numbers of each epoch; null for a number that is not finite."""
    images: SplitSizes
    images_per_second: Rate | None
    """Training images per second of wall clock; null without a completed epoch."""
    wall_s: NonNegative
    """Wall clock of training and the tests that followed it, s; later tests have their own."""

    @model_validator(mode="after")
    def _check(self) -> "TrainingRecord":
        require({"run": self.run == run_id(self.science)})
        self.images.check_split(self.science)
        _check_tested(self.images, self.protocols)

        planned, done = self.science["trainer"]["max_epochs"], len(self.history)
        is_short = self.status == "finished" and done < planned
        require(
            {
                "diverged": (self.status == "diverged") == (self.diverged is not None),
                "epochs": self.epochs == done <= planned
                and (self.stopped_by is not None or not is_short),
            }
        )
        for i, row in enumerate(self.history):
            is_whole = all(row.get(key) is not None for key in EVERY_EPOCH) and "train_loss" in row
            require({f"history.{i}": row.get("epoch") == i + 1 and is_whole})
        return self

    @property
    def seed(self) -> int:
        return self.science["seed"]

    @property
    def trainings(self) -> "Sequence[TrainingRecord | Member]":
        return [self]

    def curve(self, key: str) -> list[float]:
        """Return a number of every epoch; NaN where it was not finite."""
        values = (row[key] for row in self.history)
        return [math.nan if value is None else value for value in values]

    @property
    def command(self) -> str | None:
        """The shell line that makes the run; None where it was not made by one."""
        typed = self.overrides
        return None if typed is None else shlex.join(["python", "train.py", *typed])


EVERY_EPOCH = ("epoch", "lr", "seconds", "images_per_second", "val/top1_error_pct")


class EnsembleRecord(_Common):
    """The record of an ensemble of trainings."""

    kind: Literal["ensemble"]
    status: Literal["finished"]
    science: Json
    """The names of the members; the hash is the ensemble's name."""
    protocols: dict[str, EnsembleResult]
    members: Annotated[list[Member], Field(min_length=2)]

    @model_validator(mode="after")
    def _check(self) -> "EnsembleRecord":
        require({"run": self.run == run_id(self.science)})
        names = [member.run for member in self.members]
        require({"science": self.science == {"members": names}})
        require({"members": names == sorted(set(names))})
        for member in self.members:
            _check_tested(member.images, self.protocols)
        return self

    @property
    def seed(self) -> int:
        return self.members[0].seed

    @property
    def trainings(self) -> "Sequence[TrainingRecord | Member]":
        return self.members

    @property
    def command(self) -> str:
        """The shell line that makes the ensemble from its runs."""
        runs = ",".join(member.run for member in self.members)
        tests = ",".join(self.protocols)
        typed = ["scripts/evaluate.py", f"run=[{runs}]", f"evaluation=[{tests}]"]
        return shlex.join(["python", *typed])


Record = TrainingRecord | EnsembleRecord
RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def _check_tested(images: SplitSizes, protocols: Mapping[str, ProtocolResult]) -> None:
    tested = images.tested, images.val if images.test is None else images.test
    for name, result in protocols.items():
        require({f"protocols.{name}": (result.split, result.num_images) == tested})


def finite(number: float | None) -> float | None:
    """Return `number` as a record keeps it: None where it is infinite, NaN or too large to be
    squared."""
    return number if number is not None and abs(number) <= LARGEST else None


def to_json(record: Record, indent: int | None = None) -> str:
    """Return a record as JSON; a ValueError where `parse` would refuse it."""
    text = record.model_dump_json(indent=indent)
    parse(text)
    return text


def parse(text: str | bytes) -> Record:
    """Return the record of a JSON text; a ValueError names the field that is wrong."""
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"it is larger than {LARGEST_BYTES:,} bytes")
    values = from_json(text, allow_inf_nan=False)
    json.loads(text, object_pairs_hook=_check_keys)  # from_json takes the last of equal keys
    version = values.get("schema_version") if isinstance(values, dict) else None
    if isinstance(version, int) and version < SCHEMA_VERSION:
        raise ValueError(
            f"schema_version={version} is of an older version, and run ids have changed since; "
            f"this version reads {SCHEMA_VERSION}"
        )
    try:
        return RECORD.validate_json(text)  # in which an object may stand for a dataclass
    except ValidationError as error:
        raise ValueError(describe_error(error, values)) from None


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    """Refuse a key that stands twice: two readers could take it for different values."""
    if len(dict(pairs)) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        key = next(key for key in counts if counts[key] > 1)
        raise ValueError(f"{reprlib.repr(key)} stands twice")


def write(path: Path, record: Record) -> None:
    """Write a record atomically; a ValueError where `load` would refuse it."""
    write_text(path, to_json(record, indent=1) + "\n")


def load(path: Path) -> Record:
    """Read a record; an InputError where the file is no record of this schema."""
    try:
        return parse(read_bytes(path, LARGEST_BYTES))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a usable record ({error}); remove it, or give rerun=true"
        ) from error


def load_training(path: Path) -> TrainingRecord:
    """Read the record of a training; an InputError where the file holds something else."""
    record = load(path)
    if isinstance(record, EnsembleRecord):
        runs = ", ".join(member.run for member in record.members)
        raise InputError(
            f"{path} is an ensemble's record and not a training's; give one of its runs: {runs}"
        )
    return record
