"""What a finished run's activations respond to its training images, and the slopes that it has
learned."""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from rectifiers.analysis import output
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.data.preprocess import Preprocess, load_preprocess
from rectifiers.evaluation.metrics import ResponseMeter
from rectifiers.models.network import ImageNetwork
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import run_folder
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject
from rectifiers.training.build import initial_network
from rectifiers.training.checkpoints import LAST, AtomicCheckpointIO
from rectifiers.training.module import refuse_other_network

PREFIX = "network."  # of the network's weights in a checkpoint of the module
QUARTILES = ("least", "quarter", "median", "three_quarters", "most")


def analyse(config: RunConfig) -> JsonObject:
    """Return of a finished run every layer's mean, std, positive share and dead units after the
    last epoch, over the centre views of the training split; and its slopes over channels. Raise
    InputError where the run's checkpoint or its preprocessing is gone or damaged."""
    folder = run_folder(config)
    assert folder is not None  # it is a finished run's
    if not (folder / LAST).exists():
        raise InputError(
            f"{folder / LAST} is gone, so there is no network to measure; give rerun=true to "
            "train this run again"
        )
    setup = AnalysisSetup(config)
    image = (setup.data.source.channels, *setup.data.geometry.crop)
    preprocess = load_preprocess(folder / "statistics.pt", image)
    network = trained(setup, preprocess, folder)
    count, slopes = len(setup.source.train.labels), network.slopes()
    meter = ResponseMeter(network.activations())
    with (
        torch.inference_mode(),
        progress_bar("measuring responses", count) as advance,
        meter.listening(),
    ):
        for images in setup.data.statistics_batches():
            network(preprocess(images))
            advance(len(images))
    layers = []
    for name, layer in meter.by_layer().items():
        row = {"layer": name, "mean": layer.mean, "std": layer.std}
        row["mean_over_std"] = layer.mean / layer.std if layer.std else None
        row |= {"active_share": layer.active, "dead": layer.dead, "units": layer.units}
        row["slopes"] = _distribution(slopes[name]) if name in slopes else None
        layers.append(row)
    return {"run": folder.name, "images": count, "layers": layers}


def trained(setup: AnalysisSetup, preprocess: Preprocess, folder: Path) -> ImageNetwork:
    """Return the network with the weights of the run's last checkpoint."""
    network, _ = initial_network(setup.config, setup.data, preprocess)
    state = AtomicCheckpointIO().load_checkpoint(folder / LAST)["state_dict"]
    names = (name for name in state if name.startswith(PREFIX))
    weights = {name.removeprefix(PREFIX): state[name] for name in names}
    refuse_other_network(network, weights)
    network.load_state_dict(weights)
    return network.eval()


def _distribution(slopes: Tensor) -> JsonObject:
    exact = slopes.detach().double().flatten()
    points = torch.linspace(0, 1, len(QUARTILES), dtype=torch.float64)
    quartiles = dict(zip(QUARTILES, torch.quantile(exact, points).tolist(), strict=True))
    return {"mean": float(exact.mean()), "std": float(exact.std(correction=0)), **quartiles}


def report(numbers: JsonObject) -> list[Table]:
    """Return a line per layer, with its slopes where the network learns some."""
    columns = {"layer": "layer", "mean": "mean", "std": "std", "mean / std": "mean_over_std"}
    columns |= {"share above 0": "active_share", "dead": "dead", "units": "units"}
    if any(layer["slopes"] for layer in numbers["layers"]):
        columns |= {"slope": "slopes.mean", "its std": "slopes.std"}
        columns |= {name.replace("_", " "): f"slopes.{name}" for name in QUARTILES}
    title = f"run {numbers['run']}: responses to all {numbers['images']:,} training images"
    return [output.table(title, numbers["layers"], columns)]


def plot(numbers: JsonObject) -> Figure:
    """Draw mean and spread of every layer, its active and dead shares, and its slopes over
    channels."""
    layers = numbers["layers"]
    names, places = [layer["layer"] for layer in layers], range(len(layers))
    with_slopes = [layer for layer in layers if layer["slopes"]]
    panels = 3 if with_slopes else 2
    title = f"run {numbers['run']}, all {numbers['images']:,} training images"
    figure = output.new_figure(panels * max(4.0, 1 + 0.2 * len(layers)), 4.2, title)
    means, shares, *rest = figure.subplots(1, panels)
    stds = output.column(layers, "std")
    means.errorbar(
        places, output.column(layers, "mean"), stds, fmt="o", color=output.MEASURED, capsize=3
    )
    means.axhline(0, color="black", lw=0.8)
    output.label_axes(means, names, title="responses: mean and std", ylabel="f(y)")
    active = [100 * layer["active_share"] for layer in layers]
    dead = [100 * layer["dead"] / layer["units"] for layer in layers]
    shares.bar(places, active, color=output.MEASURED, label="responses above 0")
    shares.bar(places, dead, width=0.4, color=output.MAPS, label="units never above 0 (dead)")
    output.label_axes(shares, names, title="active and dead", ylabel="%", ylim=(0, 100))
    for axes in rest:
        boxes = []
        for layer in with_slopes:
            ends = zip(("whislo", "q1", "med", "q3", "whishi"), QUARTILES, strict=True)
            boxes.append({box: layer["slopes"][name] for box, name in ends} | {"fliers": []})
        axes.bxp(boxes, positions=range(len(boxes)), widths=0.6)
        axes.axhline(0.25, color=output.MAPS, lw=0.8, ls="--", label="0.25, the paper's start")
        slopes = [layer["layer"] for layer in with_slopes]
        output.label_axes(axes, slopes, title="slopes over channels: quartiles and range")
    return figure
