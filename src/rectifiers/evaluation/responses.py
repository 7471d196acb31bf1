"""What activations answer: the mean, spread and positive share of responses by layer, and units that never answer."""

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
    """Of one layer, over all that it was shown.

    mean, std: over images, channels and places. active: the share of responses that are positive, a rectifier's measure
    of sparsity. dead: how many of its `units` channels were not positive once, at no
    place of no image. Without a slope on the negative side such a unit has no gradient; with one it learns on.
    """

    mean: float
    std: float
    active: float
    dead: int
    units: int


class ResponseMeter(Metric):
    """Listens to activations while it is asked to: sums alone, so that processes and batches add up.

    activations: for each layer's name the module and its number of channels; it gives [N, channels, ...].
    """

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
        # In a tuple, which torch does not look into: a metric that owned these modules would own their weights.
        self._activations = tuple(module for module, _ in activations.values())
        for name in ("total", "squares"):
            self.add_state(name, torch.zeros(len(activations), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(len(activations), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("positive", torch.zeros(sum(self._units), dtype=torch.int64), dist_reduce_fx="sum")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take in every forward pass within."""

        def hook_of(place: int) -> Any:
            return lambda _, __, output: self.update(place, output.detach())

        handles = [module.register_forward_hook(hook_of(place)) for place, module in enumerate(self._activations)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def update(self, place: int, responses: Tensor) -> None:
        """Take in responses [N, channels, ...] of the layer at `place`."""
        end = self._ends[place]
        responses = responses if responses.dtype.itemsize >= 4 else responses.float()
        # Each batch in its own precision, which is many times faster, and the batches in double.
        self.total[place] += responses.sum().double()
        self.squares[place] += torch.linalg.vector_norm(responses).double() ** 2
        self.count[place] += responses.numel()
        positive = (responses > 0).float().sum(0).long()  # over images first: the quickest way to a count of each unit
        self.positive[end - self._units[place] : end] += positive.view(self._units[place], -1).sum(1)

    def compute(self) -> Tensor:
        """Return [layers, 4]: mean, std, active share, dead units; torchmetrics has added up the processes."""
        mean = self.total / self.count
        std = (self.squares / self.count - mean**2).clamp(min=0).sqrt()
        by_layer = self.positive.split(self._units)
        active = torch.stack([positive.sum() for positive in by_layer]).double() / self.count
        dead = torch.stack([(positive == 0).sum() for positive in by_layer]).double()
        return torch.stack([mean, std, active, dead], dim=1)

    def by_layer(self) -> dict[str, Responses]:
        """Return what has been heard so far, over all processes."""
        rows = zip(self._names, self.compute().tolist(), self._units, strict=True) if self._names else ()
        return {name: Responses(mean, std, active, int(dead), units) for name, (mean, std, active, dead), units in rows}
