"""The optimiser, and the rules by which the learning rate drops."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from rectifiers.parameters import parameter_groups
from rectifiers.runs.config import RunConfig
from rectifiers.runs.sections import MULTISTEP, PLATEAU
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject
from rectifiers.training.targets import Functions

T = TypeVar("T")
Group = dict[str, Any]  # parameters of an optimiser with their settings


def build_optimizer(
    kind: Callable[..., Optimizer], groups: list[Group], *, lr: float, fused: bool = False
) -> Optimizer:
    """Return an optimiser of the class `kind`, which may be a partial with its other settings.

    fused: update in one pass over each weight, else as torch chooses. A state loads into either,
    also where channels lie in another order in memory. With `dampening` it is as torch chooses,
    because the buffers of zeros would dampen the first step, which torch does not."""
    fused = fused and not getattr(kind, "keywords", {}).get("dampening")
    can_fuse = "fused" in inspect.signature(kind).parameters
    settings = {"fused": fused or None} if can_fuse else {}  # None: as torch chooses
    optimizer = kind(groups, lr=lr, **settings)
    if fused and isinstance(optimizer, SGD):
        optimizer.register_step_pre_hook(_start_momentum_at_zero)

    def adapt_state(optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            if can_fuse:
                group["fused"] = fused or None  # not the checkpoint's
            for p in group["params"]:
                for name, kept in optimizer.state[p].items():
                    # a fused step asks for buffers in the parameter's order in memory
                    is_buffer = isinstance(kept, Tensor) and kept.ndim > 0
                    if is_buffer and kept.shape == p.shape:
                        optimizer.state[p][name] = torch.empty_like(p).copy_(kept)

    optimizer.register_load_state_dict_post_hook(adapt_state)
    return optimizer


def _start_momentum_at_zero(optimizer: Optimizer, *_: object) -> None:
    """Give every parameter a momentum buffer of zeros, which leaves the first step as it is:
    torch's fused step needs buffers for all parameters of a group or for none."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if not (group["momentum"] and p.requires_grad):
                continue
            if optimizer.state[p].get("momentum_buffer") is None:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


Drops = Callable[[Sequence[float]], list[int]]  # see `plateau`


def plateau(
    errors: Sequence[float], *, max_drops: int, patience: int, warmup_epochs: int = 0
) -> list[int]:
    """Return the epochs, counted from 1, after which the learning rate drops, given the error of
    each epoch so far.

    patience: epochs without a new lowest error before a drop (the paper does not print its rule;
    this is ours). max_drops: the largest number of drops. warmup_epochs: after which the waiting
    begins, because warm-up sets the rate by itself."""
    drops: list[int] = []
    lowest, waited = math.inf, 0
    for epoch, error in enumerate(errors, start=1):
        waited = 0 if error < lowest or epoch <= warmup_epochs else waited + 1
        lowest = min(lowest, error)
        if waited >= patience and len(drops) < max_drops:
            drops.append(epoch)
            waited = 0
    return drops


def multistep(errors: Sequence[float], *, milestones: Sequence[int]) -> list[int]:
    """Return the epochs of `milestones` that have ended, whatever the errors are."""
    return [epoch for epoch in milestones if epoch <= len(errors)]


class Schedule:
    """How the learning rate changes: warm-up by step, then drops by a rule, or torch's scheduler.

    It is applied at the end of an epoch before the checkpoint is written, so that a run that is
    killed after any step has the rates of one that is not.

    drops: returns the epochs after which the rate drops, from the error of each epoch so far.
    scheduler: builds torch's, which is stepped once per epoch after warm-up, instead.
    """

    def __init__(
        self,
        max_epochs: int,
        warmup_epochs: int = 0,
        *,
        drops: Drops | None = None,
        drop_factor: float = 10.0,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    ) -> None:
        self.max_epochs, self.warmup_epochs = max_epochs, warmup_epochs
        self._drops, self._drop_factor, self._build = drops, drop_factor, scheduler
        self._scheduler: LRScheduler | None = None

    def start(self, optimizer: Optimizer) -> None:
        """Take the optimiser whose rates this schedule sets, before its first step."""
        self._optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        try:
            self._scheduler = self._build(optimizer) if self._build else None
        except (TypeError, ValueError) as error:
            raise InputError(
                f"scheduler._target_ cannot be built ({error}); give settings that it takes",
                on_all_ranks=True,
            ) from error

    def warm_up(self, step: int, steps_per_epoch: int) -> None:
        """Set the rates of a step of warm-up; after it they are left alone."""
        steps = self.warmup_epochs * steps_per_epoch
        if step < steps:
            for group in self._optimizer.param_groups:
                group["lr"] = group["initial_lr"] * ((step + 1) / steps)

    def drop_epochs(self, errors: Sequence[float]) -> list[int]:
        """Return the epochs after which the rate dropped; none follows the last epoch."""
        return self._drops(errors[: self.max_epochs - 1]) if self._drops else []

    def end_epoch(self, errors: Sequence[float]) -> None:
        """Set the rates of the next epoch. errors: of each epoch so far, in percent."""
        if len(errors) in self.drop_epochs(errors):
            for group in self._optimizer.param_groups:
                group["lr"] /= self._drop_factor
        if self._scheduler is None or len(errors) <= self.warmup_epochs:
            return
        if isinstance(self._scheduler, ReduceLROnPlateau):
            self._scheduler.step(errors[-1])
        else:
            self._scheduler.step()

    def state_dict(self) -> JsonObject:
        """Return what a checkpoint keeps beside the optimiser's state."""
        return self._scheduler.state_dict() if self._scheduler else {}

    def restore(self, state: JsonObject) -> None:
        """Go on from a checkpoint; an empty state is that of the start."""
        if self._scheduler and state:
            self._scheduler.load_state_dict(state)


def configured_optimizer(config: RunConfig, functions: Functions, network: nn.Module) -> Optimizer:
    """Return the optimiser that `config` asks for, of a network."""
    settings = config.optim
    keys = ("lr", "weight_decay", "bias_lr_factor", "slope_weight_decay")
    groups = parameter_groups(network, **{key: getattr(settings, key) for key in keys})
    kind = functions["optim"]
    if settings.momentum is not None:
        kind = partial(kind, momentum=settings.momentum)
    try:
        return build_optimizer(kind, groups, lr=settings.lr, fused=config.is_fused)
    except (TypeError, ValueError) as error:
        remedy = "classes without momentum go with optim=adamw"
        raise InputError(f"{settings.target} cannot be built ({error}); {remedy}") from error


def build_schedule(config: RunConfig, functions: Functions) -> Schedule:
    """Return how the learning rate changes."""
    settings = config.scheduler
    epochs, warmup_epochs = config.trainer.max_epochs, settings.warmup_epochs
    if settings.target == PLATEAU:
        drops = partial(
            plateau,
            max_drops=_given("max_drops", settings.max_drops),
            patience=_given("patience", settings.patience),
            warmup_epochs=warmup_epochs,
        )
    elif settings.target == MULTISTEP:
        drops = partial(multistep, milestones=_given("milestones", settings.milestones))
    else:
        return Schedule(epochs, warmup_epochs, scheduler=functions["scheduler"])
    return Schedule(epochs, warmup_epochs, drops=drops, drop_factor=settings.drop_factor)


def _given(name: str, value: T | None) -> T:
    """Return the value of a key of `scheduler` that its rule cannot do without."""
    if value is None:
        raise InputError(f"scheduler.{name} has no value; give it one")
    return value
