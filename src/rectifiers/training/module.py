"""The LightningModule: the loss, the epoch's numbers and the step rule."""

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import MeanMetric

from rectifiers.data.datamodule import Batch
from rectifiers.data.preprocess import Preprocess
from rectifiers.evaluation.metrics import ErrorCounter, ResponseMeter
from rectifiers.models.network import ImageNetwork
from rectifiers.runs.config import RunConfig
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.trust import config_of_text
from rectifiers.runtime.distributed import all_gather, start_any
from rectifiers.runtime.errors import InputError, reading, restoring
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.seeds import derive_seed
from rectifiers.tracking.loggers import logged
from rectifiers.training.checkpoints import (
    AtomicCheckpointIO,
    PathLike,
    refuse_other_network,
    refuse_other_run,
)
from rectifiers.training.networks import empty_network
from rectifiers.training.optim import Schedule, build_schedule, configured_optimizer
from rectifiers.training.targets import import_functions

State = dict[str, Any]  # of a checkpoint, or a part of it
MOST_UNITS = 2**20  # most classes or channels of an untrusted checkpoint
LOSS_STATES = ("mean_value", "weight")  # of torchmetrics' MeanMetric


class Diverged(Exception):
    """A number was not finite at `step`; `layer` is the first layer where that shows."""

    def __init__(self, step: int, layer: str) -> None:
        super().__init__(f"the loss stopped being finite at step {step}, first seen at {layer}")
        self.step, self.layer = step, layer


class Step(NamedTuple):
    """A step between its forward pass and its update; `is_any_bad` waits for all ranks' losses."""

    batch: Batch
    inputs: Tensor
    loss: Tensor
    is_any_bad: Callable[[], bool]


class Classifier(pl.LightningModule):
    """Trains a network on uint8 image batches. `history` holds one row of numbers per epoch and
    survives a restart.

    `val` is the error on centre views during training: it drives the step rule, and no table shows
    it.

    optimizer: returns the optimiser of a network. code: the fingerprint of the code that trains.
    config: what `runs.trust.kept_text` returns, and channels, of an image: checkpoints keep both,
    so that `load_from_checkpoint` needs nothing else.
    """

    def __init__(
        self,
        network: ImageNetwork,
        preprocess: Preprocess,
        optimizer: Callable[[nn.Module], Optimizer],
        schedule: Schedule,
        *,
        classes: int,
        seed: int,
        run: str,
        code: str,
        config: str,
        channels: int,
    ) -> None:
        super().__init__()
        self.network, self.preprocess = network, preprocess
        self.build_optimizer, self.schedule = optimizer, schedule
        self.seed, self.run, self.codes = seed, run, [code]
        self.config, self.classes, self.channels = config, classes, channels
        self.drop_epochs: list[int] = []
        self.history: list[JsonObject] = []
        self.stopped_by: str | None = None  # a callback that ended the training early
        self.began_at: str | None = None  # the checkpoint that a user chose to begin at
        self.val = ErrorCounter(classes)
        # what is added to the first is known to be finite; a search for NaN would wait for a GPU
        # (and without it torchmetrics takes no weights; all batches of training are equally large)
        self.train_loss, self.val_loss = MeanMetric(nan_strategy="disable"), MeanMetric()
        self.responses = ResponseMeter(network.activations())
        self._num_images, self._train_s = 0, 0.0
        self._schedule_state: State = {}
        self._epoch_so_far: list[State] | None = None
        self._bad_layer = ""
        self._step: Step

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls,
        checkpoint_path: PathLike,
        map_location: torch.device | str | None = None,
        *,
        trust: Collection[str] = (),
    ) -> Self:
        """Return the classifier of a checkpoint of a run, with the preprocessing and the weights
        that it had: uint8 images [N, C, H, W] -> scores [N, classes].

        The checkpoint is self-contained, and may come from an untrusted source: nothing in it is
        executed, and its configuration may name only functions of `conf/` and classes of torch.

        trust: modules whose functions it may name as well.

        Raises:
            InputError: where the file cannot be read, or names a function that is not trusted.
        """
        path = Path(checkpoint_path)
        try:
            checkpoint = AtomicCheckpointIO().load_checkpoint(path.resolve())
        except InputError as error:
            reason = str(error).partition(";")[0]
            raise InputError(f"{reason}; give the last.ckpt of a run of this version") from error
        with reading(path, "give the last.ckpt of a run of this version"):
            classifier = cls.of_checkpoint(checkpoint, path, trust)
        return classifier.to(map_location or "cpu").eval()

    @classmethod
    def of_checkpoint(cls, checkpoint: State, path: Path, trust: Collection[str]) -> Self:
        """Return the classifier of an untrusted checkpoint, which was read from `path`."""
        config, preprocess, classes, channels = _kept_parts(checkpoint, path, trust)
        functions = import_functions(config)
        network = empty_network(config, functions, classes, channels, preprocess.flat_output)
        if config.channels_last:
            network.to(memory_format=torch.channels_last)

        classifier = cls(
            network,
            preprocess,
            partial(configured_optimizer, config, functions),
            build_schedule(config, functions),
            classes=classes,
            seed=config.seed,
            run=checkpoint["rectifiers"]["run"],
            code=code_fingerprint(),
            config=checkpoint["rectifiers"]["config"],
            channels=channels,
        )
        if config.trainer.precision == "64-true":
            classifier.double()
        classifier.restore(checkpoint)
        classifier.load_state_dict(checkpoint["state_dict"])
        return classifier

    def forward(self, images: Tensor) -> Tensor:
        return self.network(self.preprocess(images))

    def configure_optimizers(self) -> Optimizer:
        optimizer = self.build_optimizer(self.network)
        self.schedule.start(optimizer)
        return optimizer

    def on_fit_start(self) -> None:
        # a Timer whose time is over would end the run here, without an epoch for its record
        self.trainer.should_stop = False

    def on_train_start(self) -> None:
        with restoring():
            self.schedule.restore(self._schedule_state)
        if self._epoch_so_far is not None:
            self.on_train_epoch_start()  # which Lightning does not call within an epoch
            with restoring():
                self._restore_epoch(self._epoch_so_far)
            self._epoch_so_far = None
        if self.stopped_by is not None:  # it was killed between its last epoch and its record
            self.trainer.should_stop = True

    def on_train_epoch_start(self) -> None:
        self.train_loss.reset()
        self._num_images, self._started = 0, time.perf_counter()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout depends on (seed, step, rank) alone, so a continued run draws the masks that it
        # would have drawn.
        rank = [self.global_rank] if self.global_rank else []
        seed = derive_seed("dropout", self.seed, self.global_step, *rank)
        # not `torch.manual_seed`, which seeds other GPUs of the process, too, and takes 0.4 ms
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        if self.schedule.warmup_epochs:
            self.schedule.warm_up(self.global_step, int(self.trainer.num_training_batches))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        inputs = self.preprocess(batch.images, batch.shifts)
        loss = F.cross_entropy(self.network(inputs), batch.labels)
        # asked now and read before the update, so that the backward pass need not wait for it
        self._step = Step(batch, inputs, loss.detach(), start_any(~torch.isfinite(loss.detach())))
        return loss

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Leave a step whose loss is not finite, all ranks together, before it changes a weight."""
        batch, inputs, loss, is_any_bad = self._step
        del self._step
        if is_any_bad():
            layer = "" if torch.isfinite(loss) else first_bad_layer(self.network, inputs)
            raise Diverged(self.global_step, next(filter(None, all_gather(layer))))
        self.train_loss.update(loss)
        self._num_images += len(batch.labels)

    def on_validation_start(self) -> None:
        if self.trainer.world_size > 1:
            # all ranks score with rank 0's running statistics, as the checkpoint has them
            for buffer in self.network.buffers():
                torch.distributed.broadcast(buffer, src=0)
        # here and not at the epoch's end, for the speed of training leaves validation out
        self._train_s = time.perf_counter() - self._started

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        inputs = self.preprocess(batch.images)
        # a compiled network calls no hooks, so the plain one is run for scores and responses
        network = self.network.forward if self.network.is_compiled else self.network
        with self.responses.listening():
            scores = network(inputs)
        if not torch.isfinite(scores).all() and not self._bad_layer:
            self._bad_layer = first_bad_layer(self.network, inputs)
        self.val.update(scores, batch.labels)
        loss = F.cross_entropy(scores.float(), batch.labels)
        self.val_loss.update(loss, weight=len(batch.labels))

    def on_train_epoch_end(self) -> None:
        row = self._epoch_row()
        self.history.append(row)
        self._give_to_callbacks(row)
        for name, parameter in self.network.named_parameters():
            if not all_finite(parameter):  # no later loss would show what the last update did
                raise Diverged(self.global_step, name.rpartition(".")[0])

        # after the row, which has the epoch's own rate, and before the checkpoint of `EpochEnd`
        self.schedule.end_epoch(self._val_errors())
        self.drop_epochs = self.schedule.drop_epochs(self._val_errors())

    def _epoch_row(self) -> JsonObject:
        """Return the epoch's numbers, of all ranks; raise Diverged where validation met a number
        that is not finite."""
        errors, responses = self.val.errors(), self.responses.row()
        val_loss = float(self.val_loss.compute())
        for metric in (self.val, self.val_loss, self.responses):
            metric.reset()
        bad_layer = next(filter(None, all_gather(self._bad_layer)), None)
        if bad_layer:
            raise Diverged(self.global_step, bad_layer)

        row = {
            "epoch": self.current_epoch + 1,
            "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
            "train_loss": float(self.train_loss.compute()),
            "val/loss": val_loss,
            "val/top1_error_pct": errors.top1_error_pct,
            "val/top5_error_pct": errors.top5_error_pct,
            "images_per_second": self.trainer.world_size * self._num_images / self._train_s,
            "seconds": time.perf_counter() - self._started,
        }
        for layer, slope in self.network.slopes().items():
            row[f"slope/{layer}"] = float(slope.mean())
        for name, parameter in self.network.learned_parameters().items():
            row[f"activation/{name}"] = float(parameter.mean())
            if parameter.numel() > 1:
                row[f"activation_std/{name}"] = float(parameter.std(correction=0))
        return row | responses

    def _give_to_callbacks(self, row: JsonObject) -> None:
        """Let callbacks read the epoch's numbers by their logged names.

        Loggers get the row after its checkpoint, and not from Lightning, which would round it to
        single precision. log_dict takes 0.5 ms a number: as long for the layers of a deep network
        as its training."""
        for key, value in logged(row).items():
            if key != "epoch" and value is not None:
                self.trainer.callback_metrics[key] = torch.tensor(value)

    def _val_errors(self) -> list[float]:
        return [row["val/top1_error_pct"] for row in self.history]

    def on_save_checkpoint(self, checkpoint: State) -> None:
        checkpoint["rectifiers"] = {
            "run": self.run,
            "history": self.history,
            "codes": self.codes,
            "schedule": self.schedule.state_dict(),
            "stopped_by": self.stopped_by,
            "began_at": self.began_at,
            "epoch_so_far": None,
            "config": self.config,
            "classes": self.classes,
            "channels": self.channels,
            "preprocess": self.preprocess.fitted(),
        }
        if len(self.history) == self.current_epoch:  # within an epoch
            # of each process by itself, because sums in another order differ in their last digit
            checkpoint["rectifiers"]["epoch_so_far"] = all_gather(self._epoch_state())

    def _epoch_state(self) -> State:
        loss = {name: getattr(self.train_loss, name).item() for name in LOSS_STATES}
        train_s = time.perf_counter() - self._started
        return {"loss": loss, "seen": self._num_images, "train_s": train_s}

    def _restore_epoch(self, states: list[State]) -> None:
        if len(states) != self.trainer.world_size:
            return  # the epoch's loss is that of its rest
        state = states[self.global_rank]
        for name, value in state["loss"].items():
            getattr(self.train_loss, name).fill_(value)
        self._num_images, self._started = state["seen"], time.perf_counter() - state["train_s"]

    def on_load_checkpoint(self, checkpoint: State) -> None:
        with restoring():
            self.restore(checkpoint)

    def restore(self, checkpoint: State) -> None:
        """Take over what `on_save_checkpoint` kept; a damaged checkpoint may raise any error."""
        kept = checkpoint["rectifiers"]
        refuse_other_run(checkpoint, self.run)
        remedy = "remove the file, or give the model that it was made with"
        refuse_other_network(self, checkpoint["state_dict"], remedy)
        self.history = list(kept["history"])
        self._epoch_so_far = kept["epoch_so_far"]
        self._schedule_state = kept["schedule"]
        self.stopped_by = kept["stopped_by"]
        self.drop_epochs = self.schedule.drop_epochs(self._val_errors())
        self.codes = kept["codes"] + [code for code in self.codes if code not in kept["codes"]]


def _kept_parts(
    checkpoint: State, path: Path, trust: Collection[str]
) -> tuple[RunConfig, Preprocess, int, int]:
    """Return (configuration, preprocessing, number of classes, channels of an image) of an
    untrusted checkpoint."""
    kept = checkpoint["rectifiers"]
    config = config_of_text(kept["config"], path, trust)
    fitted, sizes = dict(kept["preprocess"]), (kept["classes"], kept["channels"])
    tensors = [fitted["offset"], fitted["scale"]]
    if fitted["matrix"] is not None:
        tensors.append(fitted["matrix"])
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ValueError("its preprocessing does not consist of tensors")
    if not all(type(size) is int and 0 < size <= MOST_UNITS for size in sizes):
        raise ValueError("its number of classes or channels is not usable")
    return config, Preprocess(**fitted), *sizes


def _finite(x: object) -> bool:
    return not isinstance(x, Tensor) or bool(torch.isfinite(x).all())


def all_finite(numbers: Tensor) -> bool:
    """Return whether all numbers are finite. Their sum mostly shows it, in a tenth of the time."""
    return bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all())


@torch.no_grad()
def first_bad_layer(network: nn.Module, x: Tensor) -> str:
    """Return the first module, in the order of a forward pass on `x`, whose weights or output are
    not finite.

    "input" where `x` itself is not finite, "loss" where all scores still are.
    """
    if not _finite(x):
        return "input"
    bad: list[str] = []

    def check(name: str, module: nn.Module, _: object, output: object) -> None:
        if not (_finite(output) and all(_finite(p) for p in module.parameters())):
            bad.append(name)

    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if not list(module.children()):
                hooks.enter_context(module.register_forward_hook(partial(check, name)))
        network.forward(x)  # not network(x), which may be compiled and then calls no hooks
    return bad[0] if bad else "loss"
