"""Fisher information for several slopes of the negative side, at the start and along ordinary trainings."""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from rectifiers.analysis.histograms import spaced
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.nn.networks.network import Network
from rectifiers.results.statistics import mean_of
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed
from rectifiers.theory.fisher import MEASURES, check_two_layers, measure
from rectifiers.training.diagnostics import Weights
from rectifiers.training.run import train

LEARNED = 0.25  # where the arm of learned slopes starts


def arms(slopes: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return each arm's activation: fixed slopes, and PReLU's learned ones."""
    fixed = {
        ("ReLU" if slope == 0 else f"fixed {slope:g}"): {
            "_target_": "rectifiers.activations.leaky_relu",
            "slope": float(slope),
        }
        for slope in slopes
    }
    learned = {"_target_": "rectifiers.activations.prelu", "initial_slope": LEARNED}
    return {**fixed, f"PReLU from {LEARNED:g}": learned}


def ideal(slope: float) -> float:
    """Return E[f]^2 / E[f^2] = (1 - a)^2 / (pi (1 + a^2)), y Gaussian: the `output_units` of independent units."""
    return (1 - slope) ** 2 / (math.pi * (1 + slope**2))


def fisher(
    config: dict[str, Any],
    *,
    slopes: Sequence[float],
    seeds: int,
    snapshots: int,
    images: int,
    inputs: str,
    tell: Callable[[int], None],
) -> dict[str, Any]:
    """Return the numbers for every arm and step: each measure's mean over seeds with its interval, and, paired by
    seed, its difference from the first arm; and the eigenvalues of the first seed.

    tell: is called with 1 after every network or training.

    Raises:
        InputError: where the network has not two layers, is too large, or Gaussian inputs are to be trained on.
    """
    if inputs == "gaussian" and snapshots > 1:
        raise InputError("inputs=gaussian has no labels to train on; give snapshots=1, or inputs=data")
    first = AnalysisSetup(config)
    check_two_layers(first.network(config["seed"])[0])
    steps = spaced(config["optim"]["epochs"] * first.steps_an_epoch, snapshots)
    found: dict[str, dict[int, list[dict[str, float]]]] = {}
    spectra: dict[str, dict[int, list[float]]] = {}
    for name, activation in arms(slopes).items():
        for seed in range(config["seed"], config["seed"] + seeds):
            own = {**config, "seed": seed, "activation": activation}
            for step, network, x, labels in _networks(own, steps, images, inputs):
                measured, values = measure(network, x, labels)
                found.setdefault(name, {}).setdefault(step, []).append(measured)
                if seed == config["seed"]:
                    spectra.setdefault(name, {})[step] = values.tolist()
            tell(1)
    base = next(iter(found))
    return {
        "weights": len(next(iter(next(iter(spectra.values())).values()))),
        "arms": [
            {
                "arm": name,
                "ideal": ideal(activation.get("slope", LEARNED)),
                "steps": [
                    {
                        "step": step,
                        "measures": {key: _mean([each[key] for each in measured]) for key in MEASURES},
                        "against_first": None
                        if name == base
                        else {key: _paired(measured, found[base].get(step, []), key) for key in MEASURES},
                        "eigenvalues": spectra[name].get(step),
                    }
                    for step, measured in sorted(found[name].items())
                ],
            }
            for name, activation in arms(slopes).items()
        ],
    }


def _networks(
    config: dict[str, Any], steps: Sequence[int], images: int, inputs: str
) -> list[tuple[int, Network, Tensor, Tensor]]:
    """(step, the network as it was, inputs, labels); a training that diverged has fewer."""
    subject, seed = AnalysisSetup(config), config["seed"]
    pictures, labels = subject.images(images, seed)
    if inputs == "gaussian":
        draw = torch.Generator().manual_seed(derive_seed("analysis", "labels", seed))
        labels = torch.randint(len(subject.source.classes), (images,), generator=draw)
        return [(0, subject.network(seed)[0], subject.inputs(inputs, images, seed), labels)]
    x = subject.preprocess(pictures)
    if len(steps) == 1:
        return [(0, subject.network(seed)[0], x, labels)]
    look = Weights(steps)
    with tempfile.TemporaryDirectory() as place:
        own = {**config, "runs_dir": place, "rerun": False, "logger": {**config["logger"], "name": "none"}}
        train(own, {}, [look])
    found = []
    for step, weights in sorted(look.found.items()):
        network, _ = subject.network(seed)
        network.load_state_dict(weights)
        found.append((step, network, x, labels))
    return found


def _mean(values: Sequence[float]) -> dict[str, Any] | None:
    kept = [value for value in values if math.isfinite(value)]
    return asdict(mean_of(kept)) if kept else None


def _paired(own: Sequence[dict[str, float]], base: Sequence[dict[str, float]], key: str) -> dict[str, Any] | None:
    """The mean difference over seeds; None where an arm has lost some."""
    return _mean([a[key] - b[key] for a, b in zip(own, base, strict=True)]) if len(own) == len(base) else None
