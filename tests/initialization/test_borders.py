"""Small maps: the inputs that a response really has are counted, and every remedy ends."""

from typing import Any

import pytest
import torch
from torch import nn

from rectifiers import initialize
from rectifiers.initialization.report import InitReport
from refusals import refused

KINDS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "1-D": (nn.Conv1d(32, 32, 5, padding=2), (4,)),
    "2-D": (nn.Conv2d(32, 32, 3, padding=1), (2, 2)),
    "3-D": (nn.Conv3d(32, 32, 3, padding=1), (2, 3, 2)),
    "dilated": (nn.Conv2d(32, 32, 3, padding="same", dilation=3), (5, 5)),
    "strided": (nn.Conv2d(32, 32, (3, 5), stride=(1, 2), padding=(1, 4)), (3, 3)),
    "grouped": (nn.Conv2d(32, 32, 3, padding=2, groups=2), (2, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_counts_inputs_within_borders(kind: str) -> None:
    layer, size = KINDS[kind]
    model = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.LazyLinear(256))
    x = torch.randn(256, 32, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model(x)
    conv, linear = initialize(model, x).layers
    assert conv.fan_in == layer.weight[0].numel(), "as in the paper"
    assert conv.std == pytest.approx(conv.fan_in**-0.5, rel=0.02)
    assert conv.measured < 0.8
    for row in (conv, linear):
        assert row.predicted == pytest.approx(row.measured, rel=0.15)


def test_borders_add_up_over_layers_and_activations() -> None:
    """By the slope of the variance map, 1 of ReLU and 0.46 of tanh; sums by their parts."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) - self.two(x)

    for activation in (nn.ReLU(), nn.Tanh(), nn.SELU()):
        layers = [x for _ in range(5) for x in (nn.Conv2d(64, 64, 3, padding=1), activation)]
        report = initialize(nn.Sequential(*layers, Sum(), nn.Conv2d(64, 64, 1)), (64, 64, 3, 3))
        for row in report.layers:
            assert row.predicted == pytest.approx(row.measured, rel=0.3), activation


SPREAD: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "1-D": (nn.ConvTranspose1d(64, 32, 8), (1,)),
    "2-D": (nn.ConvTranspose2d(64, 32, 4), (1, 1)),
    "3-D": (nn.ConvTranspose3d(64, 32, 3), (1, 1, 1)),
    "strided": (nn.ConvTranspose2d(64, 32, 6, stride=2, padding=1), (1, 1)),
    "dilated": (nn.ConvTranspose2d(64, 32, 3, dilation=4), (2, 2)),
    "grouped": (nn.ConvTranspose1d(64, 32, 16, stride=2, padding=3, groups=4), (2,)),
    "by keywords": (nn.ConvTranspose2d(64, 32, 5, stride=3, output_padding=1), (1, 1)),
}


@pytest.mark.parametrize("kind", SPREAD)
def test_transposed_layers_on_small_maps_keep_the_signal(kind: str) -> None:
    layer, size = SPREAD[kind]
    x = torch.randn(256, 64, *size, generator=torch.Generator().manual_seed(0))
    (row,) = initialize(nn.Sequential(layer), x).check().layers
    # taps beside all inputs, where a stride is wider than what is left of the kernel, respond by 0
    assert row.measured == pytest.approx(1, rel=0.15)
    assert row.predicted == pytest.approx(row.measured, rel=0.15)


def generator() -> nn.Sequential:
    """DCGAN's, from 1 x 1 to 16 x 16."""
    return nn.Sequential(
        *(nn.ConvTranspose2d(100, 64, 4, 1, 0, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh()),
    )


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "empirical"}, {"init": "lsuv"}, {"mode": "average"}], ids=str
)
def test_generator_passes_check_in_every_mode(settings: dict[str, Any]) -> None:
    report = initialize(generator(), (64, 100, 1, 1), **settings)
    assert report.check() is report


def on_one_pixel(dimensions: int) -> nn.Sequential:
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    layers = [x for _ in range(24) for x in (conv(32, 32, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_mode_that_a_warning_names_has_none(dimensions: int) -> None:
    model, shape = on_one_pixel(dimensions), (64, 32, *[1] * dimensions)
    (sentence,) = initialize(model, shape).warnings
    assert 'use mode="empirical"' in sentence
    initialize(model, shape, mode="empirical").check()


def test_no_rule_points_to_one_that_points_back() -> None:
    """Weights of which every row is the same, so that no prediction holds of their responses."""

    def alike(weight: torch.Tensor, layer: Any, generator: torch.Generator) -> float:
        return float(nn.init.constant_(weight, 0.25).mean())

    x = 1 + 0.1 * torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))

    def words(**settings: Any) -> InitReport:
        return initialize(model, x, **settings)

    with refused('mode="empirical"'):
        words(init=alike).check()
    for mode in ("forward", "empirical"):
        assert all("lsuv" not in sentence for sentence in words(init=alike, mode=mode).warnings)
