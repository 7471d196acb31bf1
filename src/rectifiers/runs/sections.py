"""The sections of a run's configuration: what a user may ask for, in which range, and what it
means."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from rectifiers.models.rows import Row, expand
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.ranges import LARGEST, LARGEST_PX, Count, NonNegative, Positive, Range, Real
from rectifiers.runtime.schema import JsonObject, Section

Pixels = Annotated[int, Range(ge=1, le=LARGEST_PX)]
Store = Literal["tiled", "plain"]
ShardBytes = Annotated[int, Range(ge=1, le=2**40)]
NEED_NO_ROWS = ("rectifiers.training.diagnostics.FisherMeasure",)  # it says what it cannot look at
WORKERS_FOR_A_GPU = 8
# Arguments of Lightning's Trainer that `train` sets, because a guarantee depends on them.
OWN_TRAINER_ARGUMENTS = {
    *("accumulate_grad_batches", "barebones", "callbacks", "check_val_every_n_epoch"),
    *("default_root_dir", "enable_checkpointing", "fast_dev_run", "inference_mode"),
    *("limit_val_batches", "logger", "max_steps", "max_time", "min_epochs", "min_steps"),
    *("num_sanity_val_steps", "plugins", "reload_dataloaders_every_n_epochs", "strategy"),
    *("sync_batchnorm", "use_distributed_sampler", "val_check_interval"),
}
# Those that a run may have besides the keys of conf/trainer.
MORE_TRAINER_ARGUMENTS = {
    *("detect_anomaly", "deterministic", "enable_autolog_hparams", "enable_model_summary"),
    *("enable_progress_bar", "gradient_clip_algorithm", "gradient_clip_val"),
    *("limit_predict_batches", "limit_test_batches", "limit_train_batches", "log_every_n_steps"),
    *("model_registry", "overfit_batches", "profiler"),
}
OWN_TRAINER_HINTS = {
    "fast_dev_run": "debug=smoke",
    "logger": "logger=<option>",
    "callbacks": "callbacks=<option>",
    "strategy": "trainer.devices",
    "max_steps": "trainer.max_epochs",
}
SOME_CLASSES = 2  # to look at rows before the data says how many there are


class Target(Section):
    """A function by its dotted name, and the settings that it is called with."""

    model_config = ConfigDict(extra="allow")
    target: str = Field(alias="_target_")  #: the function's dotted name

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

    bias: Real | Literal["torch_default"]  #: of every bias; torch_default: uniform up to 1/sqrt(n)
    #: empirical: each layer is corrected by its responses to the first batch; see
    #: `rectifiers.initialize`
    mode: Literal["closed_form", "empirical"] = "closed_form"
    #: whether the first layer, which has no activation before it, gets variance 1/n
    first_layer_linear: bool
    #: fixed standard deviations of the linear layers in order
    fc_std: tuple[Positive, ...] | None

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.mode == "empirical" and (self.fc_std is not None or self.first_layer_linear):
            key = "fc_std" if self.fc_std is not None else "first_layer_linear"
            usual = "null" if self.fc_std is not None else "false"
            raise InputError(
                f"init.mode=empirical measures every layer, which init.{key} fixes; give "
                f"init.{key}={usual}"
            )
        return self


class Model(Section):
    """The network: a chain of `rows`, whose further keys are for the rows to refer to, or what
    `_target_` builds."""

    model_config = ConfigDict(extra="allow")
    #: the layers; see `rectifiers.models.rows`
    rows: tuple[JsonObject, ...] | None = None
    #: a function (activation, classes, channels, input_px) -> module, instead
    target: str | None = Field(None, alias="_target_")
    width: Annotated[float, Range(gt=0, le=64)]  #: factor on filters and units
    #: batch: batch normalisation before each activation; fixup: Fixup's scalar biases and
    #: multipliers, in residual networks
    norm: Literal["none", "batch", "fixup"]
    dropout: Annotated[float, Range(ge=0, lt=1)]  #: share of units dropped, where the rows say so

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.rows is None) == (self.target is None):
            raise InputError("model needs either rows or _target_; choose model=<option>")
        if self.rows is not None and self.norm == "fixup":
            raise InputError("model.norm=fixup is for residual networks; choose model=resnet20")
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
    """What is done to pixels, fitted to the training split."""

    #: factor on the result, pixels from 0 to 1; unit_rms: divide by one root mean square
    scale: Literal["unit_rms"] | Positive


class Data(Target):
    """The images, and how they are cut and varied."""

    #: held_out: a part of the training images chooses, and the held-out images test once; paper:
    #: the held-out images do both
    protocol: Literal["held_out", "paper"] = "paper"
    #: training images of each class that choose, under held_out; null: a tenth
    val_per_class: Count | None = None
    resize_px: Pixels  #: shorter side of an image, in pixels
    crop_px: Count  #: side of the square that the network sees, in pixels; a signal's length
    #: whether an image is a row of crop_px numbers, 1 x n, that is neither resized nor varied
    signal: bool = False
    #: black pixels added to each side of a training image before the crop
    pad_px: Annotated[int, Range(ge=0, le=LARGEST_PX)] = 0
    flip: bool  #: whether half of the training images are mirrored
    #: range that the shorter side is drawn from in training, instead of resize_px
    scale_jitter_px: tuple[Pixels, Pixels] | None
    #: standard deviation of the RGB shift in training; 0.1 in the paper
    color_sigma: Annotated[float, Range(ge=0, le=10)]
    #: what the numbers of the RGB shift multiply; roots: standard deviations
    color_scale: Literal["eigenvalues", "roots"] = "eigenvalues"
    dense_scales_px: tuple[Pixels, ...]  #: shorter sides that dense testing at several scales uses
    view_scales_px: tuple[Pixels, ...]  #: shorter sides that multi-view testing uses
    width: float  #: what model.width is unless it is given
    batch_size: Annotated[int, Range(ge=1, le=1_000_000)]  #: images of a step, over all processes
    #: processes that load images, for each process that trains; 0: it loads them itself
    num_workers: Annotated[int, Range(ge=0, le=1024)] = 0
    patience: Count = 5  #: what scheduler.patience is unless it is given
    #: hash of the data; null: filled in when the run starts, and part of its name
    content: str | None = None
    #: skip: the next image replaces an unreadable one of training, and the record says so
    bad_images: Literal["error", "skip"] = "error"
    #: form of prepared images; tiled: JPEGs with restart markers, decoded faster
    store: Store = "tiled"
    shard_bytes: ShardBytes = 2**30  #: size of a file of prepared images
    allow_unpinned: bool = False  #: whether to train on prepared data that no dvc.lock names

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
    """The optimiser: a class of `torch.optim`, on parameter groups of our own."""

    lr: Positive  #: learning rate of the first epoch, or of the end of warm-up
    weight_decay: NonNegative  #: decay of the weights of conv and linear layers alone
    slope_weight_decay: NonNegative = 0.0  #: decay of learned slopes; the paper has none
    bias_lr_factor: Positive  #: factor on the learning rate of biases
    momentum: Annotated[float, Range(ge=0, lt=1)] | None = None  #: where the optimiser has one
    fused: bool = True  #: one pass over each weight; the same numbers but for rounding


class Scheduler(Target):
    """How the learning rate changes: `plateau` and `multistep` of ours, or a class of
    `torch.optim.lr_scheduler`, stepped after each epoch."""

    #: epochs in which the learning rate rises to optim.lr, step by step
    warmup_epochs: Annotated[int, Range(ge=0, le=100_000)] = 0
    #: what a drop divides the learning rate by
    drop_factor: Annotated[float, Range(gt=1, le=LARGEST)] = 10.0
    max_drops: Annotated[int, Range(ge=0)] | None = None  #: drops at most
    patience: Count | None = None  #: epochs without a new lowest error before a drop
    #: epochs after which the learning rate drops
    milestones: tuple[Count, ...] | None = None

    @field_validator("milestones")
    @classmethod
    def _check_order(cls, milestones: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if milestones and list(milestones) != sorted(set(milestones)):
            raise ValueError("should be ascending epochs such as [30,60]")
        return milestones


class Trainer(Section):
    """Arguments of Lightning's Trainer."""

    model_config = ConfigDict(extra="allow")
    accelerator: Literal["cpu", "gpu"]  #: what trains and tests
    #: processes per machine; auto: as many as GPUs, or as torchrun or srun started
    devices: Count | Literal["auto"]
    num_nodes: Count | Literal["auto"]  #: machines; auto: as many as torchrun or srun started
    #: of numbers; part of what a run is. 16-mixed works on a GPU only
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
    max_epochs: Annotated[int, Range(ge=1, le=100_000)]  #: passes over the training images
    #: whether cuDNN tries its algorithms on the first batch of each shape and keeps the fastest;
    #: the same numbers but for rounding. GPUs only
    benchmark: bool = False

    @property
    def more(self) -> JsonObject:
        """The further arguments, which Lightning checks."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _check_own(cls, values: JsonObject) -> JsonObject:
        for key in values.keys() - cls.model_fields.keys() - MORE_TRAINER_ARGUMENTS:
            instead = OWN_TRAINER_HINTS.get(key)
            remedy = f"give {instead}" if instead else "leave it out"
            raise InputError(f"trainer.{key} is not for a run to set; {remedy}")
        if values.get("precision") in (32, 64, "32", "64"):
            return {**values, "precision": f"{values['precision']}-true"}
        return values


class Evaluation(Section):
    """The protocols that the trained network is tested by, each under its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Target]
    #: each image's scores are kept in <run>/scores/<protocol>.npz; four bytes per image and class
    keep_scores: bool

    @property
    def protocols(self) -> dict[str, Target]:
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _check_protocols(self) -> Self:
        if not self.protocols:
            raise not_chosen("evaluation")
        return self


class Wandb(Target):
    """Weights & Biases."""

    project: str = "rectifiers"  #: the project in Weights & Biases
    entity: str | None = None  #: whose project it is; null: the account's own
    group: str | None = None  #: of runs; null: the experiment's table, or the name of the sweep
    #: auto: online after wandb login, else offline
    mode: Literal["auto", "offline", "online"] = "auto"
    #: whether W&B gets the checkpoints of a ModelCheckpoint, as in Lightning
    log_model: Literal["all"] | bool = False
    #: seconds to wait at the end for W&B to take what is left
    finish_timeout_s: Annotated[float, Range(gt=0, le=86400)] = 60.0

    @property
    def options(self) -> JsonObject:
        return self.model_dump(mode="json", exclude={"target"}, exclude_unset=True)


class Loggers(Section):
    """Where the numbers of an epoch and of the tests go besides the record: Lightning loggers, each
    under its name. `logger=[csv,wandb]` chooses several."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Target]
    wandb: Wandb | None = None  #: Weights & Biases

    def targets(self) -> dict[str, Target]:
        """Return the loggers by name."""
        return {**({"wandb": self.wandb} if self.wandb else {}), **(self.__pydantic_extra__ or {})}


class Checkpoint(Section):
    """When last.ckpt is written."""

    every_n_steps: Count | None  #: steps between checkpoints within an epoch; null: at its end


def not_chosen(group: str) -> InputError:
    """Return the error that a group has no option."""
    return InputError(f"{group} is not chosen; give {group}=<option> of: {options(group)}")


def options(group: str) -> str:
    """Return the files that `group` can be chosen from, in words."""
    place = CONF / group
    paths = (path.relative_to(place).with_suffix("") for path in place.rglob("*.yaml"))
    return ", ".join(sorted(path.as_posix() for path in paths))
