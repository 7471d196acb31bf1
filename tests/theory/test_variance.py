"""The theory's predictions against closed forms, and against expectations over many draws of small
networks."""

import math
from statistics import NormalDist

import pytest
import torch
from scipy import integrate
from torch import Tensor, nn

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.analysis.propagation import measure_signal
from rectifiers.gains import moments
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.quadrature import Moments
from rectifiers.theory.moments import fluctuation, moments_at
from rectifiers.theory.stability import stability, width_effect
from rectifiers.theory.variance import predict, window_means
from refusals import refused

FALSE_ALARM = 1e-4  # of each statistical test, if other seeds were drawn


def built(rows: list[dict], activation, rule, *, input_px: int, channels: int = 1, seed: int = 0):
    expanded = expand(rows, width=1, classes=10)
    network = Network(expanded, activation, channels=channels, input_px=input_px)
    report = initialize_chain(network.sites(), rule, seed=seed, name="")
    return network, [entry.std_asked for entry in report]


def predicted(rows: list[dict], activation, rule, *, input_px: int, channels: int = 1):
    network, stds = built(rows, activation, rule, input_px=input_px, channels=channels)
    power = torch.ones(input_px, input_px, dtype=torch.float64)
    return predict(network.sites(), network.shapes, stds, power)


def perceptron(depth: int, units: int) -> list[dict]:
    return [{"name": "fc", "linear": units, "repeat": depth}, {"name": "out", "linear": "classes"}]


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.25, 0.5, 1.0])
def test_fluctuations_of_rectifiers(slope: float) -> None:
    """E[f^4] = 3 (1 + a^4) / 2 and E[f^2] = (1 + a^2) / 2: 5 for ReLU, 2 for a linear unit."""
    expected = 6 * (1 + slope**4) / (1 + slope**2) ** 2 - 1
    assert fluctuation(nn.LeakyReLU(slope)) == pytest.approx(expected, rel=1e-9)
    assert fluctuation(nn.PReLU(3, init=slope), 3) == pytest.approx(expected, rel=1e-6)
    assert fluctuation(A.Maxout(2)) is None


@pytest.mark.parametrize("second", [0.01, 0.3, 1.0, 7.0])
def test_moments_at_other_variances(second: float) -> None:
    std = math.sqrt(second)

    def mean(f) -> float:
        density = NormalDist().pdf
        return integrate.quad(lambda z: f(std * z) * density(z), -12, 12)[0]

    found = moments_at(nn.Tanh(), second)
    assert found.second == pytest.approx(mean(lambda y: math.tanh(y) ** 2), rel=1e-7)
    expected = mean(lambda y: (1 - math.tanh(y) ** 2) ** 2)
    assert found.derivative_second == pytest.approx(expected, rel=1e-7)
    further = moments_at(nn.Tanh(), second * 1.0001).second
    slope = math.log(further / found.second) / math.log(1.0001)
    assert found.map_slope == pytest.approx(slope, rel=1e-3)
    rectifier = moments_at(nn.LeakyReLU(0.5), second)
    assert (rectifier.second, rectifier.derivative_second) == pytest.approx((0.625 * second, 0.625))


def test_moments_at_one_variance_are_refused_elsewhere() -> None:
    class Own(nn.Module):
        def moments(self) -> Moments:
            return Moments(0.4, 0.5, 0.7)

        def forward(self, x: Tensor) -> Tensor:
            return x

    assert moments_at(Own(), 1.0) == moments(Own())
    with refused("Own says its moments for a variance of 1 alone"):
        moments_at(Own(), 2.0)


def test_effect_of_finite_width() -> None:
    """Rectifiers keep every layer's error: -v/(2n) and v/n per layer. tanh forgets them, GELU
    multiplies them."""
    relu = width_effect([(5.0, 256, 1.0)] * 49)
    assert relu is not None
    assert (relu.drift, relu.spread) == pytest.approx((-49 * 5 / 512, math.sqrt(49 * 5 / 256)))
    tanh = width_effect([(0.6, 256, 0.5)] * 49)
    assert tanh is not None
    assert tanh.drift == pytest.approx(2 * -0.6 / 512)
    assert tanh.spread == pytest.approx(math.sqrt(0.6 / 256 / (1 - 0.5**2)))
    assert width_effect([(6.2, 256, 1.144)] * 49) is None  # beyond what a first order can say
    assert width_effect([(6.2, 256, 1.144)] * 5) is not None
    assert width_effect([(None, 256, 1.0)]) is None
    chain = stability(nn.ReLU(), 50)
    assert chain.width is not None
    assert chain.width.drift == pytest.approx(relu.drift)
    words = [stability(name, 50).fixed_point for name in ("tanh", "relu", "gelu")]
    assert words == ["attracts", "neutral", "repels"]


@pytest.mark.parametrize(("slope", "kept"), [(0.0, 0.5), (0.25, 0.53125), (1.0, 1.0)])
def test_eq_9_and_13_on_a_perceptron(slope: float, kept: float) -> None:
    """With Var[w] = 1/n every layer keeps (1 + a^2)/2 of E[y^2] and of E[dy^2] where all layers are
    as wide."""
    steps = predicted(perceptron(30, 64), lambda c: nn.LeakyReLU(slope), I.lecun, input_px=8)
    for i in range(1, 30):
        assert steps[i].response - steps[0].response == pytest.approx(i * math.log(kept), abs=1e-9)
        assert steps[i].response_on_maps == pytest.approx(steps[i].response, abs=1e-9)
        assert steps[0].gradient - steps[i].gradient == pytest.approx(i * math.log(kept), abs=1e-9)
    assert steps[0].response == pytest.approx(0, abs=1e-9)  # n Var[w] E[x^2] = 1
    assert steps[-1].gradient == 0


def test_maps_and_biases_of_a_saturating_activation() -> None:
    """tanh keeps less of the middle of a map than of its border: each place goes with the power of
    the variance map's slope. A bias adds its square to every response."""
    rows = [
        {"name": "conv", "repeat": 2, "conv": 8, "kernel": 3, "padding": 1},
        {"name": "out", "linear": "classes"},
    ]
    network, stds = built(rows, A.tanh, I.he, input_px=7)
    first, second, _ = network.sites()
    torch.nn.init.constant_(first.module.bias, 0.5)
    power = torch.ones(7, 7, dtype=torch.float64)
    steps = predict(network.sites(), network.shapes, stds, power)
    unit = first.fans[0] * stds[0] ** 2
    assert steps[0].response == pytest.approx(math.log(unit + 0.25))
    response = unit * window_means(network.shapes[0].row, power) + 0.25
    mean = float(response.mean())
    after = moments_at(first.after, mean)
    read = after.second * (response / mean) ** after.map_slope
    expected = second.fans[0] * stds[1] ** 2 * window_means(network.shapes[1].row, read).mean()
    assert steps[1].response_on_maps == pytest.approx(math.log(expected))


def test_backward_weights_differ_by_two_widths() -> None:
    """With Eq. 14 the responses change by prod(n / n-hat) = c_2 / d_L (section 2.2); the gradients
    do not."""
    rows = [
        *({"name": f"fc{i}", "linear": w} for i, w in enumerate((64, 128, 256, 512))),
        {"name": "out", "linear": 10},
    ]
    rows[-1]["linear"] = "classes"
    steps = predicted(rows, A.relu, I.he_backward, input_px=8)
    assert steps[3].response - steps[0].response == pytest.approx(math.log(64 / 512))
    assert steps[0].gradient - steps[3].gradient == pytest.approx(0, abs=1e-9)


def test_borders_lose_what_windows_lack() -> None:
    """3 x 3 windows with padding 1 on 7 x 7: 19 of 21 taps per direction lie within."""
    rows = [
        {"name": "conv", "repeat": 2, "conv": 8, "kernel": 3, "padding": 1},
        {"name": "out", "linear": "classes"},
    ]
    steps = predicted(rows, A.identity, I.he, input_px=7)
    assert steps[0].response_on_maps - steps[0].response == pytest.approx(2 * math.log(19 / 21))


def test_padding_of_a_pooling_layer_adds_no_signal() -> None:
    """A random element of each window is always one of the image; 4 of the 16 windows lie within.
    Behind a uniform map the next layer reads what it would read without a border."""
    rows = [
        {"name": "conv", "conv": 8, "kernel": 1},
        {"name": "pool", "max_pool": 3, "stride": 2, "padding": 1},
        {"name": "out", "linear": "classes"},
    ]
    steps = predicted(rows, A.identity, I.he, input_px=7)
    assert steps[1].response_on_maps == pytest.approx(steps[1].response, abs=1e-12)


def test_predicted_maps_equal_the_mean_over_draws() -> None:
    """A linear network, so that the expectation over weights is exact; only maximum pooling adds to
    responses.

    200 draws; every mean lies within the two-sided quantile of FALSE_ALARM of its standard error.
    Seeds start at 1000: among the first 400 the squares of conv1's weights happen to lie 3.4
    standard errors too high by themselves."""
    rows = [
        {"name": "conv1", "conv": 4, "kernel": 3, "stride": 2, "padding": 1},
        {"name": "conv2", "conv": 6, "kernel": 2, "padding": 1},
        {"name": "pool", "max_pool": 2},
        {"name": "conv3", "conv": 4, "kernel": 2, "padding": 0},
        {"name": "spp", "pyramid": [2, 1]},
        {"name": "fc", "linear": 8},
        {"name": "out", "linear": "classes"},
    ]
    steps = predicted(rows, A.identity, I.lecun, input_px=13, channels=2)
    responses, gradients = [], []
    for seed in range(1000, 1200):
        network, _ = built(rows, A.identity, I.lecun, input_px=13, channels=2, seed=seed)
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(4, 2, 13, 13, generator=draw, dtype=torch.float64)
        heard = measure_signal(network, x, torch.randn(4, 10, generator=draw, dtype=torch.float64))
        responses.append([layer.second for layer in heard])
        gradients.append([layer.gradient_second for layer in heard])

    def within(values: list[float], expected: float) -> bool:
        sample = torch.tensor(values, dtype=torch.float64)
        error = float(sample.std()) / math.sqrt(len(values))
        quantile = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
        return abs(float(sample.mean()) - expected) < quantile * error

    for place, step in enumerate(steps):
        if place < 2:  # before any pooling
            seconds = [each[place] for each in responses]
            assert within(seconds, math.exp(step.response_on_maps)), place
        assert within([each[place] for each in gradients], math.exp(step.gradient_on_maps)), place
    assert steps[0].gradient != pytest.approx(steps[0].gradient_on_maps, abs=0.3)
