"""What a training step costs beside ReLU's: seconds, interleaved, and the memory that it holds at
most."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.models.network import ImageNetwork
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.torch_internals import memory_tracker
from rectifiers.training.build import initial_network

ROUNDS, STEPS, BATCH = 15, 3, 64
BASELINE = "relu"


def cost(configs: Mapping[str, RunConfig]) -> dict[str, Any]:
    """Return `seconds_ratio` (median and quartiles over rounds) and `bytes_ratio` of "entry" over
    "relu".

    configs: of the same task with both activations. Rounds are interleaved, in random order; CPU
    seconds of one thread."""
    steps = {name: _step(config) for name, config in configs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order = random.Random(0)
    with progress_bar("timing steps", ROUNDS + 1, "rounds") as advance:
        for number in range(ROUNDS + 1):
            for name in order.sample(list(steps), len(steps)):
                started = time.process_time()
                for _ in range(STEPS):
                    steps[name]()
                if number:  # the first round warms up
                    seconds[name].append((time.process_time() - started) / STEPS)
            advance(1)
    held = {name: _peak_bytes(config) for name, config in configs.items()}
    ratios = [own / other for own, other in zip(seconds["entry"], seconds[BASELINE], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "seconds": statistics.median(seconds["entry"]),
        "seconds_ratio": {"median": middle, "low": low, "high": high, "rounds": ROUNDS},
        "bytes": held["entry"],
        "bytes_ratio": held["entry"] / held[BASELINE],
    }


def _parts(config: RunConfig) -> tuple[ImageNetwork, Tensor, Tensor]:
    setup = AnalysisSetup(config)
    network, _ = initial_network(config, setup.data, setup.preprocess)
    images, labels = setup.images(BATCH, 0)
    return network.train(), setup.preprocess(images), labels


def _step(config: RunConfig) -> Callable[[], None]:
    network, x, labels = _parts(config)

    def step() -> None:
        network.zero_grad(set_to_none=True)
        F.cross_entropy(network(x), labels).backward()

    return step


def _peak_bytes(config: RunConfig) -> int:
    """The most bytes that a step holds at a time, by torch's tracker."""
    network, x, labels = _parts(config)
    tracker = memory_tracker()
    tracker.track_external(network, x, labels)
    with tracker:
        F.cross_entropy(network(x), labels).backward()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return int(peak["Total"])
