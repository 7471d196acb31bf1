"""The scale of the inputs and training: larger inputs before smaller layers are other learning
rates."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand

SCALE = 60.0
# of He's std; their product is 1 / SCALE
SHARES = {"fc1": 0.8, "fc2": 0.45, "fc3": 1 / (SCALE * 0.8 * 0.45)}
ROWS = [
    {"name": "conv1", "conv": 8, "kernel": 3, "padding": 1},
    {"name": "conv2", "conv": 8, "kernel": 3, "padding": 1},
    {"name": "fc1", "linear": 16},
    {"name": "fc2", "linear": 16},
    {"name": "fc3", "linear": 10},
]
LR, MOMENTUM, DECAY, STEPS = 0.0005, 0.9, 0.01, 6


def build_network() -> Network:
    network = Network(expand(ROWS, width=1, classes=10), A.PReLU, channels=1, input_px=6).double()
    initialize_chain(network.sites(), I.he, seed=0, name="he")
    return network


def build_scaled_network() -> Network:
    """The same function of inputs that are SCALE times as large: its linear layers start at SHARES
    of He's stds."""
    network = build_network()
    with torch.no_grad():
        for site in network.sites():
            site.module.weight *= SHARES.get(site.name, 1.0)
    return network


def train(network: Network, scale: float, rates: dict[str, tuple[float, float]]) -> torch.Tensor:
    """Return the scores after STEPS steps; `rates` gives a layer the factors of (weight, bias) on
    the learning rate."""
    layers = {site.name: site.module for site in network.sites()}
    weights = [
        {
            "params": [m.weight],
            "lr": LR * rates[name][0],
            "weight_decay": DECAY / rates[name][0],
        }  # shrinks all alike
        for name, m in layers.items()
    ]
    biases = [{"params": [m.bias], "lr": LR * rates[name][1]} for name, m in layers.items()]
    known = {id(p) for m in layers.values() for p in (m.weight, m.bias)}
    slopes = [{"params": [p for p in network.parameters() if id(p) not in known], "lr": LR}]
    optimizer = torch.optim.SGD([*weights, *biases, *slopes], momentum=MOMENTUM)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(32, 1, 6, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (32,), generator=generator)
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(network(scale * images), labels).backward()
        optimizer.step()
    return network(scale * images).detach()


def test_scaled_inputs_are_layerwise_rates() -> None:
    responses, rates = SCALE, {}
    for site in build_network().sites():
        share = SHARES.get(site.name, 1.0)
        responses *= share
        rates[site.name] = (share**-2, responses**-2)
    assert abs(responses - 1) < 1e-12  # both give the same scores

    same = dict.fromkeys(rates, (1.0, 1.0))
    scaled = train(build_scaled_network(), SCALE, same)
    torch.testing.assert_close(train(build_network(), 1.0, rates), scaled, rtol=1e-9, atol=1e-9)
    # and not without those rates
    assert (train(build_network(), 1.0, same) - scaled).abs().max() > 0.1


def test_weight_gradient_products_are_equal() -> None:
    network = build_network()
    generator = torch.Generator().manual_seed(1)
    scores = network(torch.randn(32, 1, 6, 6, generator=generator, dtype=torch.float64))
    cross_entropy(scores, torch.randint(10, (32,), generator=generator)).backward()
    products = [
        (site.module.weight * site.module.weight.grad).sum().item() for site in network.sites()
    ]
    assert products == pytest.approx([products[0]] * len(products), rel=1e-9)  # biases start at 0
