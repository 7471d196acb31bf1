"""What an analysis looks at: the network, the images and the preprocessing that a configuration names."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rectifiers.data.module import CenterDataset
from rectifiers.data.preprocess import Preprocess
from rectifiers.nn.initializers import LayerReport
from rectifiers.nn.networks.network import Network
from rectifiers.runtime.seeds import derive_seed
from rectifiers.training.assembly import build_data, build_geometry, build_network, build_preprocess, build_source


class AnalysisSetup:
    """The parts of `config`, a resolved plain dict, each made when it is asked for."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.source = build_source(config)
        self.data = build_data(config, self.source, build_geometry(config))

    @cached_property
    def preprocess(self) -> Preprocess:
        """Fitted to the training split, or kept from an earlier fit."""
        return build_preprocess(self.config, self.data)[0]

    @property
    def steps_an_epoch(self) -> int:
        """Of training."""
        return len(self.data.batches)

    def network(self, seed: int) -> tuple[Network, list[LayerReport]]:
        """Return the network as a run of this seed would start with it, and its init report."""
        return build_network({**self.config, "seed": seed}, self.source, self.preprocess.flat_output)

    def images(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return (centre views, uint8 [N, C, H, W]; labels, [N]) of `count` training images, or all there are."""
        drawn = torch.randperm(len(self.source.train.labels), generator=_generator("images", seed))[:count]
        crops = CenterDataset(self.source, "train", self.data.geometry, skip_bad=self.data.skip_bad)
        batch = crops.__getitems__(sorted(drawn.tolist()))
        return batch.images, batch.labels

    def inputs(self, kind: str, count: int, seed: int) -> Tensor:
        """Return `count` inputs of the network, float64: preprocessed training images, or N(0, 1) in their shape."""
        if kind == "data":
            return self.preprocess(self.images(count, seed)[0]).double()
        flat, side = self.preprocess.flat_output, self.config["data"]["crop_px"]
        shape = (self.source.channels, side, side) if flat is None else (flat,)
        return torch.randn(count, *shape, dtype=torch.float64, generator=_generator("inputs", seed))

    def score_gradient(self, count: int, seed: int) -> Tensor:
        """Return N(0, 1) as the gradient of the scores, float64 [count, classes].

        That of a loss would hang together with the weights, and vanish where large scores saturate the softmax; Eq. 13
        speaks of neither, and says the same for gradients of any size.
        """
        generator = _generator("gradient", seed)
        return torch.randn(count, len(self.source.classes), dtype=torch.float64, generator=generator)


def _generator(*parts: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed("analysis", *parts))
