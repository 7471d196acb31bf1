"""The sections of a run's configuration: what a user may ask for, in which range, and what it
means."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from rectifiers.nn.networks.rows import Row, expand
from rectifiers.runs.texts import Project
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.ranges import LARGEST, LARGEST_PX, Count, NonNegative, Positive, Range, Real
from rectifiers.runtime.schema import Section, Words

Pixels = Annotated[int, Range(ge=1, le=LARGEST_PX)]
Store = Literal["tiled", "plain"]
ShardBytes = Annotated[int, Range(ge=1, le=2**40)]
NEED_NO_ROWS = (
    "rectifiers.training.diagnostics.fisher",
)  # which says itself what it cannot look at
WORKERS_FOR_A_GPU = 8
# Arguments of Lightning's Trainer that `train` sets, because a guarantee depends on them.
OWN_TRAINER_ARGUMENTS = {
    *("accumulate_grad_batches", "barebones", "callbacks", "check_val_every_n_epoch"),
    *("default_root_dir", "enable_checkpointing", "fast_dev_run", "inference_mode"),
    *("limit_val_batches", "logger", "max_steps", "max_time", "min_epochs", "min_steps"),
    *("num_sanity_val_steps", "plugins", "reload_dataloaders_every_n_epochs", "strategy"),
    *("sync_batchnorm", "use_distributed_sampler", "val_check_interval"),
}
OWN_TRAINER_HINTS = {
    "fast_dev_run": ", and give debug=smoke",
    "logger": ", and give logger=<option>",
    "callbacks": ", and give callbacks=<option>",
    "strategy": ", and give trainer.devices",
    "max_steps": ", and give trainer.max_epochs",
}
SOME_CLASSES = 2  # to look at rows before the data says how many there are


class Target(Section):
    """A function by its dotted name, and the settings that it is called with."""

    model_config = ConfigDict(extra="allow")
    target: str = Field(alias="_target_", description="the function's dotted name")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def at_depth(self, nonlinear_layers: int) -> "Target":
        """Return this target for a network of that depth, where its own `depth` is null; else as it
        is."""
        if self.options.get("depth", nonlinear_layers) is not None:
            return self
        return Target.model_validate(
            {"_target_": self.target, **self.options, "depth": nonlinear_layers}
        )


class Init(Target):
    """How weights and biases start."""

    bias: Real | Literal["torch_default"] = Field(
        description="of every bias; torch_default: uniform up to 1/sqrt(n)"
    )
    first_layer_linear: bool = Field(
        description="whether the first layer, which has no activation before it, gets variance 1/n"
    )
    fc_std: Annotated[tuple[Positive, ...] | None, Words("a value such as [0.01, 0.01, 0.001]")] = (
        Field(description="fixed standard deviations of the linear layers in order")
    )


class Model(Section):
    """The network: a chain of `rows`, whose further keys are for the rows to refer to, or what
    `_target_` builds."""

    model_config = ConfigDict(extra="allow")
    rows: Annotated[
        tuple[Mapping[str, Any], ...] | None, Words("a list of rows as in conf/model/<name>.yaml")
    ] = Field(None, description="the layers; see `rectifiers.nn.networks.rows`")
    target: str | None = Field(
        None,
        alias="_target_",
        description="a function (activation, classes, channels, input_px) -> module, instead",
    )
    width: Annotated[float, Range(gt=0, le=64)] = Field(description="factor on filters and units")
    norm: Literal["none", "batch", "fixup"] = Field(
        description="batch: batch normalisation before each activation; fixup: Fixup's scalar "
        "biases and multipliers, "
        "in residual networks"
    )
    dropout: Annotated[float, Range(ge=0, lt=1)] = Field(
        description="share of units dropped, where the rows say so"
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.rows is None) == (self.target is None):
            raise InputError(
                "model needs one of model.rows and model._target_; choose model=<option>"
            )
        if self.rows is not None and self.norm == "fixup":
            raise InputError(
                "model.norm=fixup is for residual networks; choose model=resnet20, or "
                "model.norm=none"
            )
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
        common = {
            "width": (self.width, 1.0),
            "norm": (self.norm, "none"),
            "dropout": (self.dropout, 0.0),
        }
        chosen = {key: value for key, (value, neutral) in common.items() if value != neutral}
        return Target.model_validate(
            {"_target_": self.target, **chosen, **(self.model_extra or {})}
        )


class Preprocess(Target):
    """What is done to pixels, fitted to the training split."""

    scale: Literal["unit_rms"] | Positive = Field(
        description="factor on the result, pixels from 0 to 1; unit_rms: divide by one root mean "
        "square"
    )


class Data(Target):
    """The images, and how they are cut and varied."""

    protocol: Literal["held_out", "paper"] = Field(
        "paper",
        description="held_out: a part of the training images chooses, and the held-out images test "
        "once; paper: the "
        "held-out images do both",
    )
    val_per_class: Count | None = Field(
        None, description="training images of each class that choose, under held_out; null: a tenth"
    )
    resize_px: Pixels = Field(description="shorter side of an image, in pixels")
    crop_px: Count = Field(description="side of the square that the network sees, in pixels")
    pad_px: Annotated[int, Range(ge=0, le=LARGEST_PX)] = Field(
        0, description="black pixels added to each side of a training image before the crop"
    )
    flip: bool = Field(description="whether half of the training images are mirrored")
    scale_jitter_px: Annotated[tuple[Pixels, Pixels] | None, Words("a range such as [256,512]")] = (
        Field(
            description="range that the shorter side is drawn from in training, instead of "
            "resize_px"
        )
    )
    color_sigma: Annotated[float, Range(ge=0, le=10)] = Field(
        description="standard deviation of the RGB shift in training; 0.1 in the paper"
    )
    color_scale: Literal["eigenvalues", "roots"] = Field(
        "eigenvalues",
        description="what the numbers of the RGB shift multiply; roots: standard deviations",
    )
    dense_scales_px: tuple[Pixels, ...] = Field(
        description="shorter sides that dense testing at several scales uses"
    )
    view_scales_px: tuple[Pixels, ...] = Field(
        description="shorter sides that multi-view testing uses"
    )
    width: float = Field(description="what model.width is unless it is given")
    batch_size: Annotated[int, Range(ge=1, le=1_000_000)] = Field(
        description="images of a step, over all processes"
    )
    num_workers: Annotated[int, Range(ge=0, le=1024)] = Field(
        0,
        description="processes that load images, for each process that trains; 0: it loads them "
        "itself",
    )
    patience: Count = Field(5, description="what scheduler.patience is unless it is given")
    content: str | None = Field(
        None,
        description="hash of the data; null: filled in when the run starts, and part of its name",
    )
    bad_images: Literal["error", "skip"] = Field(
        "error",
        description="skip: the next image replaces an unreadable one of training, and the record "
        "says so",
    )
    store: Store = Field(
        "tiled",
        description="form of prepared images; tiled: JPEGs with restart markers, decoded faster",
    )
    shard_bytes: ShardBytes = Field(2**30, description="size of a file of prepared images")
    allow_unpinned: bool = Field(
        False, description="whether to train on prepared data that no dvc.lock names"
    )

    @property
    def awaits_content(self) -> bool:
        """Whether the run's name waits for the data's hash."""
        return "content" in self.model_fields_set and self.content is None

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.crop_px > self.resize_px:
            raise InputError(
                f"data.crop_px={self.crop_px} is larger than data.resize_px={self.resize_px}; "
                "a crop is cut from the resized image: lower data.crop_px or raise data.resize_px"
            )
        jitter = self.scale_jitter_px
        if jitter is not None and not self.crop_px <= jitter[0] <= jitter[1]:
            raise InputError(
                f"data.scale_jitter_px={list(jitter)} is not usable; give a range such as "
                "[256,512] that starts at "
                f"data.crop_px={self.crop_px} or above, or null"
            )
        return self


class Optim(Target):
    """The optimiser: a class of `torch.optim`, on parameter groups of our own."""

    lr: Positive = Field(description="learning rate of the first epoch, or of the end of warm-up")
    weight_decay: NonNegative = Field(
        description="decay of the weights of conv and linear layers alone"
    )
    slope_weight_decay: NonNegative = Field(
        0.0, description="decay of learned slopes, which the paper leaves without"
    )
    bias_lr_factor: Positive = Field(description="factor on the learning rate of biases")
    fused: bool = Field(
        True, description="one pass over each weight; the same numbers but for rounding"
    )


class Scheduler(Target):
    """How the learning rate changes: `plateau` and `multistep` of ours, or a class of
    `torch.optim.lr_scheduler`, stepped after each epoch."""

    warmup_epochs: Annotated[int, Range(ge=0, le=100_000)] = Field(
        0, description="epochs in which the learning rate rises to optim.lr, step by step"
    )
    drop_factor: Annotated[float, Range(gt=1, le=LARGEST)] = Field(
        10.0, description="what a drop divides the learning rate by"
    )
    max_drops: Annotated[int, Range(ge=0)] | None = Field(None, description="drops at most")
    patience: Count | None = Field(
        None, description="epochs without a new lowest error before a drop"
    )
    milestones: Annotated[tuple[Count, ...] | None, Words("ascending epochs such as [30,60]")] = (
        Field(None, description="epochs after which the learning rate drops")
    )

    @field_validator("milestones")
    @classmethod
    def _check_order(cls, milestones: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if milestones and list(milestones) != sorted(set(milestones)):
            raise InputError(
                f"scheduler.milestones={list(milestones)} is not usable; give ascending epochs "
                "such as [30,60]"
            )
        return milestones


class Trainer(Section):
    """Arguments of Lightning's Trainer."""

    model_config = ConfigDict(extra="allow")
    accelerator: Literal["cpu", "gpu"] = Field(description="what trains and tests")
    devices: Count | Literal["auto"] = Field(
        description="processes per machine; auto: as many as GPUs, or as torchrun or srun started"
    )
    num_nodes: Count | Literal["auto"] = Field(
        description="machines; auto: as many as torchrun or srun started"
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = Field(
        description="of numbers; part of what a run is. 16-mixed works on a GPU only"
    )
    max_epochs: Annotated[int, Range(ge=1, le=100_000)] = Field(
        description="passes over the training images"
    )
    benchmark: bool = Field(
        False,
        description="whether cuDNN tries its algorithms on the first batch of each shape and keeps "
        "the fastest; the same numbers but for rounding. GPUs only",
    )

    @property
    def more(self) -> dict[str, Any]:
        """The further arguments, which Lightning checks."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _check_own(cls, given: Any) -> Any:
        for key in OWN_TRAINER_ARGUMENTS & given.keys():
            raise InputError(
                f"trainer.{key} cannot be given, because train.py sets it itself; leave it out"
                f"{OWN_TRAINER_HINTS.get(key, '')}"
            )
        if given.get("precision") in (32, 64, "32", "64"):
            return {**given, "precision": f"{given['precision']}-true"}
        return given


class Evaluation(Section):
    """The protocols that the trained network is tested by, each under its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Target]
    keep_scores: bool = Field(
        description="each image's scores are kept in <run>/scores/<protocol>.npz; four bytes per "
        "image and class"
    )

    @property
    def protocols(self) -> dict[str, Target]:
        return dict(self.__pydantic_extra__)

    @model_validator(mode="before")
    @classmethod
    def _check_protocols(cls, given: Any) -> Any:
        protocols = {
            name: settings for name, settings in given.items() if name not in cls.model_fields
        }
        if not protocols:
            raise InputError(
                f"evaluation is not chosen; give evaluation=<option> of: {options('evaluation')}"
            )
        for name, settings in protocols.items():
            if not isinstance(settings, Mapping):
                raise InputError(
                    f"evaluation.{name}={settings} is not usable; give "
                    "evaluation=[<option>,...] of: "
                    f"{options('evaluation')}"
                )
        return given


class Wandb(Target):
    """Weights & Biases."""

    project: Project = Field("rectifiers", description="the project in Weights & Biases")
    entity: str | None = Field(None, description="whose project it is; null: the account's own")
    group: str | None = Field(
        None, description="of runs; null: the experiment's table, or the name of the sweep"
    )
    mode: Literal["auto", "offline", "online"] = Field(
        "auto", description="auto: online after wandb login, else offline"
    )
    log_model: Literal["all"] | bool = Field(
        False, description="whether W&B gets the checkpoints of a ModelCheckpoint, as in Lightning"
    )
    finish_timeout_s: Annotated[float, Range(gt=0, le=86400)] = Field(
        60.0, description="seconds to wait at the end for W&B to take what is left"
    )

    @property
    def options(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"target"}, exclude_unset=True)


class Loggers(Section):
    """Where the numbers of an epoch and of the tests go besides the record: Lightning loggers, each
    under its name. `logger=[csv,wandb]` chooses several."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Target]
    wandb: Wandb | None = Field(None, description="Weights & Biases")

    def targets(self) -> dict[str, Target]:
        """Return the loggers by name."""
        return {**({"wandb": self.wandb} if self.wandb else {}), **(self.__pydantic_extra__ or {})}


class Checkpoint(Section):
    """When last.ckpt is written."""

    every_n_steps: Count | None = Field(
        description="steps between checkpoints within an epoch; null: at its end alone"
    )


def options(group: str) -> str:
    """Return the files that `group` can be chosen from, in words."""
    place = CONF / group
    return ", ".join(
        sorted(path.relative_to(place).with_suffix("").as_posix() for path in place.rglob("*.yaml"))
    )
