"""The paper's recipe (sections 2 and 3) stands in the configuration and does to a network what the
paper says."""

from typing import Any

import pytest
import torch

from conftest import compose_config
from rectifiers.runs.config import RunConfig
from rectifiers.training.build import build_network, open_source
from rectifiers.training.optim import configured_optimizer
from rectifiers.training.targets import import_functions

PAPER = {
    **{"optim.lr": 0.01, "optim.momentum": 0.9, "optim.weight_decay": 0.0005},
    **{"data.batch_size": 128, "data.resize_px": 256, "data.crop_px": 224, "data.flip": True},
    **{"scheduler.drop_factor": 10.0, "scheduler.max_drops": 2},  # 0.01, 0.001, 0.0001
    "data.color_sigma": 0.1,  # of Krizhevsky et al. (2012)
    "data.dense_scales_px": (256, 384, 480),  # Table 4
    "data.view_scales_px": (224, 256, 300, 360, 448, 560),  # SPP-net's
    "preprocess.scale": 255.0,
    "init.fc_std": (0.01, 0.01, 0.001),
    "model.dropout": 0.5,
}
LARGE = {"trainer.max_epochs": 80, "data.scale_jitter_px": (256, 512)}  # section 3
SMALL = {"trainer.max_epochs": 75, "data.scale_jitter_px": None}  # Table 2
EXPERIMENTS = {
    **{f"table2/{arm}": SMALL for arm in ("relu", "prelu", "prelu_shared")},
    **{f"table4/{arm}": LARGE for arm in ("relu", "prelu")},
    **{f"table6/{arm}": LARGE for arm in ("a_relu", "a_prelu", "b_prelu", "c_prelu")},
}


def at(config: RunConfig, key: str) -> Any:
    value: Any = config.as_dict()
    for part in key.split("."):
        value = value[part]
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_papers_numbers_stand_in_its_experiments(experiment: str) -> None:
    config = compose_config(f"experiment={experiment}")
    expected = PAPER | EXPERIMENTS[experiment]
    assert {key: at(config, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model=small14", "data=digits"], (0.02, 0.02, 0.002)),  # a quarter of the width
        (["model=model_a", "data=digits", "model.width=0.0625"], (0.04, 0.04, 0.004)),
        (["model=small14", "init.fc_std=null"], None),
        (["model=mlp"], None),  # not a network of the paper
        (["claim=cifar_table2"], None),  # its records are older than the preset
    ],
)
def test_linear_layers_start_small(overrides, expected) -> None:
    assert compose_config(*overrides).init.fc_std == expected


def test_prelu_slopes_have_momentum_and_no_weight_decay() -> None:
    """Section 2.1: the increment is 0.9 times the last one plus the gradient times the learning
    rate."""
    config = compose_config("activation=prelu", "data=digits8", "model=mini", "optim=paper")
    functions = import_functions(config)
    network, _ = build_network(config, functions, open_source(config, functions), None)
    sgd = configured_optimizer(config, functions, network)
    (slope, *_) = (m.weight for m in network.modules() if isinstance(m, torch.nn.PReLU))
    for _ in range(3):
        slope.grad = torch.ones_like(slope)
        sgd.step()
    steps = 1 + 1.9 + 2.71  # of 0.9 times the last one plus 1
    torch.testing.assert_close(slope.detach(), torch.full_like(slope, 0.25 - 0.01 * steps))
