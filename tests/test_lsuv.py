"""LSUV: orthonormal weights, scaled layer after layer until a batch's responses have a variance of
1."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conftest import compose_config, same_bits
from rectifiers import initializers as I
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.data.datamodule import CenterDataset
from rectifiers.data.sources import digits
from rectifiers.initialization.initialize import initialize
from rectifiers.initialization.modes import batch_stats_mode
from rectifiers.initializers import Layer
from rectifiers.runtime.distributed import World
from rectifiers.training.build import build_data, build_network, initial_network
from rectifiers.training.checks import checked_functions
from rectifiers.training.targets import import_functions
from refusals import refused

DIGITS = ("data=digits8", "logger=none", "data.num_workers=0")


def batch(*shape: int) -> Tensor:
    """Images with a mean and a std of their own."""
    return 3 + 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


def variances(network: nn.Module, x: Tensor) -> dict[str, float]:
    """The variance of every layer's responses, as in training."""
    found: dict[str, float] = {}

    def note(name: str, module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        found[name] = float(out.double().var(correction=0))

    layers = {
        n: m
        for n, m in network.named_modules()
        if isinstance(m, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)
    }
    handles = [module.register_forward_hook(partial(note, name)) for name, module in layers.items()]
    with batch_stats_mode(network), torch.no_grad():
        network(x)
    for handle in handles:
        handle.remove()
    return found


def is_orthonormal_up_to_scale(weight: Tensor) -> bool:
    rows = weight.detach().flatten(1).double()
    gram = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    return torch.allclose(gram / gram[0, 0], torch.eye(len(gram), dtype=torch.float64), atol=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        ("model=mini", "activation=relu"),
        ("model=mini", "activation=tanh", "model.norm=batch"),
        ("model=mini", "activation=maxout", "init.bias=0.5", "model.dropout=0.5"),
        ("model=mlp", "activation=gelu", "preprocess=none"),
        ("model=resnet20", "model.width=0.5", "activation=prelu"),
        ("model=resnet20", "model.width=0.5", "model.norm=none", "activation=gelu"),
    ],
)
def test_responses_to_the_first_batch_have_unit_variance(given, fitted) -> None:
    config = compose_config(*DIGITS, *given, "init=lsuv", f"cache_dir={fitted}")
    checked_functions(config)
    setup = AnalysisSetup(config)
    network, report = setup.initial_network(config.seed)
    found = variances(network, setup.preprocess(setup.data.first_batch(config.seed)))
    assert len(found) == len(report) == sum(p.dim() > 1 for p in network.parameters())
    assert all(abs(variance - 1) < 0.1 for variance in found.values()), found
    assert all(is_orthonormal_up_to_scale(p) for p in network.parameters() if p.dim() > 1)
    assert [entry.std_asked for entry in report] == pytest.approx(
        [float(p.detach().square().mean().sqrt()) for p in network.parameters() if p.dim() > 1]
    )


def test_ranks_start_from_equal_bits(fitted: Path) -> None:
    config = compose_config(
        *DIGITS, "model=mini", "init=lsuv", "data.batch_size=60", f"cache_dir={fitted}"
    )
    setup = AnalysisSetup(config)
    shares = [build_data(config, setup.source, World(rank, 3, rank)) for rank in range(3)]
    states = [
        initial_network(config, setup.functions, data, setup.preprocess)[0].state_dict()
        for data in (setup.data, *shares)
    ]
    assert all(same_bits(states[0], state) for state in states[1:])
    other = setup.initial_network(1)[0].state_dict()
    assert not same_bits(states[0], other)


def test_first_batch_is_that_of_training(fitted: Path) -> None:
    config = compose_config(
        *DIGITS, "model=mini", "seed=3", "data.batch_size=60", f"cache_dir={fitted}"
    )
    source = AnalysisSetup(config).source

    for processes in (1, 2, 3):
        parts = [
            build_data(config, source, World(rank, processes, rank)) for rank in range(processes)
        ]
        trained_on = sorted(index for part in parts for _, index in next(iter(part.batches)))
        assert len(trained_on) == 60
        views = CenterDataset(source, "train", parts[0].geometry).__getitems__(trained_on).images
        for part in parts:
            assert sorted(part.first_batch(3).flatten(1).tolist()) == sorted(
                views.flatten(1).tolist()
            )


class Mixed(nn.Module):
    """Grouped, transposed and attended layers, a shared one, a sum and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, bias=False)
        self.grouped = nn.Conv2d(16, 16, 3, groups=4, padding=1)
        self.norm, self.up = nn.BatchNorm2d(16), nn.ConvTranspose2d(16, 32, 2, stride=2)
        self.attend, self.head = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.tanh(self.up(torch.relu(self.norm(x + self.grouped(x))))).flatten(2).mT
        return self.head(self.attend(x, x, x, need_weights=False)[0].mean(1))


def test_initialize_scales_any_network_by_the_example() -> None:
    model, x = Mixed(), batch(16, 3, 8, 8)
    report = initialize(model, init="lsuv", example_input=x)
    assert report.rule == "lsuv"
    assert not report.left
    found = variances(model, x)
    assert set(found) == {"stem", "grouped", "up", "head"}  # attention calls no modules
    assert all(abs(variance - 1) < 0.1 for variance in found.values()), found
    names = [row.layer for row in report.layers]
    assert [name for name in names if "attend" in name] == [
        *(f"attend.in_proj_weight[{part}]" for part in "qkv"),
        "attend.out_proj.weight",
    ]
    with torch.no_grad():
        h = torch.relu(model.stem(x))
        h = nn.functional.batch_norm(h + model.grouped(h), None, None, training=True)
        inputs = torch.tanh(model.up(torch.relu(h))).flatten(2).mT
        for weight in model.attend.in_proj_weight.chunk(3):
            assert float((inputs @ weight.T).var()) == pytest.approx(1, abs=0.1)
            assert is_orthonormal_up_to_scale(weight)
        assert float(model.attend(inputs, inputs, inputs)[0].var()) == pytest.approx(1, abs=0.1)
    again = Mixed()
    initialize(again, init="lsuv", example_input=x)
    assert same_bits(dict(model.named_parameters()), dict(again.named_parameters()))


def layer(*measured: float) -> Layer:
    """A layer whose responses are measured to have these variances, one after the other."""
    found = iter(measured)
    return Layer("fc", 8, 8, lambda: 1 / 0, lambda: 1 / 0, find_variance=lambda weight: next(found))


@pytest.mark.parametrize(
    ("measured", "scale"),
    [((1.09,), 1), ((0.91,), 1), ((4, 1), 1 / 2), ((4, 0.25, 1.05), 1), ((4,) * 10, 2.0**-10)],
)
def test_layer_is_divided_by_the_std(measured: tuple[float, ...], scale: float) -> None:
    weight = torch.empty(8, 8)
    asked = I.lsuv(weight, layer(*measured), torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        weight @ weight.T, scale**2 * torch.eye(8), atol=1e-5 * scale**2, rtol=0
    )
    assert asked == pytest.approx(scale / math.sqrt(8))


def test_tolerance_and_steps_are_settings() -> None:
    weight = torch.empty(8, 8)
    draw = partial(torch.Generator().manual_seed, 0)
    expected = 1 / math.sqrt(8 * 1.05)
    assert I.lsuv(weight, layer(1.05, 1.0), draw(), tolerance=0.01) == pytest.approx(expected)
    assert I.lsuv(weight, layer(4, 4), draw(), steps=2) == pytest.approx(1 / 4 / math.sqrt(8))


def test_unscalable_network_stays_as_it_was() -> None:
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Threshold(1e6, 0.0), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with refused(r"those of 2.weight have a variance of 0 on the first batch"):
        initialize(model, init="lsuv", example_input=batch(16, 4))
    assert same_bits(before, model.state_dict())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("model=mlp preprocess.scale=1e-30", "those of fc_1 have a variance of 0 on the first"),
        ("model=resnet20 model.norm=none activation=squared_relu", "a variance of (inf|nan) on"),
    ],
)
def test_vanishing_run_is_refused(overrides: str, message: str, fitted: Path) -> None:
    config = compose_config(*DIGITS, *overrides.split(), "init=lsuv", f"cache_dir={fitted}")
    setup = AnalysisSetup(config)
    with refused(message):
        setup.initial_network(config.seed)


def test_rows_without_images_are_refused() -> None:
    config = compose_config(*DIGITS, "model=mlp", "init=lsuv")
    with refused(r"measures responses, and there are no images here"):
        build_network(config, import_functions(config), digits(), None)
