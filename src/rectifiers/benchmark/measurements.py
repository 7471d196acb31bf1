"""What a card says besides the runs: an activation's theory, and what a training step with it
costs."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.torch_internals import memory_tracker
from rectifiers.theory.stability import DEPTHS, Stability, stability

ROUNDS, STEPS, BATCH = 15, 3, 64
BASELINE = "relu"


def theory(activation: nn.Module, weight_variance: float) -> dict[str, Any]:
    """Return the theory of wide chains with `activation`, beside the weight_variance / n that an
    initialiser gives its weights, no biases. What cannot be said of this activation is None.

    `words` and `markdown` say what He's rule makes of signal and gradient, and `limits` up to which
    number of layers, by what ends it."""
    point = stability(activation, max(DEPTHS))
    lead = "" if point.gain is None else _he_in_words(point)
    return {
        "words": f"{lead}{point}",
        "markdown": f"{lead}\n{point.to_markdown()}",
        "limits": point.limits,
        "weight_variance": weight_variance,
        "gain": point.gain,
        "chi": point.chi,
        "map_slope": point.map_slope,
        "fixed_point": point.fixed_point,
    }


def _he_in_words(point: Stability) -> str:
    assert point.gain is not None  # and with it chi
    keeps = "keeps the mean square of the signal and multiplies that of the gradient by χ"
    return (
        f"The gain is {point.gain:.4g} and χ = {point.chi:.4g}. He's rule, n Var[w] = gain² = "
        f"{point.gain**2:.4g}, {keeps} in each layer.\n"
    )


def cost(configs: Mapping[str, RunConfig]) -> dict[str, Any]:
    """Return `seconds_ratio` (median and quartiles over rounds) and `bytes_ratio` of a training
    step of "entry" over that of "relu".

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

    pairs = zip(seconds["entry"], seconds[BASELINE], strict=True)
    low, middle, high = statistics.quantiles([entry / base for entry, base in pairs], n=4)
    peaks = {name: _peak_bytes(config) for name, config in configs.items()}
    return {
        "seconds_ratio": {"median": middle, "low": low, "high": high, "rounds": ROUNDS},
        "bytes_ratio": peaks["entry"] / peaks[BASELINE],
    }


def _parts(config: RunConfig) -> tuple[nn.Module, Tensor, Tensor]:
    setup = AnalysisSetup(config)
    network, _ = setup.initial_network(config.seed)
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
