"""Which chains train on real images: by depth and gain, and by depth and learning rate, beside the
depth scale."""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from rectifiers.analysis.setup import AnalysisSetup, generator
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import finite
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import stop_if_requested
from rectifiers.theory import mean_field

GAINS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)  # on the initialiser's weights
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
MAP_RATES = (0.003, 0.03)  # of which a cell of the map needs one
MAP_DEPTHS, RATE_DEPTHS = (4, 8, 16, 32, 64), (6, 14, 30)
STEPS, BATCH, MOMENTUM = 100, 64, 0.9
LAST = 10  # steps whose mean loss is compared
TRAINED = 2.0  # nats; guessing has 2.30
SEED = 0
SMALLEST, LARGEST = 1e-6, 1e6  # of a variance at which a depth scale is asked for


def trainability_section(configs: Mapping[int, RunConfig]) -> dict[str, Any]:
    """Return the loss after STEPS steps of chains of each depth, by gain and by learning rate.

    configs: by depth. A cell is the mean loss of the last steps, at the first of MAP_RATES that
    trains it, or the least; None where it diverged."""
    total = len(MAP_DEPTHS) * len(GAINS) * len(MAP_RATES) + len(RATE_DEPTHS) * len(RATES)
    chains = {depth: Chain(config) for depth, config in configs.items()}
    with (
        progress_bar("training small chains", total, "chains") as advance,
        without_subnormal_numbers(),
    ):

        def loss(depth: int, gain: float, rate: float) -> float | None:
            stop_if_requested("while small chains were trained")
            advance(1)
            return chains[depth].final_loss(gain, rate)

        def least(depth: int, gain: float) -> float | None:
            """The loss at the first rate that trains, or the least of all."""
            first, *others = MAP_RATES
            losses = [loss(depth, gain, first)]
            for rate in others:
                if losses[-1] is not None and losses[-1] < TRAINED:
                    advance(1)  # for the chain that need not be trained
                else:
                    losses.append(loss(depth, gain, rate))
            return min((each for each in losses if each is not None), default=None)

        by_gain = [[least(depth, gain) for gain in GAINS] for depth in MAP_DEPTHS]
        by_rate = [[loss(depth, 1.0, rate) for rate in RATES] for depth in RATE_DEPTHS]
    return {
        "depths": list(MAP_DEPTHS),
        "gains": list(GAINS),
        "losses": by_gain,
        "map_rates": list(MAP_RATES),
        "depth_scales": chains[MAP_DEPTHS[-1]].depth_scales(),
        "rate_depths": list(RATE_DEPTHS),
        "rates": list(RATES),
        "rate_losses": by_rate,
        "steps": STEPS,
        "trained_below": TRAINED,
    }


@contextmanager
def without_subnormal_numbers() -> Iterator[None]:
    """Count numbers below 1e-38 as 0, where the processor can: with them a vanished signal takes a
    hundredfold time."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class Chain:
    """A chain as an entry starts it, with the training images that it is tried on."""

    def __init__(self, config: RunConfig) -> None:
        setup = AnalysisSetup(config)
        self.network, self.report = setup.network(SEED)
        images, self.labels = setup.images(len(setup.source.train.labels), SEED)
        self.x = setup.preprocess(images)

    def final_loss(self, gain: float, rate: float) -> float | None:
        """Return the mean training loss of the last steps, from weights times `gain`; None where it
        diverged."""
        network = copy.deepcopy(self.network)
        with torch.no_grad():
            for site in network.sites():
                site.module.weight.mul_(gain)
        optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=MOMENTUM)
        order, losses = generator("order", SEED), list[float]()
        for _ in range(STEPS):
            chosen = torch.randint(len(self.x), (BATCH,), generator=order)
            loss = F.cross_entropy(network(self.x[chosen]), self.labels[chosen])
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                return None
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return finite(fmean(losses[-LAST:]))

    @property
    def weight_variance(self) -> float:
        """n Var[w] of the second layer, which reads the activation, as the initialiser asks for
        it."""
        second = self.report[1]
        return second.fan_in * second.std_asked**2

    @property
    def activation(self) -> nn.Module:
        """The activation after the first layer."""
        activation = self.network.sites()[0].after
        assert activation is not None  # a layer follows
        return activation

    def depth_scales(self) -> list[float | None] | None:
        """Over how many layers gradients change by a factor of e, for each of GAINS; None where
        that is unknown.

        1 / |ln chi_1| at the fixed point of the variance (Schoenholz et al.), or at the bound where
        there is none: the edge of what trains is expected at a few times that depth. An infinite
        one is None in the list."""
        try:
            return [
                finite(_gradient_depth(self.activation, self.weight_variance * gain**2))
                for gain in GAINS
            ]
        except InputError:
            return None


def _gradient_depth(activation: nn.Module, variance: float) -> float:
    q = mean_field.fixed_point(activation, weight_variance=variance)
    chi = mean_field.chi_1(activation, min(max(q, SMALLEST), LARGEST), weight_variance=variance)
    return math.inf if abs(chi - 1) < 1e-9 else 0.0 if chi <= 0 else 1 / abs(math.log(chi))
