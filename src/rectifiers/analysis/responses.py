"""What a finished run's activations answer on its training images, and the slopes that it has learned."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.data.statistics import load
from rectifiers.evaluation.responses import ResponseMeter, Responses
from rectifiers.nn.networks.network import Network
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.training.assembly import build_network
from rectifiers.training.checkpoints import LAST, AtomicCheckpointIO
from rectifiers.training.module import refuse_other_network

OF_THE_NETWORK = "network."  # how the module calls it in a checkpoint
BY_EPOCH = ("response_mean", "response_std", "active_share", "dead_units")


def responses(config: dict[str, Any], record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the numbers: every layer's mean, std, positive share and dead units after the last epoch, over the centre
    views of the training split; its slopes over channels; and what each epoch heard of the validation split.

    Raises:
        InputError: where the run's checkpoint or its preprocessing is gone or damaged.
    """
    if not (folder / LAST).exists():
        raise InputError(
            f"{folder / LAST} is gone, so no network can be asked; give rerun=true to train this run again"
        )
    subject = AnalysisSetup(config)
    network = trained(subject, folder)
    heard = heard_of(network, subject, folder)
    slopes = network.slopes()
    return {
        "run": record["run"],
        "images": len(subject.source.train.labels),
        "layers": [
            {"layer": name, **_told(each), "slopes": _distribution(slopes[name]) if name in slopes else None}
            for name, each in heard.items()
        ],
        "history": [
            {key: value for key, value in row.items() if key == "epoch" or key.partition("/")[0] in BY_EPOCH}
            for row in record["history"]
        ],
    }


def trained(subject: AnalysisSetup, folder: Path) -> Network:
    """Return the network with the weights of the run's last checkpoint."""
    preprocess = load(folder / "statistics.pt")
    network, _ = build_network(subject.config, subject.source, preprocess.flat_output)
    state = AtomicCheckpointIO().load_checkpoint(folder / LAST)["state_dict"]
    weights = {name.removeprefix(OF_THE_NETWORK): w for name, w in state.items() if name.startswith(OF_THE_NETWORK)}
    refuse_other_network(network, weights)
    network.load_state_dict(weights)
    return network.eval()


@torch.inference_mode()
def heard_of(network: Network, subject: AnalysisSetup, folder: Path) -> dict[str, Responses]:
    """Return what the network's activations answer to all training images, without dropout."""
    preprocess, meter = load(folder / "statistics.pt"), ResponseMeter(network.activations())
    with progress_bar("training images", len(subject.source.train.labels)) as seen, meter.listening():
        for images in subject.data.statistics_batches():
            network(preprocess(images))
            seen(len(images))
    return meter.by_layer()


def _told(heard: Responses) -> dict[str, Any]:
    return {
        "mean": heard.mean,
        "std": heard.std,
        "mean_over_std": heard.mean / heard.std if heard.std else None,
        "active_share": heard.active,
        "dead": heard.dead,
        "units": heard.units,
    }


def _distribution(slopes: Tensor) -> dict[str, Any]:
    exact = slopes.double().flatten()
    quantiles = torch.quantile(exact, torch.tensor([0, 0.25, 0.5, 0.75, 1], dtype=torch.float64)).tolist()
    names = ("least", "quarter", "median", "three_quarters", "most")
    return {
        "channels": exact.numel(),
        "mean": float(exact.mean()),
        "std": float(exact.std(correction=0)),
        **dict(zip(names, quantiles, strict=True)),
        "negative": int((exact < 0).sum()),
        "above_one": int((exact > 1).sum()),
    }
