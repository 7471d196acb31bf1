"""Callbacks that measure a training and change nothing: its signals, the ranks of its weights and
their Fisher information."""

import copy
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from rectifiers.data.datamodule import Batch
from rectifiers.models.network import of_rows
from rectifiers.runtime.errors import restoring
from rectifiers.runtime.ranges import Count, Range
from rectifiers.theory.fisher import check_two_layers, measure
from rectifiers.training.epoch_end import EpochMeasure
from rectifiers.training.module import Classifier, State

BINS = 60
MAX_NUMBERS = 2**20  # of a distribution; larger tensors are thinned out evenly


@dataclass(frozen=True)
class Distribution:
    """The mean and std of all numbers of a tensor, and their counts in `BINS` equal bins.

    low, high: the ends of the bins, which leave out half a percent of the numbers on either side.
    """

    mean: float
    std: float
    low: float
    high: float
    counts: list[int]


def distribution(numbers: Tensor) -> Distribution:
    """Return the distribution of the finite numbers of a tensor of any shape; that of a zero where
    none is finite."""
    flat = numbers.detach().flatten()
    thin = flat[:: -(-len(flat) // MAX_NUMBERS)].double()
    thin = thin[thin.isfinite()] if thin.isfinite().any() else torch.zeros_like(thin[:1])
    low, high = torch.quantile(thin, thin.new_tensor([0.005, 0.995])).tolist()
    if low == high:  # all numbers are equal
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(thin.cpu(), BINS, low, high).long().tolist()
    mean, std = float(thin.mean()), float(thin.std(correction=0))
    return Distribution(mean, std, low, high, counts)


class Signals(Callback):
    """Keeps the distributions of activations and of their gradients, by layer, at the beginning of
    each of `steps`.

    found[step][layer] = [activations f(y), gradients of the loss with respect to them].
    """

    def __init__(self, steps: Collection[int]) -> None:
        self.steps, self.found = frozenset(steps), dict[int, dict[str, list[Distribution]]]()
        self._handles: list[RemovableHandle] = []

    def on_train_batch_start(  # type: ignore[override]
        self, trainer: pl.Trainer, module: Classifier, batch: Batch, batch_idx: int
    ) -> None:
        if trainer.global_step not in self.steps:
            return
        layers = self.found[trainer.global_step] = {}

        def keep(layer: str, _: nn.Module, __: object, output: Tensor) -> None:
            pair = layers[layer] = [distribution(output)]
            output.register_hook(lambda gradient: pair.append(distribution(gradient)))

        self._handles = [
            activation.register_forward_hook(partial(keep, layer))
            for layer, (activation, _) in module.network.activations().items()
        ]

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def first_images(trainer: pl.Trainer, part: str, images: int) -> Batch:
    """Return the centre views of the first `images` images of a split."""
    views = trainer.datamodule.centre_views(part)  # type: ignore[attr-defined]
    return views.batch(range(min(images, len(views))))


@dataclass(eq=False)
class FisherMeasure(EpochMeasure):
    """Measures the network's Fisher information: `fisher/<measure>`, with the measures of
    `theory.fisher`, over the first `images` training images, in double precision, of a copy."""

    images: Count

    def on_fit_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        check_two_layers(module.network)
        self.batch = first_images(trainer, "train", self.images)

    def measure(self, module: Classifier) -> dict[str, float]:
        with torch.enable_grad():
            x = module.preprocess(self.batch.images.to(module.device)).cpu()
            measures = measure(copy.deepcopy(module.network).cpu(), x, self.batch.labels)
        return {f"fisher/{key}": float(value) for key, value in measures.items()}


@dataclass(eq=False)
class EquivarianceMeasure(EpochMeasure):
    """Measures the share of answers that change with the intensity and the place of an image.

    `equivariance/intensity`: of the centre views of the first `images` validation images, the share
    that gets another class where the network's input is multiplied by `factor`. Rectifiers without
    biases and noise keep every class (Nair and Hinton 2010). `equivariance/translation`: where it
    is moved `shift_px` to the right, with zeros behind it."""

    images: Count
    factor: Annotated[float, Range(gt=0)]
    shift_px: Count

    def measure(self, module: Classifier) -> dict[str, float]:
        batch = first_images(module.trainer, "val", self.images)
        was_training = module.network.training
        module.network.eval()
        with torch.no_grad():
            x = module.preprocess(batch.images.to(module.device))
            moved = nn.functional.pad(x, (self.shift_px, 0))[..., : x.shape[-1]]
            inputs = (x, self.factor * x, moved)
            plain, dim, shifted = (module.network(batch).argmax(1) for batch in inputs)
        module.network.train(was_training)
        return {
            "equivariance/intensity": float((dim != plain).double().mean()),
            "equivariance/translation": float((shifted != plain).double().mean()),
        }


class RankMeasure(EpochMeasure):
    """Measures the numerical rank of each layer's weights [units, inputs]: `rank/<layer>`.

    In double precision, by torch's default tolerance for the weights' own precision.
    """

    def measure(self, module: Classifier) -> dict[str, float]:
        ranks: dict[str, float] = {}
        for name, weight in weights_by_layer(module).items():
            matrix = weight.detach().flatten(1)
            rtol = max(matrix.shape) * torch.finfo(matrix.dtype).eps
            ranks[f"rank/{name}"] = int(torch.linalg.matrix_rank(matrix.double(), rtol=rtol))
        return ranks


def weights_by_layer(module: Classifier) -> dict[str, Tensor]:
    """Return the weights of a network of rows."""
    return {site.name: site.module.weight for site in of_rows(module.network).sites()}


@dataclass(eq=False)
class ZigzagMeasure(EpochMeasure):
    """Measures of each layer's weights [units, inputs] whether their gradients share a sign, and
    how straight they go.

    `signs/<layer>`: |mean of the gradients' signs over a unit's inputs|, the mean over units and
    the epoch's steps. 1: all weights of a unit are pulled the same way, as behind inputs that are
    all positive. 0.8 / sqrt(inputs) is what independent signs give. `straight/<layer>`: the
    distance between the weights before and after the epoch, over the length of the way that its
    steps went. 1: a straight line."""

    signs: dict[str, Tensor] = field(init=False, default_factory=dict)
    length: dict[str, Tensor] = field(init=False, default_factory=dict)
    first: dict[str, Tensor] = field(init=False, default_factory=dict)
    last: dict[str, Tensor] = field(init=False, default_factory=dict)
    steps: int = field(init=False, default=0)

    def state_dict(self) -> State:
        return {name: getattr(self, name) for name in ("signs", "length", "first", "last", "steps")}

    @restoring()
    def load_state_dict(self, state_dict: State) -> None:
        for name, kept in state_dict.items():
            setattr(self, name, kept)

    def on_fit_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        of_rows(module.network)  # which refuses any other

    @torch.no_grad()
    def on_before_optimizer_step(  # type: ignore[override]
        self, trainer: pl.Trainer, module: Classifier, optimizer: Optimizer
    ) -> None:
        for name, weight in weights_by_layer(module).items():
            if self.steps == 0:
                self.first[name], self.signs[name] = weight.clone(), weight.new_zeros(())
                self.length[name] = weight.new_zeros(())
            else:
                self.length[name] += (weight - self.last[name].to(weight.device)).norm()
            grad = weight.grad  # callbacks=greedy trains some layers alone
            signs = math.nan if grad is None else grad.flatten(1).sign().mean(1).abs().mean()
            self.signs[name] += signs
            self.last[name] = weight.clone()
        self.steps += 1

    @torch.no_grad()
    def measure(self, module: Classifier) -> dict[str, float]:
        measures: dict[str, float] = {}
        for name, weight in weights_by_layer(module).items():
            first, last = self.first[name].to(weight.device), self.last[name].to(weight.device)
            way = float(self.length[name]) + float((weight - last).norm())
            distance = float((weight - first).norm())
            measures[f"signs/{name}"] = float(self.signs[name]) / self.steps
            measures[f"straight/{name}"] = distance / way if way else 1.0
        self.steps = 0
        return measures
