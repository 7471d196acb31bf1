"""What is measured in networks as they start, beside the theory."""

import json
import math
from statistics import NormalDist, fmean

import pytest
import torch
from torch import nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.analysis.propagation import analyse, effects, measure_signal
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.theory.variance import predict

FALSE_ALARM = 1e-4  # of each statistical test, if other seeds were drawn
DEPTH, UNITS, SEEDS = 20, 128, 10
PERCEPTRON = [
    {"name": "fc", "linear": UNITS, "repeat": DEPTH},
    {"name": "out", "linear": "classes"},
]


def signals_of(
    rows, activation, rule, seed: int, *, input_px: int = 12, images: int = 16, **options
):
    network = Network(expand(rows, width=1, classes=10), activation, channels=1, input_px=input_px)
    report = initialize_chain(network.sites(), rule, seed=seed, name="", **options)
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(images, 1, input_px, input_px, generator=draw, dtype=torch.float64)
    gradient = torch.randn(images, 10, generator=draw, dtype=torch.float64)
    return network, [entry.std_asked for entry in report], measure_signal(network, x, gradient)


@pytest.mark.process
@pytest.mark.parametrize(
    ("activation", "rule"),
    [(A.relu, I.he), (A.relu, I.lecun), (A.prelu, I.he), (A.identity, I.lecun), (A.tanh, I.he)],
)
def test_measured_moments_equal_theory_within_width_effect(activation, rule) -> None:
    """In log space, over 10 seeds. The tolerance is the quantile of FALSE_ALARM of the predicted
    spread, for images that are all alike; those here are not, so that false alarms are rarer.

    A factor that is off by 3 % a layer would move the whole by 0.6, which is more than any
    tolerance here but ReLU's."""
    logs, backs = [], []
    for seed in range(SEEDS):
        network, stds, signals = signals_of(PERCEPTRON, activation, rule, seed)
        logs.append(math.log(signals[DEPTH - 1].second / signals[0].second))
        backs.append(math.log(signals[0].gradient_second / signals[DEPTH - 1].gradient_second))
    steps = predict(network.sites(), network.shapes, stds, torch.ones(1, 1, dtype=torch.float64))
    width = steps[DEPTH - 1].width
    assert width is not None
    first = 2 / UNITS  # ln E[y_1^2] of a tanh network starts off by this variance, and forgets it
    tolerance = NormalDist().inv_cdf(1 - FALSE_ALARM / 2) * math.sqrt(
        (width.spread**2 + first) / SEEDS
    )
    expected = steps[DEPTH - 1].response - steps[0].response + width.drift
    assert fmean(logs) == pytest.approx(expected, abs=tolerance)
    back = steps[0].gradient - steps[DEPTH - 1].gradient
    allowed = (
        NormalDist().inv_cdf(1 - FALSE_ALARM / 2) * math.sqrt(5 * DEPTH / UNITS / SEEDS)
        + 5 * DEPTH / 2 / UNITS
    )
    assert fmean(backs) == pytest.approx(back, abs=allowed)


def test_padding_takes_and_a_maximum_adds() -> None:
    def added(*rows: dict) -> dict[str, float]:
        _, _, signals = signals_of([*rows, {"name": "out", "linear": "classes"}], A.prelu, I.he, 3)
        return effects(signals)

    conv = {"name": "conv", "repeat": 3, "conv": 6, "kernel": 3}
    padded, pooled = added({**conv, "padding": 1}), added(conv, {"name": "pool", "max_pool": 2})
    assert padded["border"] < -0.1
    assert padded["pooling"] == pytest.approx(0, abs=1e-12)
    assert pooled["pooling"] > 0.1


def test_vanishing_signal_is_measured_in_double_precision() -> None:
    """256 units: 0.01 ln factor a layer is 256 / 2 * 1e-4 = 0.0128; float32 would call E[y^2] 0
    from layer 24 on."""
    rows = [{"name": "fc", "linear": 256, "repeat": 50}, {"name": "out", "linear": "classes"}]
    _, _, signals = signals_of(rows, A.relu, I.gaussian, 0, input_px=16)
    log10 = math.log10(signals[49].second / signals[0].second)
    # four of its stds for this width
    assert log10 == pytest.approx(49 * math.log10(0.0128), abs=4 * 0.42)


def test_zero_weights_have_no_logarithm(tmp_path) -> None:
    small = ("model=mlp", "data.resize_px=8", "data.crop_px=8", f"cache_dir={tmp_path}")
    numbers = analyse(compose_config("init=zeros", *small), seeds=2, inputs="gaussian")
    assert numbers["total"]["forward"]["measured"] is None
    json.dumps(numbers, allow_nan=False)


@pytest.mark.process
def test_vgg_b_gradient_equals_the_papers_example() -> None:
    """Section 2.2: 1 / (5.9 x 4.2^2 x 2.9^2 x 2.1^4) = 1 / 1.7e4 of Eq. 14's, from conv10 to conv2.

    An identity, and no statistics: the same draws at another scale have the same signs, and a
    network of ReLU and maximum pooling without biases is as large as its weights. Unrounded the
    product is 16,728.8."""
    convs = [row for row in compose_config("model=vgg_b").model.rows if "linear" not in row]
    rows = [*convs, {"name": "out", "linear": "classes"}]

    def gradients(rule):
        _, stds, signals = signals_of(rows, A.relu, rule, 0, input_px=32, images=2, fc_std=[0.01])
        return stds, signals

    stds, he = gradients(I.he_backward)
    _, constant = gradients(I.gaussian)
    printed = [0.059, 0.059, 0.042, 0.042, 0.029, 0.029, 0.021, 0.021, 0.021, 0.021]
    assert [round(std, 3) for std in stds[:10]] == printed
    # conv10 gets the same
    assert constant[9].gradient_second == pytest.approx(he[9].gradient_second, rel=1e-6)
    ratio = math.sqrt(he[0].gradient_second / constant[0].gradient_second)
    assert ratio == pytest.approx(16_728.8, rel=1e-5)
    assert ratio == pytest.approx(5.9 * 4.2**2 * 2.9**2 * 2.1**4, rel=0.02)  # as printed, rounded


@pytest.mark.process
def test_dropout_is_off_and_normalisation_trains(tmp_path) -> None:
    network = ("model=small14", "model.width=0.0625", "model.norm=batch", "init.fc_std=null")
    config = compose_config(*network, f"cache_dir={tmp_path}")
    numbers = analyse(config, seeds=2, inputs="data")
    assert numbers["layers"][0]["theory"] is None  # it is not what Eq. 9 speaks of
    seconds = [layer["response_second"]["mean"] for layer in numbers["layers"]]
    assert max(map(abs, seconds)) < 1  # each layer starts from a variance of 1 again
    built, _ = AnalysisSetup(config).network(0)
    measure_signal(built, torch.randn(4, 1, 32, 32), torch.randn(4, 10))
    assert not any(module.training for module in built.modules() if isinstance(module, nn.Dropout))
