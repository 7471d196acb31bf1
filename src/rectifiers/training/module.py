"""The LightningModule: the loss, the epoch's numbers and the step rule; nothing else."""

import time
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torchmetrics import MeanMetric

from rectifiers.config import InputError
from rectifiers.data.module import Batch
from rectifiers.data.preprocess import Preprocess
from rectifiers.evaluation.counters import ErrorCounter
from rectifiers.models.network import Network
from rectifiers.seeds import mix
from rectifiers.training.divergence import Diverged, first_bad_layer
from rectifiers.training.optim import build_sgd
from rectifiers.training.schedule import StepRule


@dataclass(frozen=True)
class SgdSettings:
    """The numbers of `conf/optim/`: learning rate, momentum, decay, biases' factor, and what a drop divides by."""

    lr: float
    momentum: float
    weight_decay: float
    bias_lr_factor: float
    drop_factor: float


class Classifier(pl.LightningModule):
    """Trains a network on uint8 image batches; `history` holds one row of numbers an epoch and survives a restart.

    Plain `val` is the centre view while training: it drives the step rule and is not a table's protocol.
    """

    def __init__(
        self,
        network: Network,
        preprocess: Preprocess,
        rule: StepRule,
        sgd: SgdSettings,
        *,
        classes: int,
        seed: int,
        code: str,
    ) -> None:
        super().__init__()
        self.network, self.preprocess, self.rule, self.sgd = network, preprocess, rule, sgd
        self.seed = seed
        self.codes = [code]
        self.history: list[dict[str, Any]] = []
        self.unread: set[int] = set()  # training images that could not be read, whose place others took
        self.val = ErrorCounter(classes)
        self.train_loss = MeanMetric()
        self._seen, self._train_s = 0, 0.0
        self._scores_not_finite = ""

    def forward(self, images: Tensor) -> Tensor:
        return self.network(self.preprocess(images))

    def configure_optimizers(self) -> Optimizer:
        return build_sgd(
            self.network,
            lr=self.sgd.lr,
            momentum=self.sgd.momentum,
            weight_decay=self.sgd.weight_decay,
            bias_lr_factor=self.sgd.bias_lr_factor,
        )

    def on_train_epoch_start(self) -> None:
        self.train_loss.reset()
        self._seen, self._started = 0, time.perf_counter()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout depends on (seed, step) alone, so a run that was continued draws the masks it would have drawn.
        torch.manual_seed(mix("dropout", self.seed, self.global_step))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        inputs = self.preprocess(batch.images, batch.shifts)
        loss = F.cross_entropy(self.network(inputs), batch.labels)
        if not torch.isfinite(loss):
            raise Diverged(self.global_step, first_bad_layer(self.network, inputs))
        self.train_loss.update(loss.detach(), weight=len(batch.labels))
        self._seen += len(batch.labels)
        self.unread.update(batch.unread)
        return loss

    def on_validation_start(self) -> None:
        self._train_s = time.perf_counter() - self._started

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        scores = self(batch.images)
        if not torch.isfinite(scores).all() and not self._scores_not_finite:
            self._scores_not_finite = first_bad_layer(self.network, self.preprocess(batch.images))
        self.val.update(scores, batch.labels)

    def on_train_epoch_end(self) -> None:
        errors = self.val.errors()
        self.val.reset()
        if self._scores_not_finite:
            raise Diverged(self.global_step, self._scores_not_finite)
        groups = self.trainer.optimizers[0].param_groups
        row = {
            "epoch": self.current_epoch + 1,
            "lr": groups[0]["lr"],
            "train_loss": float(self.train_loss.compute()),
            "val/top1_error_pct": errors.top1_error_pct,
            "val/top5_error_pct": errors.top5_error_pct,
            "images_per_second": self._seen / self._train_s,
            "seconds": time.perf_counter() - self._started,
            **{f"slope/{layer}": float(slope.mean()) for layer, slope in self.network.slopes().items()},
        }
        self.history.append(row)
        logged = {key: float(value) for key, value in row.items() if value is not None and key != "epoch"}
        self.log_dict(logged, on_step=False, on_epoch=True)
        for name, parameter in self.network.named_parameters():
            if not torch.isfinite(parameter).all():  # the last update has no later loss that would tell
                raise Diverged(self.global_step, name.rpartition(".")[0])
        more = self.trainer.max_epochs is None or self.current_epoch + 1 < self.trainer.max_epochs
        if more and self.rule.after_epoch(errors.top1_error_pct):
            for group in groups:
                group["lr"] /= self.sgd.drop_factor

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["rectifiers"] = {
            "history": self.history,
            "rule": self.rule.state(),
            "codes": self.codes,
            "unread": sorted(self.unread),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        own = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        theirs = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
        if own != theirs:
            name = min(name for name in own.keys() | theirs.keys() if own.get(name) != theirs.get(name))
            raise InputError(
                f"the checkpoint is of another network: {name} is {theirs.get(name, 'not in it')} there and "
                f"{own.get(name, 'unknown')} here; remove it, or give the model that it was made with"
            )
        kept = checkpoint["rectifiers"]
        self.history = list(kept["history"])
        self.rule.restore(kept["rule"])
        self.unread = set(kept["unread"])
        self.codes = kept["codes"] + [code for code in self.codes if code not in kept["codes"]]
