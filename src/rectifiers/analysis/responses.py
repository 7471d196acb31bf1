"""What a finished run's activations respond to its training images, and the slopes that it has
learned."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.data.preprocess import Preprocess, load_preprocess
from rectifiers.evaluation.responses import ResponseMeter, Responses
from rectifiers.nn.networks.network import ImageNetwork
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.training.build import initial_network
from rectifiers.training.checkpoints import LAST, AtomicCheckpointIO
from rectifiers.training.module import refuse_other_network

PREFIX = "network."  # of the network's weights in a checkpoint of the module
BY_EPOCH = ("response_mean", "response_std", "active_share", "dead_units")


def analyse(config: RunConfig, record: TrainingRecord, folder: Path) -> dict[str, Any]:
    """Return every layer's mean, std, positive share and dead units after the last epoch, over the
    centre views of the training split; its slopes over channels; and what each epoch measured on
    the validation split.

    Raises:
        InputError: where the run's checkpoint or its preprocessing is gone or damaged.
    """
    if not (folder / LAST).exists():
        raise InputError(
            f"{folder / LAST} is gone, so there is no network to measure; give rerun=true to "
            "train this run again"
        )
    setup = AnalysisSetup(config)
    preprocess = load_preprocess(folder / "statistics.pt")
    network = trained(setup, preprocess, folder)
    slopes = network.slopes()
    return {
        "run": record.run,
        "images": len(setup.source.train.labels),
        "layers": [
            {
                "layer": name,
                "mean": layer.mean,
                "std": layer.std,
                "mean_over_std": layer.mean / layer.std if layer.std else None,
                "active_share": layer.active,
                "dead": layer.dead,
                "units": layer.units,
                "slopes": _distribution(slopes[name]) if name in slopes else None,
            }
            for name, layer in responses_of(network, preprocess, setup).items()
        ],
        "history": [
            {
                key: value
                for key, value in row.items()
                if key == "epoch" or key.partition("/")[0] in BY_EPOCH
            }
            for row in record.history
        ],
    }


def trained(setup: AnalysisSetup, preprocess: Preprocess, folder: Path) -> ImageNetwork:
    """Return the network with the weights of the run's last checkpoint."""
    network, _ = initial_network(setup.config, setup.data, preprocess)
    state = AtomicCheckpointIO().load_checkpoint(folder / LAST)["state_dict"]
    weights = {
        name.removeprefix(PREFIX): weight
        for name, weight in state.items()
        if name.startswith(PREFIX)
    }
    refuse_other_network(network, weights)
    network.load_state_dict(weights)
    return network.eval()


@torch.inference_mode()
def responses_of(
    network: ImageNetwork, preprocess: Preprocess, setup: AnalysisSetup
) -> dict[str, Responses]:
    """Return the statistics of the network's responses to all training images, without dropout."""
    meter = ResponseMeter(network.activations())
    with (
        progress_bar("measuring responses", len(setup.source.train.labels)) as advance,
        meter.listening(),
    ):
        for images in setup.data.statistics_batches():
            network(preprocess(images))
            advance(len(images))
    return meter.by_layer()


def _distribution(slopes: Tensor) -> dict[str, Any]:
    exact = slopes.double().flatten()
    quantiles = torch.quantile(
        exact, torch.tensor([0, 0.25, 0.5, 0.75, 1], dtype=torch.float64)
    ).tolist()
    names = ("least", "quarter", "median", "three_quarters", "most")
    return {
        "channels": exact.numel(),
        "mean": float(exact.mean()),
        "std": float(exact.std(correction=0)),
        **dict(zip(names, quantiles, strict=True)),
        "negative": int((exact < 0).sum()),
        "above_one": int((exact > 1).sum()),
    }
