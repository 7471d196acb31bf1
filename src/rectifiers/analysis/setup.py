"""What an analysis looks at: the network, the images and the preprocessing that a configuration
names."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property

import torch
from torch import Tensor

from rectifiers.data.preprocess import Preprocess
from rectifiers.initialization.report import LayerReport
from rectifiers.models.network import ImageNetwork, Network, of_rows
from rectifiers.results.statistics import mean_of
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.seeds import derive_seed
from rectifiers.training import build
from rectifiers.training.targets import import_functions


class AnalysisSetup:
    """The parts of `config`; preprocessing is fitted, or read from an earlier fit, at first use."""

    def __init__(self, config: RunConfig) -> None:
        if config.init.from_weights is not None:
            raise InputError(
                f"init.from_weights={config.init.from_weights} is for train.py; an analysis looks "
                "at the start that init draws: leave it out"
            )
        self.config = config
        self.functions = import_functions(config)
        self.source = build.inspect_source(build.open_source(config, self.functions), config)
        self.data = build.build_data(config, self.source)

    @cached_property
    def preprocess(self) -> Preprocess:
        return build.build_preprocess(self.config, self.functions, self.data)[0]

    def network(self, seed: int) -> tuple[Network, list[LayerReport]]:
        """Return what `initial_network` does; raise InputError where it is not a network of rows,
        whose theory the analyses follow."""
        network, init_report = self.initial_network(seed)
        return of_rows(network), init_report

    def initial_network(self, seed: int) -> tuple[ImageNetwork, list[LayerReport]]:
        """Return the network as a run of this seed would start with it, and its init report."""
        config = self.config.replaced({"seed": seed})
        return build.initial_network(config, self.functions, self.data, self.preprocess)

    def images(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return (centre views, uint8 [N, C, H, W]; labels, [N]) of `count` training images, or all
        there are."""
        order = torch.randperm(len(self.source.train.labels), generator=generator("images", seed))
        crops = self.data.centre_views("train")
        batch = crops.batch(sorted(order[:count].tolist()))
        return batch.images, batch.labels


def generator(*parts: str | int) -> torch.Generator:
    """Return the analyses' own stream of random numbers for `parts`."""
    return torch.Generator().manual_seed(derive_seed("analysis", *parts))


def log10_mean(values: Sequence[float]) -> JsonObject | None:
    """Return the mean of log10 of `values` with its 95 % interval, None of a single one, and the
    logarithms; None where one is not positive and finite, or there is none."""
    if not values or not all(0 < value < math.inf for value in values):
        return None
    logs = [math.log10(value) for value in values]
    mean = {**asdict(mean_of(logs)), "values": logs}
    return mean if len(logs) > 1 else {**mean, "low": None, "high": None}
