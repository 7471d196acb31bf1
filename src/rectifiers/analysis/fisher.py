"""Fisher information for several slopes of the negative side, at the start and along ordinary
trainings."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rectifiers.analysis.histograms import log_spaced
from rectifiers.analysis.setup import AnalysisSetup, generator, mean_and_interval, observe_training
from rectifiers.nn.networks.network import Network
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import stderr
from rectifiers.runtime.errors import InputError
from rectifiers.theory.fisher import MEASURES, check_two_layers, measure
from rectifiers.training.diagnostics import Weights

LEARNED = 0.25  # where the arm of learned slopes starts


def arms(slopes: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return each arm's activation: fixed slopes, and PReLU's learned ones."""
    target = "rectifiers.activations."
    fixed = {
        "ReLU" if slope == 0 else f"fixed {slope:g}": {
            "_target_": f"{target}leaky_relu",
            "slope": float(slope),
        }
        for slope in slopes
    }
    return {
        **fixed,
        f"PReLU from {LEARNED:g}": {"_target_": f"{target}prelu", "initial_slope": LEARNED},
    }


def ideal(slope: float) -> float:
    """Return E[f]^2 / E[f^2] = (1 - a)^2 / (pi (1 + a^2)), y Gaussian: the `output_units` of
    independent units."""
    return (1 - slope) ** 2 / (math.pi * (1 + slope**2))


def analyse(
    config: RunConfig,
    *,
    slopes: Sequence[float],
    seeds: int,
    snapshots: int,
    images: int,
    inputs: str,
) -> dict[str, Any]:
    """Return for every arm and step each measure's mean over seeds with its interval, and its
    difference from the first arm, paired by seed; and the eigenvalues of the first seed.

    Raises:
        InputError: where the network has not two layers, is too large, or Gaussian inputs are to be
        trained on.
    """
    if inputs == "gaussian" and snapshots > 1:
        raise InputError(
            "inputs=gaussian has no labels to train on; give snapshots=1, or inputs=data"
        )
    first = AnalysisSetup(config)
    check_two_layers(first.network(config.seed)[0])
    steps = log_spaced(first.steps, snapshots)
    activations = arms(slopes)
    measured: dict[str, dict[int, list[dict[str, float]]]] = {name: {} for name in activations}
    spectra: dict[str, dict[int, list[float]]] = {name: {} for name in activations}
    for i, (name, activation) in enumerate(activations.items()):
        for j, seed in enumerate(range(config.seed, config.seed + seeds)):
            own = config.replaced({"seed": seed, "activation": activation})
            for step, network, x, labels in _networks(own, steps, images, inputs):
                measures, eigenvalues = measure(network, x, labels)
                measured[name].setdefault(step, []).append(measures)
                if j == 0:
                    spectra[name][step] = eigenvalues.tolist()
            stderr.print(
                f"network {i * seeds + j + 1} of {len(activations) * seeds}", highlight=False
            )
    base = next(iter(measured))
    return {
        "weights": len(spectra[base][0]),
        "arms": [
            {
                "arm": name,
                "ideal": ideal(activation.get("slope", LEARNED)),
                "steps": [
                    {
                        "step": step,
                        "measures": {key: _mean([run[key] for run in runs]) for key in MEASURES},
                        "against_first": None
                        if name == base
                        else {
                            key: _paired(runs, measured[base].get(step, []), key)
                            for key in MEASURES
                        },
                        "eigenvalues": spectra[name].get(step),
                    }
                    for step, runs in sorted(measured[name].items())
                ],
            }
            for name, activation in activations.items()
        ],
    }


def _networks(
    config: RunConfig, steps: Sequence[int], images: int, inputs: str
) -> Iterator[tuple[int, Network, Tensor, Tensor]]:
    """Yield (step, the network as it was, inputs, labels); a training that diverged has fewer."""
    setup, seed = AnalysisSetup(config), config.seed
    network, _ = setup.network(seed)
    if inputs == "gaussian":
        labels = torch.randint(
            len(setup.source.classes), (images,), generator=generator("labels", seed)
        )
        yield 0, network, setup.inputs(inputs, images, seed), labels
        return
    pictures, labels = setup.images(images, seed)
    x = setup.preprocess(pictures)
    if len(steps) == 1:
        yield 0, network, x, labels
        return
    weights = Weights(steps)
    observe_training(config, weights)
    for step, state in sorted(weights.found.items()):
        network.load_state_dict(state)
        yield step, network, x, labels


def _mean(values: Sequence[float]) -> dict[str, Any] | None:
    kept = [value for value in values if math.isfinite(value)]
    return mean_and_interval(kept) if kept else None


def _paired(
    own: Sequence[dict[str, float]], base: Sequence[dict[str, float]], key: str
) -> dict[str, Any] | None:
    """The mean difference over seeds; None where an arm has lost some."""
    return (
        _mean([a[key] - b[key] for a, b in zip(own, base, strict=True)])
        if len(own) == len(base)
        else None
    )
