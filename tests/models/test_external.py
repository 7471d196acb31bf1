"""Networks that are no chains: a residual network and the user's own, as networks of the
benchmark."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.models.external import ModuleNetwork, timm_model
from rectifiers.models.resnet import Block, resnet

SMALL = {"name": "resnet", "classes": 10, "channels": 3, "input_px": 32}


@pytest.mark.parametrize(
    ("blocks", "depth", "parameters"), [(3, 20, 0.27e6), (5, 32, 0.46e6), (9, 56, 0.85e6)]
)
def test_resnets_have_the_published_sizes(blocks: int, depth: int, parameters: float) -> None:
    """Table 6 of He et al. (2016)."""
    network = ModuleNetwork(partial(resnet, blocks=blocks, norm="batch"), A.relu, **SMALL)
    assert network.depth == depth
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(parameters, rel=0.02)


def test_multiply_adds_are_those_by_hand() -> None:
    network = ModuleNetwork(partial(resnet, blocks=3), A.prelu, **SMALL)
    stages = [
        9 * (3 * 16 + 6 * 16 * 16) * 32**2,
        9 * (16 * 32 + 5 * 32 * 32) * 16**2,
        9 * (32 * 64 + 5 * 64 * 64) * 8**2,
    ]
    assert network.multiply_adds == sum(stages) + 64 * 10
    assert len(network.slopes()) == len(network.activations()) == 19
    assert {units for _, units in network.activations().values()} == {16, 32, 64}


def test_block_is_that_of_option_a() -> None:
    block, x = Block(A.relu, 4, 6, 2, "batch").eval(), torch.randn(2, 4, 5, 5)
    for norm in (block.norm1, block.norm2):
        nn.init.normal_(norm.bias)
    branch = block.norm2(block.conv2(F.relu(block.norm1(block.conv1(x)))))
    shortcut = torch.cat([x[:, :, ::2, ::2], torch.zeros(2, 2, 3, 3)], 1)
    torch.testing.assert_close(block(x), F.relu(shortcut + branch))


class Own(nn.Module):
    def __init__(self, activation: Callable[[int], nn.Module], classes: int) -> None:
        super().__init__()
        self.stem, self.act, self.head = nn.Conv2d(3, 8, 3), activation(8), nn.Linear(8, classes)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.stem(x)).mean((2, 3)))


def test_own_network_says_what_was_left() -> None:
    network = ModuleNetwork(
        lambda act, classes, channels, input_px: Own(act, classes), A.prelu, **SMALL
    )
    report = network.initialize(I.he, seed=0, name="he", bias=0)
    assert [entry.layer for entry in report] == ["stem", "head"]
    assert network.left == [
        "unused.weight was left as it was: no layer of the forward pass has it as its weight"
    ]
    assert list(network.slopes()) == ["act"]
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.process
def test_timm_network_has_the_activation_everywhere() -> None:
    network = ModuleNetwork(partial(timm_model, name="mobilenetv3_small_050"), A.prelu, **SMALL)
    report = network.initialize(I.he, seed=0, name="he", bias=0)
    assert not network.left
    assert len(report) == sum(isinstance(m, nn.Conv2d | nn.Linear) for m in network.modules())
    assert len(network.slopes()) == sum(isinstance(m, nn.PReLU) for m in network.modules()) > 10
    assert not any(isinstance(m, nn.Hardswish) for m in network.modules())
