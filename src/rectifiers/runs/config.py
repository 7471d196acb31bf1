"""The configuration of a run, typed: what a user may ask for, in which range, and what it means.

Torch-free, so that a run that exists is found, and a wrong value refused, at once. What the
functions named by `_target_` take beside the keys here is checked against their own signatures, by
`training.targets`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator

from rectifiers.runs import role
from rectifiers.runs.role import Key, Role
from rectifiers.runs.sections import (
    NEED_NO_ROWS,
    SOME_CLASSES,
    WORKERS_FOR_A_GPU,
    Checkpoint,
    Data,
    Evaluation,
    Init,
    Model,
    Optim,
    Preprocess,
    Scheduler,
    Target,
    Trainer,
    not_chosen,
)
from rectifiers.runtime.distributed import check_share
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.ranges import Range
from rectifiers.runtime.schema import JsonObject, Section, checked


class RunConfig(Section):
    """All that makes a run: resolved and checked once, never changed. `replaced` and its like
    return another one."""

    #: of weights, data order, augmentation and dropout; each has its own stream
    seed: Annotated[int, Range(ge=0, le=2**32 - 1)] = role.seed()
    #: whether to repeat a run that exists; the old one is moved to runs/replaced
    rerun: bool = role.place()
    #: the folder of a run is <runs_dir>/<run id>
    runs_dir: Path = role.place(free=True)
    #: folder that keeps fitted preprocessing and the hashes of image files
    cache_dir: Path = role.place(ranks_differ=True, free=True)
    #: the activation after each layer with weights, except the last
    activation: Target = role.science()
    init: Init
    model: Model
    preprocess: Preprocess
    data: Data
    trainer: Trainer
    optim: Optim
    scheduler: Scheduler
    evaluation: Evaluation = role.look(free=True)
    #: Lightning loggers, which get the numbers that the record has
    logger: dict[str, Target] = role.place({}, free=True)
    checkpoint: Checkpoint = role.look()
    #: callbacks that change or measure the network while it trains
    callbacks: dict[str, Target] | None = role.science(None)
    #: words that loggers store with the run
    tags: tuple[str, ...] = role.look(())
    #: a checkpoint of this run to continue from; null: its newest
    ckpt_path: Path | None = role.place(None)
    #: number of threads of torch; null: torch's default
    threads: Annotated[int, Range(ge=1, le=4096)] | None = role.machine(
        None, ranks_differ=True, free=True
    )
    compile: bool = role.machine(False, free=True)  #: whether torch.compile compiles the network
    #: order of maps in memory; changes only the rounding
    channels_last: bool = role.machine(True, free=True)
    #: the fastest setting of a GPU with bfloat16: bfloat16, TF32, channels last, fused optimiser,
    #: trainer.benchmark, and CUDA graphs, whatever the other keys say; part of the run id
    fast: bool = role.science(False)
    #: seconds to wait for another process, or for images, before the run ends
    timeout_s: Annotated[float, Range(gt=0, le=86400)] = role.machine(600, free=True)
    #: experiments of an ensemble, whose runs are averaged
    members: tuple[str, ...] | None = role.science(None)

    @classmethod
    def of(cls, values: JsonObject) -> "RunConfig":
        """Return a resolved, plain configuration as a typed one."""
        for group in GROUPS:
            if not values.get(group):
                raise not_chosen(group)
        return checked(cls, _fill_in(values))

    def check_processes(self, processes: int) -> None:
        """Refuse to train by so many processes where they cannot share a batch, or where the share
        is one image, of which vectors have no statistics."""
        check_share(self.data.batch_size, processes)
        if self.model.rows is None or self.model.norm != "batch":
            return
        hidden = [row for row in self.model.layers(SOME_CLASSES) if row.weighted][:-1]
        if self.data.batch_size == processes and any(row.kind == "linear" for row in hidden):
            raise one_image_a_process(self.data.batch_size)

    @property
    def awaits_content(self) -> bool:
        """Whether the run's name waits for the hash of its data, or of weights."""
        return self.data.awaits_content or self.init.awaits_weights

    def with_content(self, digest: str) -> "RunConfig":
        """Return the configuration of a run on data with this hash."""
        return self.replaced({"data.content": digest}) if self.data.awaits_content else self

    def activation_at_depth(self) -> Target:
        """Return the activation with the depth of a network of rows, where it asks for that."""
        if self.model.rows is None:
            return self.activation
        layers = sum(row.weighted for row in self.model.layers(SOME_CLASSES))
        return self.activation.at_depth(layers - 1)  # the last has no activation

    @property
    def is_fused(self) -> bool:
        """Whether the optimiser's step is fused. Lightning clips no gradients that such a step
        unscales by itself."""
        is_clipped = self.trainer.precision == "16-mixed" and self.trainer.gradient_clip_val
        return self.optim.fused and not is_clipped

    def hardware(self) -> JsonObject:
        """Return what a record keeps of where it was computed, and how."""
        return self.trainer.as_dict() | {
            "threads": self.threads,
            "compile": self.compile,
            "channels_last": self.channels_last,
            "fast": self.fast,
            "timeout_s": self.timeout_s,
            "num_workers": self.data.num_workers,
            "fused": self.is_fused,
        }

    def targets(self) -> dict[str, Target]:
        """Return every function that the configuration names, by its key."""
        groups = {name: value for name, value in self if isinstance(value, Target)}
        if (builder := self.model.builder()) is not None:
            groups["model"] = builder

        named = {
            "callbacks": self.callbacks or {},
            "evaluation": self.evaluation.protocols,
            "logger": self.logger,
        }
        for section, targets in named.items():
            groups |= {f"{section}.{name}": target for name, target in targets.items()}
        return groups

    def replaced(self, changes: Mapping[str, object]) -> "RunConfig":
        """Return a configuration with other values for these dotted keys, checked like any
        other."""
        plain = self.as_dict()
        for key, value in changes.items():
            *parents, leaf = key.split(".")
            node = plain
            for part in parents:
                node = node[part]
            node[leaf] = value
        return RunConfig.of(plain)

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        milestones, warmup = self.scheduler.milestones or (), self.scheduler.warmup_epochs
        if any(epoch < warmup for epoch in milestones):
            raise InputError(
                f"scheduler.milestones={list(milestones)} begins within scheduler.warmup_epochs="
                f"{warmup}, which sets the learning rate by itself; give later epochs"
            )
        if max(milestones, default=0) > self.trainer.max_epochs:
            raise InputError(
                f"scheduler.milestones={list(milestones)} goes beyond "
                f"trainer.max_epochs={self.trainer.max_epochs}; give earlier epochs, or raise "
                "trainer.max_epochs"
            )
        return self

    @model_validator(mode="after")
    def _check_predictions(self) -> Self:
        for name, logger in self.logger.items():
            if logger.options.get("log_predictions") is True and not self.evaluation.keep_scores:
                raise InputError(
                    f"logger.{name}.log_predictions=true needs the scores of the test; give "
                    "evaluation.keep_scores=true"
                )
        return self

    @model_validator(mode="after")
    def _check_groups_together(self) -> Self:
        if self.model.rows is None:
            self._check_module()
            return self

        layers = self.model.layers(SOME_CLASSES)
        linears = [row.name for row in layers if row.kind == "linear"]
        if self.init.fc_std is not None and len(self.init.fc_std) != len(linears):
            raise InputError(
                f"init.fc_std={list(self.init.fc_std)} does not fit the {len(linears)} linear "
                f"layers ({', '.join(linears)}); give one value per layer, or null"
            )
        return self

    def _check_module(self) -> None:
        """Refuse what is for networks of rows in a network that a function builds."""
        wrong = {
            f"callbacks.{name}": "null"
            for name, callback in (self.callbacks or {}).items()
            if callback.target.startswith("rectifiers.") and callback.target not in NEED_NO_ROWS
        }
        if self.data.signal:
            wrong["data.signal"] = "false"
        if self.init.fc_std is not None:
            wrong["init.fc_std"] = "null"
        if self.init.first_layer_linear:
            wrong["init.first_layer_linear"] = "false"
        for key, usable in wrong.items():
            raise InputError(
                f"{key} is for networks of rows, and model._target_={self.model.target} is none; "
                f"give {key}={usable}"
            )


def _fill_in(values: JsonObject) -> JsonObject:
    """Put in what follows from other keys: null is a choice by accelerator, and `fast` sets five
    keys."""
    trainer, data, optim = values["trainer"], values["data"], values["optim"]
    if not all(isinstance(section, dict) for section in (trainer, data, optim)):
        return values  # which are refused as what they are

    is_cpu = trainer.get("accelerator") == "cpu"
    values = dict(values)
    if values.get("channels_last") is None:
        values["channels_last"] = is_cpu
    if "num_workers" in data and data["num_workers"] is None:
        values["data"] = {**data, "num_workers": 0 if is_cpu else WORKERS_FOR_A_GPU}

    if values.get("fast") is not True:
        return values
    if trainer.get("precision") not in (32, "32", "32-true", "bf16-mixed"):
        raise InputError(
            f"fast=true computes in bf16-mixed, and trainer.precision={trainer.get('precision')} "
            "asks for another; leave one of them out"
        )
    return {
        **values,
        "compile": True,
        "channels_last": True,
        "optim": {**optim, "fused": True},
        "trainer": {**trainer, "precision": "bf16-mixed", "benchmark": True},
    }


def one_image_a_process(batch: int) -> InputError:
    """Return the error that batch normalisation gets a single number per channel."""
    return InputError(
        f"data.batch_size={batch} gives each process one image, and batch normalisation needs more "
        "numbers per channel; give a larger data.batch_size, or model.norm=none",
        status=2,
        on_all_ranks=True,
    )


GROUPS = [
    name
    for name, field in RunConfig.model_fields.items()
    if field.is_required() and (CONF / name).is_dir()
]
KEYS: dict[str, Key] = dict(role.keys_of(RunConfig))  # by dotted name
# No two machines have these alike, and none of them can change a number.
PLACES = tuple(name for name, key in KEYS.items() if key.role is Role.PLACE)
PATHS = tuple(name for name, key in KEYS.items() if key.is_path)
# What a test of a finished run may choose.
FREE = tuple(name for name, key in KEYS.items() if key.free)
