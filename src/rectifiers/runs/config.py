"""The configuration of a run, typed: what a user may ask for, in which range, and what it means.

Torch-free, so that a run that exists is found, and a wrong value refused, at once. What the
functions named by `_target_` take beside the keys here is checked against their own signatures, by
`training.build`."""

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from rectifiers.data.limits import LARGEST_PX
from rectifiers.nn.networks.rows import Row, expand
from rectifiers.runs.compute import Compute
from rectifiers.runs.texts import Folder, Project
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.ranges import LARGEST, Count, NonNegative, Positive, Range, Real
from rectifiers.runtime.schema import Section, Words, checked

Pixels = Annotated[int, Range(ge=1, le=LARGEST_PX)]
Store = Literal["tiled", "plain"]
ShardBytes = Annotated[int, Range(ge=1, le=2**40)]
NEED_NO_ROWS = (
    "rectifiers.training.diagnostics.fisher",
)  # which says itself what it cannot look at
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
    fc_std: tuple[Positive, ...] | None = Field(
        description="fixed standard deviations of the linear layers in order",
        examples=[[0.01, 0.01, 0.001]],
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


class Optim(Section):
    """Stochastic gradient descent, and when its learning rate drops."""

    lr: Positive = Field(description="learning rate of the first epoch")
    momentum: Annotated[float, Range(ge=0, lt=1)] = Field(description="momentum of every parameter")
    weight_decay: NonNegative = Field(
        description="decay of the weights of conv and linear layers alone"
    )
    slope_weight_decay: NonNegative = Field(
        0.0, description="decay of learned slopes, which the paper leaves without"
    )
    bias_lr_factor: Positive = Field(description="factor on the learning rate of biases")
    global_batch: Annotated[int, Range(ge=1, le=1_000_000)] = Field(
        description="images of a step, over all processes"
    )
    epochs: Annotated[int, Range(ge=1, le=100_000)] = Field(
        description="passes over the training images"
    )
    drop_factor: Annotated[float, Range(gt=1, le=LARGEST)] = Field(
        description="what a drop divides the learning rate by"
    )
    max_drops: Annotated[int, Range(ge=0)] = Field(
        description="drops at most, unless drop_epochs is given"
    )
    patience: Count = Field(description="epochs without a new lowest error before a drop")
    drop_epochs: Annotated[tuple[Count, ...] | None, Words("ascending epochs such as [30,60]")] = (
        Field(description="epochs after which the learning rate drops, whatever the error does")
    )
    drop_epochs_from: Annotated[
        str | Mapping[str, Any] | None, Words("a run's name, a record's path, or groups")
    ] = Field(
        description="a finished run whose drop epochs to take: its name, its record, or the groups "
        "that differ, "
        "as {activation: {_target_: rectifiers.activations.relu}}"
    )

    @field_validator("drop_epochs_from", mode="before")
    @classmethod
    def _name_of_digits(cls, value: Any) -> Any:
        return str(value) if type(value) is int else value

    @model_validator(mode="after")
    def _check_drops(self) -> Self:
        drops = list(self.drop_epochs or ())
        if drops != sorted(set(drops)):
            raise InputError(
                f"optim.drop_epochs={drops} is not usable; give ascending epochs such as "
                "[30,60], or null"
            )
        if drops and drops[-1] > self.epochs and self.drop_epochs_from is None:
            raise InputError(
                f"optim.drop_epochs={drops} goes beyond the end of the run, "
                f"optim.epochs={self.epochs}; "
                "give earlier epochs, or raise optim.epochs"
            )
        return self


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


class Logger(Section):
    """Where the numbers of an epoch go besides the record."""

    name: Literal["csv", "wandb", "none"] = Field(
        description="csv: metrics.csv in the run's folder; wandb: that, and Weights & Biases; "
        "none: the record alone"
    )
    project: Project = Field("rectifiers", description="the project in Weights & Biases")
    mode: Literal["auto", "offline", "online"] = Field(
        "auto", description="auto: online after wandb login, else offline"
    )
    log_checkpoint: bool = Field(False, description="whether W&B gets last.ckpt as an artifact")
    finish_timeout_s: Annotated[float, Range(gt=0, le=86400)] = Field(
        60.0,
        description="seconds to wait for W&B to take the results, and again for the rest; then see "
        "report.py sync",
    )


class Checkpoint(Section):
    """When last.ckpt is written."""

    every_n_steps: Count | None = Field(
        description="steps between checkpoints within an epoch; null: at its end alone"
    )


class RunConfig(Section):
    """All that makes a run: resolved and checked once, never changed. `replaced` and its like
    return another one."""

    seed: Annotated[int, Range(ge=0, le=2**32 - 1)] = Field(
        description="weights, data order, augmentation and dropout each get their own stream of it"
    )
    rerun: bool = Field(
        description="whether to run again although the run exists; the old one goes to "
        "runs/replaced"
    )
    runs_dir: Folder = Field(description="a run's folder is <runs_dir>/<hash of what it is>")
    cache_dir: Folder = Field(
        description="fitted preprocessing, by a hash of its inputs, and the hashes of image files"
    )
    activation: Target = Field(
        description="What stands after each layer with weights but the last."
    )
    init: Init
    model: Model
    preprocess: Preprocess
    data: Data
    optim: Optim
    evaluation: Evaluation
    compute: Compute
    logger: Logger
    checkpoint: Checkpoint
    callbacks: Target | None = Field(
        None,
        description="What is done to the network while it trains, or measured; nothing unless it "
        "is chosen.",
    )
    members: Annotated[
        tuple[str, ...] | None, Words("experiments such as [table6/a_relu,table6/a_prelu]")
    ] = Field(None, description="experiments whose runs are averaged, instead of a run of its own")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "RunConfig":
        """Return a resolved, plain configuration as a typed one.

        Raises:
            InputError: for the first value that cannot be used; the message names key, value and
                remedy.
        """
        for group in GROUPS:
            if not given.get(group):
                raise InputError(
                    f"{group} is not chosen; give {group}=<option> of: {options(group)}"
                )
        return checked(cls, given)

    def with_content(self, digest: str) -> "RunConfig":
        """Return the configuration of a run on data with this hash."""
        return self.replaced({"data.content": digest}) if self.data.awaits_content else self

    def with_drop_epochs(self, epochs: Sequence[int]) -> "RunConfig":
        """Return the configuration of a run whose learning rate drops after these epochs, as
        another run's did.

        Raises:
            InputError: where `optim.drop_epochs` asks for others.
        """
        if self.optim.drop_epochs not in (None, tuple(epochs)):
            raise InputError(
                f"optim.drop_epochs={list(self.optim.drop_epochs)} differs from those of "
                "optim.drop_epochs_from="
                f"{self.optim.drop_epochs_from}, {list(epochs)}; set one of them to null"
            )
        return self.replaced({"optim.drop_epochs": list(epochs)})

    def activation_at_depth(self) -> Target:
        """Return the activation with the depth of a network of rows, where it asks for that."""
        if self.model.rows is None:
            return self.activation
        return self.activation.at_depth(
            sum(row.weighted for row in self.model.layers(SOME_CLASSES)) - 1
        )

    def targets(self) -> dict[str, Target]:
        """Return every function that the configuration names, by the key of its group or
        protocol."""
        groups = {name: value for name, value in self if isinstance(value, Target)}
        if (builder := self.model.builder()) is not None:
            groups["model"] = builder
        return groups | {
            f"evaluation.{name}": protocol for name, protocol in self.evaluation.protocols.items()
        }

    def replaced(self, changes: Mapping[str, Any]) -> "RunConfig":
        """Return a configuration with other values for these dotted keys, checked like any
        other."""
        plain = self.as_dict()
        for key, value in changes.items():
            *parents, leaf = key.split(".")
            functools.reduce(lambda node, part: node[part], parents, plain)[leaf] = value
        return RunConfig.of(plain)

    @model_validator(mode="after")
    def _check_groups_together(self) -> Self:
        if self.model.rows is None:
            self._check_module()
            return self
        layers = self.model.layers(SOME_CLASSES)
        with_maps = any(row.kind == "conv" for row in layers)
        if self.compute.activation_checkpointing and self.model.norm == "batch" and with_maps:
            raise InputError(
                "compute.activation_checkpointing=true computes maps twice, and "
                "model.norm=batch would count every "
                "batch twice in its running statistics; give "
                "compute.activation_checkpointing=false or model.norm=none"
            )
        linears = [row.name for row in layers if row.kind == "linear"]
        if self.init.fc_std is not None and len(self.init.fc_std) != len(linears):
            raise InputError(
                f"init.fc_std={list(self.init.fc_std)} has {len(self.init.fc_std)} values for "
                f"{len(linears)} linear "
                f"layers ({', '.join(linears)}); give one per layer, or null"
            )
        return self

    def _check_module(self) -> None:
        callback = self.callbacks and self.callbacks.target
        for key, value, usable in (
            ("init.fc_std", self.init.fc_std, None),
            ("init.first_layer_linear", self.init.first_layer_linear, False),
            ("compute.activation_checkpointing", self.compute.activation_checkpointing, False),
            ("callbacks", None if callback in NEED_NO_ROWS else callback, None),
        ):
            if value != usable:
                raise InputError(
                    f"{key}={value} is for networks of rows, and "
                    f"model._target_={self.model.target} is none; "
                    f"give {key}={'null' if usable is None else str(usable).lower()}"
                )


GROUPS = [
    name
    for name, field in RunConfig.model_fields.items()
    if field.is_required() and (CONF / name).is_dir()
]


def options(group: str) -> str:
    """Return the files that `group` can be chosen from, in words."""
    place = CONF / group
    return ", ".join(
        sorted(path.relative_to(place).with_suffix("").as_posix() for path in place.rglob("*.yaml"))
    )
