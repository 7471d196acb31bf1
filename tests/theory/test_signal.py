"""Initialisation keeps the signal: 50 layers of 256 units in float64, several seeds, no
training."""

import math
from functools import partial

import pytest
import torch

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.gains import Mode, gain
from rectifiers.models import chains
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand

DEPTH, WIDTH, SEEDS = 50, 256, range(8)


@pytest.fixture(autouse=True)
def _one_gain_per_kind_of_layer(monkeypatch) -> None:
    """Compute a test's gains once: all layers have the same activation, and each quadrature takes
    10 ms."""
    gains: dict[tuple, float] = {}

    def cached_gain(activation: torch.nn.Module, channels: int, *, mode: Mode) -> float:
        key = (repr(activation), channels, mode)
        if key not in gains:
            gains[key] = gain(activation, channels, mode=mode)
        return gains[key]

    monkeypatch.setattr(chains, "gain", cached_gain)


def last_responses(activation) -> list[float]:
    """ln E[y_L^2] of the last hidden layer's responses for E[x^2] = 1, one value per seed."""
    logs = []
    for seed in SEEDS:
        rows = [{"name": "fc", "linear": WIDTH, "repeat": DEPTH}, {"name": "out", "linear": 10}]
        rows = expand(rows, width=1, classes=10)
        network = Network(rows, activation, channels=1, input_px=16).double()
        initialize_chain(network.sites(), I.he, seed=seed, name="", first_layer_linear=True)
        caught: list[torch.Tensor] = []
        network.head.get_submodule(f"fc_{DEPTH}").register_forward_hook(
            lambda *a, caught=caught: caught.append(a[2])
        )
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(64, 1, 16, 16, dtype=torch.float64, generator=draw)
        with torch.no_grad():
            network(x)
        logs.append(math.log(float(caught[0].square().mean())))
    return logs


STABLE = [A.relu, A.leaky_relu, A.prelu, A.prelu_shared, A.identity, A.maxout]
STABLE += [partial(A.maxout, pieces=4), A.tanh, A.elu, A.softplus]


@pytest.mark.process
@pytest.mark.parametrize("activation", STABLE)
def test_he_keeps_the_second_moment_through_fifty_layers(activation) -> None:
    """The mean of ln E[y^2] over 8 seeds lies within +-0.7 (a factor of 2) of 0.

    Finite width moves it by -5/(2n) a layer for ReLU, -0.48 in all, with a standard error of about
    0.2 over 8 seeds. A gain that is wrong by 5 % a layer would move it by 2.5."""
    logs = last_responses(activation)
    assert abs(sum(logs) / len(logs)) < 0.7, logs
