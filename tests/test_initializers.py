"""Random tests here use fixed seeds and never flicker; the false-alarm rate is that of choosing the
seed."""

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.initialization.initialize import initialize
from rectifiers.initialization.report import LayerReport
from rectifiers.initializers import Layer
from rectifiers.models.chains import Site, initialize_chain, warn_of_drift
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from refusals import refused

FALSE_ALARM = 1e-4  # of each statistical test below, if another seed were drawn
LAYER = Layer(
    "conv", 50, 180, find_forward_gain=lambda: math.sqrt(2), find_backward_gain=lambda: math.sqrt(3)
)
SHAPE = (400, 2, 5, 5)  # 20,000 weights


def draw(rule, seed: int = 0, layer: Layer = LAYER) -> tuple[torch.Tensor, float]:
    weight = torch.empty(SHAPE)
    asked = rule(weight, layer, torch.Generator().manual_seed(seed))
    return weight.double().flatten(), asked


def small14(width: float = 1.0, activation=A.relu) -> Network:
    rows = expand(compose_config().model.rows, width=width, classes=1000)
    return Network(rows, activation, channels=3, input_px=224)


def fill(network: Network, rule, *, name: str = "", seed: int = 0, **options) -> list[LayerReport]:
    return initialize_chain(network.sites(), rule, name=name, seed=seed, **options)


@pytest.fixture(scope="module")
def full_size() -> Network:
    return small14()


def symmetric(bound: float) -> Any:
    return stats.uniform(-bound, 2 * bound)


def cut_normal(std: float) -> Any:
    return stats.truncnorm(-2, 2, scale=std / stats.truncnorm(-2, 2).std())


LAWS = [
    (I.he, stats.norm(scale=math.sqrt(2 / 50))),
    (I.he_backward, stats.norm(scale=math.sqrt(3 / 180))),
    (I.he_average, stats.norm(scale=math.sqrt(2 / (50 / 2 + 180 / 3)))),
    (I.xavier, stats.norm(scale=math.sqrt(2 / (50 + 180)))),
    (I.lecun, stats.norm(scale=math.sqrt(1 / 50))),
    (I.gaussian, stats.norm(scale=0.01)),
    (partial(I.gaussian, std=0.3), stats.norm(scale=0.3)),
    (I.torch_default, symmetric(1 / math.sqrt(50))),
    (I.he_uniform, symmetric(math.sqrt(6 / 50))),
    (I.uniform, symmetric(0.05)),
    (partial(I.uniform, half_width=2.0), symmetric(2.0)),
    (I.truncated_normal, cut_normal(math.sqrt(2 / 50))),
    (partial(I.truncated_normal, std=3.0), cut_normal(3.0)),
]


@pytest.mark.parametrize(("rule", "law"), LAWS)
def test_rules_draw_by_their_law(rule, law) -> None:
    weights, asked = draw(rule)
    assert asked == pytest.approx(law.std(), rel=1e-9)
    assert stats.kstest(weights.numpy(), law.cdf).pvalue > FALSE_ALARM
    if law.dist.name == "norm":
        chi2 = float((weights / asked).square().sum())
        low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], df=len(weights))
        assert low < chi2 < high


@pytest.mark.parametrize(("rule", "value"), [(I.zeros, 0), (partial(I.constant, value=0.25), 0.25)])
def test_constant_weights_are_the_constant(rule, value: float) -> None:
    weights, asked = draw(rule)
    assert (weights == value).all()
    assert asked == 0


def test_sinusoidal_units_are_waves_of_rising_frequency() -> None:
    weights, asked = draw(I.sinusoidal)
    assert torch.equal(weights, draw(I.sinusoidal, seed=1)[0])
    assert asked == pytest.approx(math.sqrt(2 / 50)) == pytest.approx(float(weights.std()))
    rows = weights.view(400, 50)
    for unit in (1, 7, 33):
        places = torch.arange(50).double() / 50 + 1 / 400
        wave = torch.sin(unit * 2 * math.pi * places)
        ratio = rows[unit - 1].norm() / wave.norm()
        assert torch.allclose(rows[unit - 1], ratio * wave, atol=1e-6)


def test_he_scaled_is_he_times_beta() -> None:
    (plain, std), (scaled, asked) = draw(I.he), draw(partial(I.he_scaled, beta=0.9))
    assert torch.allclose(scaled, 0.9 * plain)
    assert asked == pytest.approx(0.9 * std)


@pytest.mark.parametrize("std", [None, 0.01])
def test_sparse_leaves_every_unit_k_inputs(std: float | None) -> None:
    weights, asked = draw(partial(I.sparse, k=10, std=std))
    rows = weights.view(400, 50)
    assert ((rows != 0).sum(1) == 10).all()
    expected = math.sqrt(2 / 10) if std is None else std
    assert stats.kstest(rows[rows != 0].numpy() / expected, "norm").pvalue > FALSE_ALARM
    assert asked == pytest.approx(expected * math.sqrt(10 / 50))
    # each input is equally often kept: 400 units, chance 1/5 each
    kept = (rows != 0).sum(0).numpy()
    low, high = stats.binom.ppf([FALSE_ALARM / 100, 1 - FALSE_ALARM / 100], 400, 0.2)
    assert (kept >= low).all()
    assert (kept <= high).all()


def test_sparse_keeps_all_of_few_inputs() -> None:
    weights, asked = draw(partial(I.sparse, k=1000))
    assert (weights != 0).all()
    assert asked == pytest.approx(math.sqrt(2 / 50))


@pytest.mark.parametrize(("outputs", "k"), [(8, 10), (32, 4)])
def test_sparse_keeps_signal_of_transposed_convolutions(outputs: int, k: int) -> None:
    torch.manual_seed(0)
    layer = nn.ConvTranspose2d(128, outputs, 1)
    initialize(layer, (1024, 128, 1, 1), partial(I.sparse, k=k))
    with torch.no_grad():
        second = layer(torch.randn(1024, 128, 1, 1)).square().mean().item()
    assert second == pytest.approx(1, abs=0.2)


def test_torch_default_states_the_std_of_transposed_convolutions() -> None:
    layer = nn.ConvTranspose2d(128, 8, 1)
    (row,) = initialize(layer, (4, 128, 3, 3), "torch_default").layers
    assert row.std == pytest.approx(row.std_drawn, rel=0.05)


@pytest.mark.parametrize(("rows", "columns"), [(30, 50), (50, 30)])
def test_orthogonal_preserves_lengths_times_the_gain(rows: int, columns: int) -> None:
    weight = torch.empty(rows, columns, dtype=torch.float64)
    asked = I.orthogonal(weight, LAYER, torch.Generator().manual_seed(0))
    gram = weight @ weight.T if rows < columns else weight.T @ weight
    assert torch.allclose(gram, 2 * torch.eye(30, dtype=torch.float64))
    assert float(weight.square().mean()) == pytest.approx(asked**2)


def filled_rows() -> tuple[nn.Module, torch.Tensor]:
    rows = [{"name": "fc", "linear": 32, "repeat": 19}, {"name": "out", "linear": 32}]
    network = Network(expand(rows, width=1, classes=32), A.crelu, channels=32, input_px=1)
    fill(network, I.looks_linear)
    return network, torch.randn(64, 32, 1, 1)


def filled_vectors() -> tuple[nn.Module, torch.Tensor]:
    hidden = [module for _ in range(19) for module in (nn.Linear(64, 32), A.crelu(32))]
    network = nn.Sequential(nn.Linear(32, 32), A.crelu(32), *hidden, nn.Linear(64, 10))
    initialize(network, (8, 32), "looks_linear")
    return network, torch.randn(64, 32)


def filled_maps() -> tuple[nn.Module, torch.Tensor]:
    hidden = [module for _ in range(3) for module in (nn.Conv2d(64, 32, 3), A.crelu(32))]
    network = nn.Sequential(nn.Conv2d(32, 32, 3), A.crelu(32), *hidden, nn.Flatten())
    network.append(nn.Linear(64 * 4, 32))
    initialize(network, (8, 32, 10, 10), "looks_linear")
    return network, torch.randn(64, 32, 10, 10)


@pytest.mark.parametrize("reads", [None, "CReLU"])
def test_looks_linear_returns_the_std(reads: str | None) -> None:
    weight = torch.empty(64, 48)
    layer = replace(LAYER, reads=reads)
    asked = I.looks_linear(weight, layer, torch.Generator().manual_seed(0))
    assert float(weight.square().mean()) == pytest.approx(asked**2)


@pytest.mark.parametrize("filled", [filled_rows, filled_vectors, filled_maps])
def test_networks_look_linear_at_the_start(filled) -> None:
    torch.manual_seed(0)
    network, x = filled()
    one, other = x.chunk(2)
    with torch.no_grad():
        expected = 2 * network(one) - network(other)
        torch.testing.assert_close(network(2 * one - other), expected, rtol=0, atol=1e-4)
        assert network(x).square().mean().item() == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("activation", [A.relu, A.maxout])
def test_looks_linear_is_for_crelu_alone(activation) -> None:
    with refused(r"init=looks_linear mirrors .* conv2_1 reads \w+; give"):
        fill(small14(1 / 16, activation), I.looks_linear)


@pytest.mark.parametrize(
    ("layers", "reads"),
    [
        ((nn.ReLU(), nn.Conv2d(8, 8, 1)), "2.weight reads"),
        ((nn.GroupNorm(1, 8), nn.Conv2d(8, 8, 1)), "2.weight reads"),
        ((A.crelu(8), nn.Conv2d(16, 8, 3, groups=2)), "2.weight reads CReLU in"),
        ((A.crelu(8), nn.Conv2d(16, 16, 3, groups=16)), "2.weight reads CReLU in"),
        # a weight of the same shape
        ((A.crelu(8), nn.ConvTranspose2d(16, 16, 3)), "2.weight reads CReLU in"),
        # reads a row of a map
        ((A.crelu(8), nn.Linear(16, 3)), "2.weight reads CReLU in"),
        ((A.crelu(8), nn.ChannelShuffle(2), nn.Conv2d(16, 8, 1)), "3.weight reads channel_shuffle"),
    ],
)
def test_looks_linear_needs_both_halves_in_order(layers: tuple[nn.Module, ...], reads: str) -> None:
    with refused(rf"init=looks_linear .*{reads}"):
        initialize(nn.Sequential(nn.Conv2d(6, 8, 1), *layers), (4, 6, 4, 16), "looks_linear")


@pytest.mark.parametrize("levels", [[1], [2, 1], [3, 2, 1]])
def test_looks_linear_refuses_a_pyramid_of_levels(levels: list[int]) -> None:
    rows = [
        {"name": "conv", "conv": 4, "kernel": 3},
        {"name": "spp", "pyramid": levels},
        {"name": "fc", "linear": 8},
        {"name": "out", "linear": 3},
    ]
    network = Network(expand(rows, width=1, classes=3), A.crelu, channels=2, input_px=8)
    with nullcontext() if levels == [1] else refused(r"fc reads .*pyramid"):
        fill(network, I.looks_linear)


# The recipe's table of stds for the small model: Eq. 14 | Eq. 10 | Xavier, for ReLU.
RECIPE = {
    "conv1": (0.02525, 0.11664, 0.08248),
    "conv2_1": (0.06250, 0.08839, 0.06250),
    "conv2_2": (0.06250, 0.06250, 0.04419),
    "conv3_1": (0.04419, 0.06250, 0.04419),
    "conv3_2": (0.04419, 0.04419, 0.03125),
}


@pytest.mark.parametrize(("rule", "column"), [(I.he_backward, 0), (I.he, 1), (I.lecun, 2)])
def test_stds_are_those_of_the_recipe(full_size: Network, rule, column: int) -> None:
    report = {entry.layer: entry for entry in fill(full_size, rule)}
    for layer, row in RECIPE.items():
        entry = report[layer]
        assert entry.std_asked == pytest.approx(row[column], abs=5e-6)  # as printed
        spread = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(2 * math.prod(entry.shape))
        assert entry.std_drawn == pytest.approx(entry.std_asked, rel=spread)
        (site,) = (site for site in full_size.sites() if site.name == layer)
        weight = site.module.weight.detach().double()
        assert entry.std_drawn == pytest.approx(float(weight.std(correction=0)), rel=1e-9)
        assert entry.std_drawn != entry.std_asked


def test_prelu_narrows_every_std_by_its_slope() -> None:
    def stds(activation, rule) -> list[float]:
        return [e.std_asked for e in fill(small14(1 / 16, activation), rule)]

    for rule in (I.he, I.he_backward, I.he_average):  # Eq. 15: 2 / (1 + a^2) with a = 0.25
        expected = [std / math.sqrt(1.0625) for std in stds(A.relu, rule)]
        assert stds(A.prelu, rule) == pytest.approx(expected)
    assert stds(A.prelu, I.lecun) == stds(A.relu, I.lecun)


def test_maxout_counts_its_pieces_in_fan_out() -> None:
    network = small14(1 / 8, A.maxout)
    entry = next(e for e in fill(network, I.he_backward) if e.layer == "conv2_2")
    assert entry.shape == [32, 16, 2, 2]
    assert entry.fan_out == 4 * 32
    # of the 2 * 16 responses an input reaches, each passes a gradient with probability 1/2: n-hat
    # Var[w] / 2 = 1
    assert entry.std_asked == pytest.approx(math.sqrt(2 / (4 * 32)))


def weights_of(network: Network, **options) -> dict[str, torch.Tensor]:
    fill(network, I.he, **options)
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def test_equal_seeds_give_equal_bits() -> None:
    torch.manual_seed(1)
    first = weights_of(small14(1 / 16))
    torch.manual_seed(2)
    second = weights_of(small14(1 / 16))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_seeds_and_layers_draw_differently() -> None:
    first, other = weights_of(small14(1 / 16)), weights_of(small14(1 / 16), seed=1)
    names = [name for name in first if name.endswith("weight")]
    assert not any(torch.equal(first[name], other[name]) for name in names)
    one_shape = (first["trunk.conv3_2.weight"], first["trunk.conv3_3.weight"])
    assert not torch.equal(*one_shape)


def test_activations_are_compared_from_the_same_draws() -> None:
    relu, prelu = weights_of(small14(1 / 16)), weights_of(small14(1 / 16, A.prelu))
    name = "trunk.conv3_3.weight"
    assert torch.allclose(relu[name], prelu[name] * math.sqrt(1.0625))


def test_first_layer_linear_changes_the_first_alone() -> None:
    network = small14(1 / 16)
    paper = fill(network, I.he)
    linear = fill(network, I.he, first_layer_linear=True)
    assert linear[0].std_asked == pytest.approx(1 / math.sqrt(3 * 49))
    assert [e.std_asked for e in linear[1:]] == [e.std_asked for e in paper[1:]]


def test_biases_are_the_configured_constant() -> None:
    network = small14(1 / 16)
    for bias in (0.0, 0.01):
        fill(network, I.he, bias=bias)
        assert all((site.module.bias == bias).all() for site in network.sites())
    fill(network, I.torch_default, bias="torch_default")
    fc1 = next(site.module for site in network.sites() if site.name == "fc1")
    bound = 1 / math.sqrt(fc1.in_features)
    drawn = fc1.bias.detach().numpy()
    assert stats.kstest(drawn, "uniform", args=(-bound, 2 * bound)).pvalue > FALSE_ALARM


def test_rule_may_ask_for_a_variance() -> None:
    found: dict[str, float] = {}

    def rule(weight: torch.Tensor, layer: Layer, generator: torch.Generator) -> float:
        std = I.lecun(weight, layer, generator)
        found[layer.name] = layer.find_variance(2 * weight) / layer.find_variance(weight)
        return std

    network = small14(1 / 16)
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    fill(network, rule, run=lambda: network(images))
    assert list(found.values()) == pytest.approx([4.0] * 14)


def test_fc_std_changes_linear_layers_alone() -> None:
    report = fill(small14(1 / 16), I.he, name="he", fc_std=[0.01, 0.01, 0.001])
    fixed = [("gaussian", 0.01), ("gaussian", 0.01), ("gaussian", 0.001)]
    assert [(e.rule, e.std_asked) for e in report[-3:]] == fixed
    assert {e.rule for e in report[:-3]} == {"he"}


def test_options_that_do_not_fit_are_refused() -> None:
    network = small14(1 / 16)
    with refused(r"init\.bias=sometimes"):
        fill(network, I.he, bias="sometimes")


@pytest.mark.parametrize("activation", [A.gelu, A.silu])
def test_repelling_activation_causes_a_warning(activation) -> None:
    def chain(depth: int) -> list[Site]:
        acts = [None, *(activation(8) for _ in range(depth - 1)), None]
        return [
            Site(f"fc_{i}", nn.Linear(8, 8), a, b)
            for i, (a, b) in enumerate(pairwise(acts), start=1)
        ]

    with pytest.warns(UserWarning, match=r"fixed point, that of He's gain, repels:") as warned:
        sentence = warn_of_drift(chain(50))
    assert sentence == str(warned[0].message)


@pytest.mark.filterwarnings("error")
def test_rectifiers_and_shallow_nets_cause_no_warning() -> None:
    assert warn_of_drift(small14(1 / 16, A.relu).sites()) is None
    assert warn_of_drift(small14(1 / 16, A.gelu).sites()) is None


class Step(nn.Module):
    """E[f^2] = 1/2 and no gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).to(x.dtype)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_delta_orthogonal_mixes_channels_alone(kernel: int) -> None:
    """What arrives at one position leaves there, half a step off in even kernels, with its length
    times the gain."""
    conv = nn.Conv2d(6, 10, kernel, padding=kernel // 2, bias=False).double()
    asked = I.delta_orthogonal(conv.weight.detach(), LAYER, torch.Generator().manual_seed(0))
    assert asked == pytest.approx(float(conv.weight.detach().square().mean().sqrt()))
    x = torch.randn(4, 6, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = conv(x)[:, :, :9, :9]
    torch.testing.assert_close(y.square().sum(1), 2 * x.square().sum(1), rtol=1e-6, atol=1e-6)


class Explosion(nn.Module):
    """E[f^2] and E[f'^2] are infinite."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x**2)


class Maps(nn.Module):
    """Works on maps only, so that quadrature fails."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, 1, 1) if x.dim() == 4 else x.unflatten(3, (1, 1))


WITHOUT_GAIN = (I.xavier, I.lecun, I.gaussian, I.zeros, partial(I.sparse, std=0.1), I.torch_default)
WITHOUT_GAIN += (I.uniform, partial(I.truncated_normal, std=0.02))


@pytest.mark.parametrize("activation", [Step, Explosion, Maps, partial(nn.LeakyReLU, 1e200)])
def test_rules_without_gain_take_any_activation(activation) -> None:
    for rule in WITHOUT_GAIN:
        report = fill(small14(1 / 16, lambda channels: activation()), rule)
        assert {entry.backward_gain for entry in report} == {None}
        assert {entry.forward_gain for entry in report} == (
            {math.sqrt(2)} if activation is Step else {None}
        )


@pytest.mark.parametrize(
    ("activation", "rule", "sentence"),
    [
        (
            Explosion,
            I.he,
            r"Explosion\(\) has E\[f\(z\)\^2\] = inf .* use an initialiser that needs none, ",
        ),
        (Explosion, I.he_backward, r"Explosion\(\) has E\[f'\(z\)\^2\] = inf"),
        (Step, I.he_backward, r"Step\(\) has E\[f'\(z\)\^2\] = 0\.0"),
        (Step, I.he_average, r"Step\(\) has E\[f'\(z\)\^2\] = 0\.0"),
        (Maps, I.orthogonal, r"Maps\(\) cannot be applied to .*; give it a method `moments\(\)`"),
        (partial(nn.LeakyReLU, 1e200), I.he, r"LeakyReLU\(.*\) has E\[f\(z\)\^2\] = inf"),
    ],
)
def test_rules_of_gain_need_one(activation, rule, sentence: str) -> None:
    with refused(sentence):
        fill(small14(1 / 16, lambda channels: activation()), rule)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("activation", [Step, Explosion, Maps])
def test_activations_without_moments_cause_no_warning(activation) -> None:
    assert warn_of_drift(small14(1 / 16, lambda channels: activation()).sites()) is None


def test_forward_gain_needs_no_gradient() -> None:
    report = fill(small14(1 / 16, lambda _: Step()), I.he, name="he")
    assert {(entry.forward_gain, entry.backward_gain) for entry in report} == {(math.sqrt(2), None)}
