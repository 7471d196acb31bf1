"""The gradient of a chain at the start, by theory and measured, and the warning about it."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.initialization.flow import measure
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.theory.start import gradient_change, warn_of_gradient
from rectifiers.training.start import start_warnings

DEPTH = 12


def network(activation: object, depth: int = DEPTH) -> Network:
    rows = [
        {"name": "fc", "linear": 128, "repeat": depth - 1},
        {"name": "last", "linear": "classes"},
    ]
    return Network(expand(rows, width=1, classes=64), activation, channels=1, input_px=16)


@pytest.mark.parametrize(
    "activation", [A.relu, A.prelu, A.tanh, A.sigmoid, A.softplus, A.maxout, A.crelu, A.gelu]
)
@pytest.mark.parametrize("rule", [I.he, I.lecun, I.he_backward])
def test_gradient_follows_theory_within_a_factor_of_two(activation: object, rule: I.Rule) -> None:
    measured, sites, stds = [], [], []
    for seed in range(4):
        net = network(activation)
        report = initialize_chain(net.sites(), rule, seed=seed, name="", first_layer_linear=True)
        sites, stds = net.sites(), [entry.std_asked for entry in report]
        x = torch.randn(64, 1, 16, 16, generator=torch.Generator().manual_seed(seed))
        layers = [*measure(net, (x,)).layers.values()]
        measured.append(math.log(layers[0].gradient / layers[-1].gradient))
    change = gradient_change(sites, stds)
    assert sum(measured) / len(measured) == pytest.approx(change, abs=math.log(2))


def test_biases_count_in_the_size_that_activations_see() -> None:
    """They saturate tanh, so that less of the gradient comes back."""
    changes = {}
    for std in (0.0, 3.0):
        net = network(A.tanh)
        report = initialize_chain(net.sites(), I.he, seed=0, name="", first_layer_linear=True)
        for site in net.sites():
            nn.init.normal_(site.module.bias, std=std)
        changes[std] = gradient_change(net.sites(), [entry.std_asked for entry in report])
    x = torch.randn(64, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    layers = [*measure(net, (x,)).layers.values()]
    measured = math.log(layers[0].gradient / layers[-1].gradient)
    assert changes[3.0] < changes[0.0] - 1
    assert measured == pytest.approx(changes[3.0], abs=math.log(2) + 0.1 * abs(measured))


@pytest.mark.parametrize(("depth", "is_warned"), [(22, False), (30, True)])
def test_xavier_is_warned_of_from_where_the_paper_stalls(depth: int, *, is_warned: bool) -> None:
    sites = network(A.relu, depth).sites()
    stds = [site.fans[0] ** -0.5 for site in sites]
    with warnings.catch_warnings(record=True):
        assert (warn_of_gradient(sites, stds, "xavier_forward") is not None) is is_warned


@pytest.mark.parametrize("rule", ["he", "gaussian"])
def test_no_remedy_is_the_rule_that_was_given(rule: str) -> None:
    sites = network(A.sigmoid, 40).sites()
    report = initialize_chain(sites, I.he, seed=0, name=rule)
    with pytest.warns(UserWarning, match="the gradient vanishes"):
        sentence = warn_of_gradient(sites, [entry.std_asked for entry in report], report[0].rule)
    assert ("init=he" in sentence) is (rule != "he")


class Unknown(nn.Module):
    """Which says its moments for one variance alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def moments(self) -> object:
        from rectifiers.quadrature import Moments

        return Moments(0.3, 0.04, 0.2)


def test_unknown_moments_cause_no_warning() -> None:
    sites = network(lambda channels: Unknown()).sites()
    assert warn_of_gradient(sites, [1.0] * DEPTH, "he") is None


DIGITS = ("data=digits", "logger=none", "data.num_workers=0")


def sentences(*settings: str) -> list[str]:
    config = compose_config(*DIGITS, *settings)
    net, report = AnalysisSetup(config).initial_network(config.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return start_warnings(config, net, report)


@pytest.mark.parametrize(
    "settings",
    [
        ("model=small30", "activation=sigmoid"),
        ("model=small30", "activation=softplus"),
        ("model=small30", "activation=relu", "init=lecun"),
        ("model=small30", "activation=relu", "init=gaussian"),
    ],
    ids=str,
)
def test_run_warns_of_a_lost_gradient(settings: tuple[str, ...]) -> None:
    (sentence,) = sentences(*settings)
    assert "gradient vanishes" in sentence


@pytest.mark.parametrize(
    "settings",
    [
        ("model=small14", "activation=prelu"),
        ("model=small30", "activation=relu"),
        ("model=small30", "activation=relu", "init=he_backward"),
        ("model=small30", "activation=sigmoid", "model.norm=batch"),
        ("model=resnet20", "model.width=0.5"),
    ],
    ids=str,
)
def test_run_with_a_sound_start_warns_of_nothing(settings: tuple[str, ...]) -> None:
    assert not sentences(*settings)
