"""The sections of a run's configuration: what a user may ask for, in which range, and what it
means."""

import difflib
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from rectifiers.models.rows import Row, expand
from rectifiers.runs import role
from rectifiers.runs.options import options
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import LARGEST, LARGEST_PX, Count, NonNegative, Positive, Range, Real
from rectifiers.runtime.schema import JsonObject, Section
from rectifiers.runtime.words import meaning

Pixels = Annotated[int, Range(ge=1, le=LARGEST_PX)]
DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")  # of a function
# The rules for dropping the learning rate whose settings `Scheduler` declares.
PLATEAU, MULTISTEP = "rectifiers.training.optim.plateau", "rectifiers.training.optim.multistep"
NEED_NO_ROWS = ("rectifiers.training.diagnostics.FisherMeasure",)  # it says what it cannot look at
WORKERS_FOR_A_GPU = 8
OF_SOURCES = ("root", "download", "size", "split_seed")  # which not every source takes
SOME_CLASSES = 2  # to look at rows before the data says how many there are


class Target(Section):
    """A function by its dotted name, and the settings that it is called with."""

    model_config = ConfigDict(extra="allow")
    target: str = role.science(alias="_target_")  #: the function's dotted name

    @property
    def options(self) -> JsonObject:
        return dict(self.model_extra or {})

    def at_depth(self, nonlinear_layers: int) -> "Target":
        """Return this target for a network of that depth, where its own `depth` is null; else as it
        is."""
        if self.options.get("depth", nonlinear_layers) is not None:
            return self
        return self.model_copy(update={"depth": nonlinear_layers})


class Init(Target):
    """How weights and biases start."""

    #: value of biases; torch_default: uniform, +-1/sqrt(n)
    bias: Real | Literal["torch_default"] = role.science()
    #: empirical: correct each layer by its responses to the first batch; see
    #: `rectifiers.initialize`
    mode: Literal["closed_form", "empirical"] = role.science("closed_form")
    #: whether the first layer gets variance 1/n, because no activation precedes it
    first_layer_linear: bool = role.science()
    #: fixed standard deviations of the linear layers, in order
    fc_std: tuple[Positive, ...] | None = role.science()
    #: a finished run (its id, or its folder) or a file of weights: layers with the same name and
    #: shape start from its weights, and the rule draws the others
    from_weights: Path | None = role.place(None)
    #: hash of those weights; null: filled in when the run starts; part of the run id
    from_weights_content: str | None = role.science(None)

    @property
    def awaits_weights(self) -> bool:
        """Whether the run's name waits for the hash of the weights that it starts from."""
        return self.from_weights is not None and self.from_weights_content is None

    @field_validator("from_weights", mode="before")
    @classmethod
    def _check_is_name(cls, given: object) -> object:
        if isinstance(given, int | float):  # YAML takes an id such as 12345e678901 for one
            raise InputError(
                f"init.from_weights={given} was read as a number; give the folder of the run, such "
                "as runs/<id>"
            )
        return given

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.mode == "empirical" and self.from_weights is not None:
            raise InputError(
                "init.mode=empirical scales each drawn layer by its responses, and cannot be "
                "combined with init.from_weights; give init.mode=closed_form"
            )
        if self.mode == "empirical" and (self.fc_std is not None or self.first_layer_linear):
            has_std = self.fc_std is not None
            key, usual = ("fc_std", "null") if has_std else ("first_layer_linear", "false")
            raise InputError(
                f"init.mode=empirical measures every layer, which init.{key} fixes; give "
                f"init.{key}={usual}"
            )
        return self


class Model(Section):
    """The network: a chain of `rows`, which may refer to further keys, or a module that `_target_`
    builds."""

    model_config = ConfigDict(extra="allow")
    #: the layers; see `rectifiers.models.rows`
    rows: tuple[JsonObject, ...] | None = role.science(None)
    #: instead of rows: a function (activation, classes, channels, input_px) -> module
    target: str | None = role.science(None, alias="_target_")
    #: factor on the numbers of filters and units
    width: Annotated[float, Range(gt=0, le=64)] = role.science()
    #: batch: batch normalisation before each activation
    norm: Literal["none", "batch"] = role.science()
    #: dropout rate, for rows that refer to it
    dropout: Annotated[float, Range(ge=0, lt=1)] = role.science()

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.rows is None) == (self.target is None):
            raise InputError("model needs either rows or _target_; choose model=<option>")
        return self

    def layers(self, classes: int) -> tuple[Row, ...]:
        """Return the rows at their width, the last one with a unit for each of `classes`."""
        assert self.rows is not None
        return expand(self.rows, width=self.width, classes=classes)

    def builder(self) -> Target | None:
        """Return the function that builds the network, with its settings; None for rows.

        It need not take the settings that every model has: a width of 1, no norm and no dropout are
        not passed on."""
        if self.target is None:
            return None
        common = (("width", 1.0), ("norm", "none"), ("dropout", 0.0))
        chosen = {key: getattr(self, key) for key, usual in common if getattr(self, key) != usual}
        return Target.model_validate(
            {"_target_": self.target, **chosen, **(self.model_extra or {})}
        )


class Preprocess(Target):
    """How pixels are transformed, fitted to the training images."""

    #: factor on the result for pixels from 0 to 1; unit_rms: makes the root mean square 1
    scale: Literal["unit_rms"] | Positive = role.science()


class Data(Target):
    """The images, and how they are resized, cropped and augmented."""

    #: held_out: part of the training images validates, and the test images are used once; paper:
    #: the test images do both
    protocol: Literal["held_out", "paper"] = role.science("paper")
    #: training images per class held out for validation, with held_out; null: a tenth
    val_per_class: Count | None = role.science(None)
    #: the folder of the data, for a source that reads one; null: `data/`
    root: Path | None = role.place(None, ranks_differ=True, free=True)
    #: whether a source may download what is not there
    download: bool = role.machine(False, ranks_differ=True, free=True)
    #: which of a source's archives is used; `content` is the hash of what was read
    size: str | None = role.machine(None, free=True)
    #: seed of the split of a source that comes without one
    split_seed: Annotated[int, Range(ge=0, le=2**32 - 1)] | None = role.seed(None)
    resize_px: Pixels = role.science()  #: shorter side of an image, in pixels
    crop_px: Count = role.science()  #: side of the square crop, in pixels; or length of a signal
    #: whether images are signals, 1 x crop_px, which are neither resized nor augmented
    signal: bool = role.science(False)
    #: black pixels added to each side of a training image before the crop
    pad_px: Annotated[int, Range(ge=0, le=LARGEST_PX)] = role.science(0)
    flip: bool = role.science()  #: whether half of the training images are mirrored
    #: range of the shorter side in training, in place of resize_px
    scale_jitter_px: tuple[Pixels, Pixels] | None = role.science()
    #: standard deviation of the RGB shift in training; 0.1 in the paper
    color_sigma: Annotated[float, Range(ge=0, le=10)] = role.science()
    #: shorter sides for dense testing at several scales
    dense_scales_px: tuple[Pixels, ...] = role.look(free=True)
    #: shorter sides for multi-view testing
    view_scales_px: tuple[Pixels, ...] = role.look(free=True)
    width: float = role.look()  #: default of model.width
    #: images per step, of all processes together
    batch_size: Annotated[int, Range(ge=1, le=1_000_000)] = role.science()
    #: loader processes per training process; 0: the training process loads
    num_workers: Annotated[int, Range(ge=0, le=1024)] = role.machine(
        0, ranks_differ=True, free=True
    )
    patience: Count = role.look(5)  #: default of scheduler.patience
    #: hash of the data; null: filled in when the run starts; part of the run id
    content: str | None = role.science(None)
    #: whether to train on prepared data without a committed dvc.lock
    allow_unpinned: bool = role.machine(False, free=True)

    @property
    def options(self) -> JsonObject:
        """The settings of the source: its own, and what several sources take."""
        chosen = {key: getattr(self, key) for key in OF_SOURCES if key in self.model_fields_set}
        # null is the source's own default, as where the key is left out
        shared = {key: value for key, value in chosen.items() if value is not None}
        if self.root is not None:
            shared["root"] = str(self.root)
        return shared | super().options

    @property
    def awaits_content(self) -> bool:
        """Whether the run's name waits for the data's hash."""
        return "content" in self.model_fields_set and self.content is None

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.signal:
            if self.resize_px != 1 or self.pad_px or self.flip or self.scale_jitter_px:
                raise InputError(
                    "data.signal=true takes signals as they are; give data.resize_px=1, "
                    "data.pad_px=0, data.flip=false and data.scale_jitter_px=null"
                )
            return self

        if self.crop_px > self.resize_px:
            raise InputError(
                f"data.crop_px={self.crop_px} is larger than data.resize_px={self.resize_px}; "
                "lower data.crop_px or raise data.resize_px"
            )

        jitter = self.scale_jitter_px
        if jitter is not None and not self.crop_px <= jitter[0] <= jitter[1]:
            raise InputError(
                f"data.scale_jitter_px={list(jitter)} is no range above the crop; give one such "
                f"as [{self.crop_px},{2 * self.crop_px}] that starts at data.crop_px, or null"
            )
        return self


class Optim(Target):
    """The optimiser: a class of `torch.optim`, with this project's parameter groups."""

    lr: Positive = role.science()  #: learning rate of the first epoch, or of the end of warm-up
    weight_decay: NonNegative = role.science()  #: only on the weights of conv and linear layers
    #: decay of learned slopes; the paper has none
    slope_weight_decay: NonNegative = role.science(0.0)
    bias_lr_factor: Positive = role.science()  #: factor on the learning rate of biases
    #: if the optimiser has one
    momentum: Annotated[float, Range(ge=0, lt=1)] | None = role.science(None)
    fused: bool = role.machine(True)  #: fused kernels; changes only the rounding


class Scheduler(Target):
    """How the learning rate changes after each epoch: `plateau`, `multistep`, or a class of
    `torch.optim.lr_scheduler`."""

    #: epochs in which the learning rate rises to optim.lr, step by step
    warmup_epochs: Annotated[int, Range(ge=0, le=100_000)] = role.science(0)
    #: a drop divides the learning rate by this
    drop_factor: Annotated[float, Range(gt=1, le=LARGEST)] = role.science(10.0)
    #: largest number of drops
    max_drops: Annotated[int, Range(ge=0)] | None = role.science(None)
    patience: Count | None = role.science(None)  #: epochs without a new lowest error before a drop
    #: epochs after which the learning rate drops
    milestones: Annotated[tuple[Count, ...], Field(max_length=1000)] | None = role.science(None)

    @field_validator("milestones")
    @classmethod
    def _check_order(cls, milestones: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if milestones and list(milestones) != sorted(set(milestones)):
            raise ValueError("should be ascending epochs such as [30,60]")
        return milestones


class Trainer(Section):
    """Arguments of Lightning's Trainer. `train` sets those that are not here, because a guarantee
    depends on them."""

    accelerator: Literal["cpu", "gpu"] = role.machine(free=True)  #: the device
    #: processes per machine; auto: as many as GPUs, or as torchrun or srun started
    devices: Count | Literal["auto"] = role.machine(free=True)
    #: machines; auto: as many as torchrun or srun started
    num_nodes: Count | Literal["auto"] = role.machine(free=True)
    #: part of the run id; 16-mixed needs a GPU
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = role.science()
    #: passes over the training images
    max_epochs: Annotated[int, Range(ge=1, le=100_000)] = role.science()
    #: whether cuDNN measures its algorithms on the first batch of each shape and keeps the fastest;
    #: changes only the rounding; needs a GPU
    benchmark: bool = role.machine(False)
    #: use only deterministic operations
    deterministic: bool | Literal["warn"] | None = role.science(None)
    enable_model_summary: bool = role.look(False)  #: print the layers before training
    #: show a progress bar; default: only on a terminal
    enable_progress_bar: bool = role.look(False)
    #: clip gradients to this norm or value
    gradient_clip_val: NonNegative | None = role.science(None)
    #: what is clipped
    gradient_clip_algorithm: Literal["norm", "value"] | None = role.science(None)
    #: batches per epoch, or a fraction such as 0.5
    limit_train_batches: int | float | None = role.science(None)
    #: steps between what callbacks such as LearningRateMonitor log; loggers get a row an epoch
    log_every_n_steps: Annotated[int, Range(ge=0)] | None = role.look(None)
    #: train on these batches only, a number or a fraction
    overfit_batches: int | float | None = role.science(None)

    @property
    def more(self) -> JsonObject:
        """The optional arguments that were given; null leaves Lightning's default."""
        given = {key: getattr(self, key) for key in self.model_fields_set - KEYS_OF_TRAINER}
        return {key: value for key, value in given.items() if value is not None}

    @field_validator("limit_train_batches", "overfit_batches")
    @classmethod
    def _check_batches(cls, batches: int | float | None) -> int | float | None:
        # not 1.0, which a run id does not tell from 1, a single batch
        is_number = type(batches) is int and batches >= 1
        if batches is not None and not is_number and not 0 < batches < 1:
            raise ValueError("should be a whole number at least 1, or a fraction below 1")
        return batches

    @model_validator(mode="before")
    @classmethod
    def _check_own(cls, values: JsonObject) -> JsonObject:
        for key in values.keys() - cls.model_fields.keys():
            near = difflib.get_close_matches(key, cls.model_fields, n=1)
            meant = f"give trainer.{near[0]}" if near else "leave it out"
            remedy = meaning(f"trainer.{key}") or meant
            raise InputError(f"trainer.{key} is not for a run to set; {remedy}")
        if values.get("precision") in (32, 64, "32", "64"):
            return {**values, "precision": f"{values['precision']}-true"}
        return values


# Those that conf/trainer has.
KEYS_OF_TRAINER = {"benchmark"} | {
    name for name, field in Trainer.model_fields.items() if field.is_required()
}


class Evaluation(Section):
    """The protocols that the trained network is tested by, each under its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Target]
    #: write each image's scores to <run>/scores/<protocol>.npz; eight bytes per image and class
    keep_scores: bool

    @property
    def protocols(self) -> dict[str, Target]:
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _check_protocols(self) -> Self:
        if not self.protocols:
            raise not_chosen("evaluation")
        return self


class Checkpoint(Section):
    """When last.ckpt is written."""

    every_n_steps: Count | None  #: steps between checkpoints; null: only at the end of an epoch


def not_chosen(group: str) -> InputError:
    """Return the error that a group has no option."""
    known = ", ".join(options(group))
    return InputError(f"{group} is not chosen; give {group}=<option> of: {known}")
