"""The scale of the inputs and training: larger inputs before smaller layers are other learning rates."""

import torch
from torch.nn.functional import cross_entropy

from rectifiers.nn import activations as A
from rectifiers.nn import initializers as I
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import expand
from rectifiers.nn.sites import initialize

SCALE = 60.0
SHARES = {"fc1": 0.8, "fc2": 0.45, "fc3": 1 / (SCALE * 0.8 * 0.45)}  # of He's std; their product is 1 / SCALE
ROWS = [
    {"name": "conv1", "conv": 8, "kernel": 3, "padding": 1},
    {"name": "conv2", "conv": 8, "kernel": 3, "padding": 1},
    {"name": "fc1", "linear": 16},
    {"name": "fc2", "linear": 16},
    {"name": "fc3", "linear": 10},
]
LR, MOMENTUM, DECAY, STEPS = 0.0005, 0.9, 0.01, 6


def network() -> Network:
    made = Network(expand(ROWS, width=1, classes=10), A.PReLU, channels=1, input_px=6).double()
    initialize(made.sites(), I.he, seed=0, name="he")
    return made


def scaled(of: Network) -> Network:
    """The same function of inputs that are SCALE times as large: its linear layers start at SHARES of He's stds."""
    made = network()
    made.load_state_dict(of.state_dict())
    with torch.no_grad():
        for site in made.sites():
            site.module.weight *= SHARES.get(site.name, 1.0)
    return made


def trained(made: Network, scale: float, rates: dict[str, tuple[float, float]]) -> torch.Tensor:
    """The scores after STEPS steps; `rates` gives each layer the factors of (weight, bias) on the learning rate."""
    layers = {site.name: site.module for site in made.sites()}
    weights = [
        {"params": [m.weight], "lr": LR * rates[name][0], "weight_decay": DECAY / rates[name][0]}  # shrinks all alike
        for name, m in layers.items()
    ]
    biases = [{"params": [m.bias], "lr": LR * rates[name][1]} for name, m in layers.items()]
    known = {id(p) for m in layers.values() for p in (m.weight, m.bias)}
    slopes = [{"params": [p for p in made.parameters() if id(p) not in known], "lr": LR}]
    optimizer = torch.optim.SGD([*weights, *biases, *slopes], momentum=MOMENTUM)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(32, 1, 6, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (32,), generator=generator)
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(made(scale * images), labels).backward()
        optimizer.step()
    return made(scale * images).detach()


def test_larger_inputs_before_smaller_layers_are_other_learning_rates() -> None:
    unit = network()
    large = scaled(unit)
    responses, rates = SCALE, {}
    for site in unit.sites():
        share = SHARES.get(site.name, 1.0)
        responses *= share
        rates[site.name] = (share**-2, responses**-2)
    assert abs(responses - 1) < 1e-12  # both give the same scores

    same = dict.fromkeys(rates, (1.0, 1.0))
    of_large = trained(large, SCALE, same)
    torch.testing.assert_close(trained(network(), 1.0, rates), of_large, rtol=1e-9, atol=1e-9)
    assert (trained(network(), 1.0, same) - of_large).abs().max() > 0.1  # and not without those rates
