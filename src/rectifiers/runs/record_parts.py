"""The parts of a record: what a run is made of, and what was measured. Errors are in percent, times
in seconds."""

import functools
import json
import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rectifiers.initialization.report import LARGEST, NonNegative, Number, Positive, Rate
from rectifiers.runs.identity import settings
from rectifiers.runtime.schema import JsonObject, Section, value_at

ROUNDING = 1e-6  # by which a mean of scores may leave its range
# The keys of a training's science that every reader needs, and the types of their values.
SCIENCE: Mapping[str, tuple[type, ...]] = {
    "seed": (int,),
    "data.crop_px": (int,),
    "model.width": (int, float),
    "trainer.max_epochs": (int,),
    **dict.fromkeys(("init", "activation", "preprocess"), (dict,)),
}


def require(consistent: Mapping[str, bool]) -> None:
    """Raise a ValueError that names the first field which contradicts the others."""
    for field, is_consistent in consistent.items():
        if not is_consistent:
            raise ValueError(f"{field} is missing, or contradicts the other fields")


def _json(value: JsonObject) -> JsonObject:
    json.dumps(value, allow_nan=False)
    return value


def _training_science(value: JsonObject) -> JsonObject:
    require({key: type(value_at(value, key)) in kinds for key, kinds in SCIENCE.items()})
    require({"seed": 0 <= value["seed"] < 2**63})
    return value


Json = Annotated[JsonObject, AfterValidator(_json)]
Science = Annotated[JsonObject, AfterValidator(_training_science)]  # its hash refuses NaN
Count = Annotated[int, Field(ge=0, lt=2**63)]
Percent = Annotated[float, Field(ge=0, le=100)]
# The largest values of an epoch's numbers, from 0, by the part of the key before a layer's name;
# slopes, mean responses and what callbacks of the user's measure may have any.
OF_EPOCH: Mapping[str, float] = {
    **dict.fromkeys(("val/top1_error_pct", "val/top5_error_pct"), 100),
    **dict.fromkeys(("train_loss", "val/loss", "seconds", "images_per_second"), LARGEST),
    **dict.fromkeys(("response_std", "dead_units"), LARGEST),
    "active_share": 1,
}


@functools.lru_cache(4096)  # the epochs of many records have the same keys
def _largest(key: str) -> float | None:
    return OF_EPOCH.get(key, OF_EPOCH.get(key.partition("/")[0]))


def _epoch(row: dict[str, float | None]) -> dict[str, float | None]:
    for key, value in row.items():
        largest = _largest(key)
        if largest is not None and value is not None and not 0 <= value <= largest:
            raise ValueError(f"{key}={value} is not between 0 and {largest:g}")
    return row


Epoch = Annotated[
    dict[str, Annotated[int, Field(ge=-(2**63), lt=2**63)] | Number | None], AfterValidator(_epoch)
]


class SplitSizes(Section):
    """How many images each split has."""

    train: Positive
    val: Positive
    """Images that validate: they decide on learning rates, drops and the end of a training."""
    test: Positive | None
    """Images that only a finished run is tested on; null if val tests it, as in the paper."""

    @property
    def tested(self) -> str:
        """The name of the split that a finished run is tested on."""
        return "val" if self.test is None else "test"

    def check_split(self, science: JsonObject) -> None:
        """Raise a ValueError where `science` names a protocol of other splits."""
        is_paper = settings(science)["data.protocol"] == "paper"
        require({"images.test": is_paper == (self.test is None)})


class Errors(Section):
    """Exact counts of answers, and the errors in percent that follow from them."""

    num_images: Positive
    top1_correct: Count
    top1_error_pct: Percent
    """Share of the images whose top-1 answer is wrong, %."""
    top5_correct: Count | None
    """Images whose class is among the five highest scores; null for five classes or fewer."""
    top5_error_pct: Percent | None
    """Share of the images whose class is not among the five highest scores, %."""

    @property
    def top1_errors(self) -> int:
        return self.num_images - self.top1_correct

    @model_validator(mode="after")
    def _check_counts(self) -> "Errors":
        n = self.num_images
        for name, correct, error_pct in (
            ("top1_error_pct", self.top1_correct, self.top1_error_pct),
            ("top5_error_pct", self.top5_correct, self.top5_error_pct),
        ):
            if correct is None or error_pct is None:
                require({name: correct is error_pct})
            else:
                exact = 100 * (n - correct) / n
                require({name: math.isclose(error_pct, exact, abs_tol=1e-9)})
        return self


class ProtocolResult(Errors):
    """The result of a test protocol."""

    by_scale: dict[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")], Errors]
    """Errors by scale in pixels; empty for a protocol of one scale."""
    nll: Annotated[float, Field(ge=-ROUNDING, le=LARGEST)] | None
    """Mean negative log-likelihood, nats."""
    brier: Annotated[float, Field(ge=0, le=2 + ROUNDING)] | None
    """Brier score, from 0 to 2."""
    ece: Annotated[float, Field(ge=0, le=1 + ROUNDING)] | None
    """Expected calibration error of the top-1 answer, from 0 to 1."""
    correct_mask: Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
    """One bit per image of the split, 1 for a correct top-1 answer; hexadecimal, the first image in
    the highest bit."""
    split: Literal["val", "test"]
    """The images that were tested."""
    settings: Json
    """Configuration of the protocol."""
    multiply_adds: Count
    images_per_second: Rate
    """Images tested per second of wall clock."""
    seconds: NonNegative
    scores: str | None
    """Digest of the kept scores; null where they were not kept."""
    code: str
    """Fingerprint of the source that tested."""
    git_sha: str | None
    """Commit of the source that tested; null outside of a checkout."""
    git_dirty: bool | None
    """Whether the source differed from its commit; null outside of a checkout."""

    @model_validator(mode="after")
    def _check_mask(self) -> "ProtocolResult":
        n, padding = self.num_images, -self.num_images % 4
        require({"correct_mask": len(self.correct_mask) * 4 == n + padding})
        bits = int(self.correct_mask, 16)
        has_padding = bits & ((1 << padding) - 1)
        require({"correct_mask": bits.bit_count() == self.top1_correct and not has_padding})
        require({f"by_scale.{px}": by.num_images == n for px, by in self.by_scale.items()})
        return self

    def is_correct(self) -> list[bool]:
        """Return for each image of the split, in its order, whether its top-1 answer is correct."""
        bits = f"{int(self.correct_mask, 16):0{4 * len(self.correct_mask)}b}"
        return [bit == "1" for bit in bits[: self.num_images]]


class EnsembleResult(ProtocolResult):
    """The result of a test protocol for the mean of the members' scores."""

    member_scores: list[str | None]
    """Digest of each member's kept scores, in the order of `members`."""


class Network(Section):
    """The network that was trained."""

    depth: Positive
    input_px: Positive
    """Side of the square input, px."""
    channels: Positive
    classes: Positive
    parameters: Count
    slopes: Count
    multiply_adds: Count
    activation: str | None = Field(None, exclude_if=lambda name: name is None)
    """The first activation with its settings, LeakyReLU(negative_slope=0.01); absent without one,
    and in older records."""


class Slopes(Section):
    """The learned slopes of a layer, or another learned parameter of its activation, over its
    channels."""

    mean: Number
    std: NonNegative
    min: Number
    max: Number
    channels: Positive
    """Number of slopes; 1 for a shared one."""

    @model_validator(mode="after")
    def _check_order(self) -> "Slopes":
        room = ROUNDING * max(abs(self.min), abs(self.max))
        require({"mean": self.min - room <= self.mean <= self.max + room})
        require({"std": self.std <= self.max - self.min + room})
        return self


class Divergence(Section):
    """Where the loss or a layer was first not finite."""

    step: Count
    layer: str
    """First layer that is not finite."""


class Machine(Section):
    """The machine of a run."""

    system: str
    cpu: str
    instructions: str | None = None
    """Instruction set of torch's kernels, such as AVX2; another one rounds differently. Null in
    records before 0.3.0."""
    cores: Positive | None
    """Logical processors."""
    threads: Positive
    """Threads of torch."""
    device: str
    """GPU, or cpu."""


class Provenance(Section):
    """Where numbers come from. Contains no names of people or hosts and no secrets."""

    code: str
    """Fingerprint of the source."""
    git_sha: str | None
    """Commit of the source; null outside of a checkout."""
    git_dirty: bool | None
    """Whether the source differed from its commit; null outside of a checkout."""
    lock: str | None
    data: str
    data_pinned: bool | None
    """Whether a dvc.lock names prepared data; null for other data."""
    statistics: str | None
    """Hash of the fitted preprocessing; null for an ensemble."""
    versions: dict[str, str]
    machine: Machine
