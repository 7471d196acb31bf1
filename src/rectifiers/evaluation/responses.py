"""Statistics of activations' outputs per layer: mean, spread, positive share, and units that are
never positive."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric


@dataclass(frozen=True)
class Responses:
    """Statistics of one layer's responses.

    mean, std: over images, channels and positions. active: the share of responses that are
    positive, a rectifier's
    measure of sparsity. dead: how many of its `units` channels were never positive anywhere.
    Without a slope on the negative side such a unit gets no gradient; with one it still learns."""

    mean: float
    std: float
    active: float
    dead: int
    units: int


class ResponseMeter(Metric):
    """Measures the outputs of activations while it is `listening`; its state is sums, so batches
    and processes add up.

    activations: for each layer's name the module and its number of channels; the module returns [N,
    channels, ...]."""

    full_state_update = False
    total: Tensor
    squares: Tensor
    count: Tensor
    positive: Tensor

    def __init__(self, activations: Mapping[str, tuple[nn.Module, int]]) -> None:
        super().__init__()
        self._names = list(activations)
        self._units = [units for _, units in activations.values()]
        self._ends = list(accumulate(self._units))
        # A tuple hides the modules from torch: registered as children, they would bring their
        # weights along.
        self._activations = tuple(module for module, _ in activations.values())
        for name in ("total", "squares"):
            self.add_state(
                name, torch.zeros(len(activations), dtype=torch.float64), dist_reduce_fx="sum"
            )
        self.add_state(
            "count", torch.zeros(len(activations), dtype=torch.int64), dist_reduce_fx="sum"
        )
        self.add_state(
            "positive", torch.zeros(sum(self._units), dtype=torch.int64), dist_reduce_fx="sum"
        )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Measure every forward pass in the body."""

        def hook_of(layer: int) -> Any:
            return lambda _, __, output: self.update(layer, output.detach())

        handles = [
            module.register_forward_hook(hook_of(layer))
            for layer, module in enumerate(self._activations)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def update(self, layer: int, responses: Tensor) -> None:
        """Add responses [N, channels, ...] of the layer with this position among `activations`."""
        end = self._ends[layer]
        responses = responses if responses.dtype.itemsize >= 4 else responses.float()
        # Each batch is summed in its own precision, which is many times faster, and the batches in
        # double.
        self.total[layer] += responses.sum().double()
        self.squares[layer] += torch.linalg.vector_norm(responses).double() ** 2
        self.count[layer] += responses.numel()
        positive = (
            (responses > 0).float().sum(0).long()
        )  # over images first: the fastest way to a count per unit
        self.positive[end - self._units[layer] : end] += positive.view(self._units[layer], -1).sum(
            1
        )

    def compute(self) -> Tensor:
        """Return [layers, 4]: mean, std, active share, dead units; torchmetrics sums the states
        over processes."""
        mean = self.total / self.count
        std = (self.squares / self.count - mean**2).clamp(min=0).sqrt()
        by_layer = self.positive.split(self._units)
        active = torch.stack([positive.sum() for positive in by_layer]).double() / self.count
        dead = torch.stack([(positive == 0).sum() for positive in by_layer]).double()
        return torch.stack([mean, std, active, dead], dim=1)

    def by_layer(self) -> dict[str, Responses]:
        """Return the statistics so far per layer name, over all processes."""
        rows = (
            zip(self._names, self.compute().tolist(), self._units, strict=True)
            if self._names
            else ()
        )
        return {
            name: Responses(mean, std, active, int(dead), units)
            for name, (mean, std, active, dead), units in rows
        }
