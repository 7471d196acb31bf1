"""Fixup: residual networks without normalisation that start as their shortcuts."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import compose_config, same_bits
from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.initialization.initialize import initialize
from rectifiers.models.external import ModuleNetwork
from rectifiers.models.resnet import Block, resnet
from rectifiers.training.checks import checked_functions
from refusals import refused

SMALL = {"name": "resnet", "classes": 10, "channels": 3, "input_px": 16}


def batch(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def fixed_up(blocks: int, activation=A.relu, norm: str = "none") -> ModuleNetwork:
    network = ModuleNetwork(partial(resnet, blocks=blocks, norm=norm), activation, **SMALL)
    network.initialize(I.fixup, seed=0, name="fixup", bias=0)
    assert not network.left
    return network


@pytest.mark.parametrize("activation", [A.relu, A.prelu, A.gelu])
def test_network_starts_as_its_shortcuts(activation) -> None:
    network = fixed_up(3, activation)
    seen: list[tuple[Block, Tensor, Tensor]] = []
    for module in network.modules():
        if isinstance(module, Block):
            module.register_forward_hook(
                lambda block, given, out: seen.append((block, given[0], out))
            )
    assert not network(batch(4, 3, 16, 16)).any()
    assert len(seen) == 9
    for block, x, out in seen:
        shortcut = F.pad(x[:, :, :: block.stride, :: block.stride], (0, 0, 0, 0, 0, block.added))
        assert torch.equal(out, block.act2(shortcut))
        assert out.any()
        assert block.conv1(x).any()


class Residual(nn.Module):
    """A stem, `blocks` branches of `layers` convolutions, the last of them beside a projection, and
    a classifier."""

    def __init__(self, blocks: int, layers: int) -> None:
        super().__init__()
        self.stem, self.project = nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 1)
        self.head = nn.Linear(64, 10)
        self.branches = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(64, 64, 1) for _ in range(layers)) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for number, branch in enumerate(self.branches, start=1):
            y = x
            for layer in branch:
                y = layer(F.relu(y))
            x = y + (self.project(x) if number == len(self.branches) and len(branch) > 1 else x)
        return self.head(F.relu(x).mean((2, 3)))


@pytest.mark.parametrize(("blocks", "layers"), [(4, 1), (4, 2), (16, 3), (9, 4)])
def test_branch_layers_have_the_published_factor(blocks: int, layers: int) -> None:
    """L^(-1 / (2m - 2)) on sqrt(2 / fan_in), which is He's std for what ReLU leaves of a stem's
    responses."""
    model = Residual(blocks, layers)
    report = initialize(model, init="fixup", example_input=batch(64, 3, 6, 6))
    stds = {
        row.layer.removesuffix(".weight"): row.std * math.sqrt(row.fan_in) for row in report.layers
    }
    of_stem = model.stem(batch(64, 3, 6, 6)).square().mean().item()
    factor = blocks ** (-1 / (2 * layers - 2)) if layers > 1 else math.nan
    assert stds["stem"] == pytest.approx(1, abs=0.05)
    assert stds["head"] == 0
    for number in range(blocks):
        asked = [stds[f"branches.{number}.{place}"] for place in range(layers)]
        expected = [factor * math.sqrt(2 / of_stem)] * (layers - 1)
        assert asked[:-1] == pytest.approx(expected, rel=0.12)
        assert asked[-1] == 0
        drawn = [float(layer.weight.detach().std()) * 8 for layer in model.branches[number]]
        assert drawn == pytest.approx(asked, rel=0.1)
    if layers > 1:
        assert stds["project"] == pytest.approx(1 / math.sqrt(of_stem), rel=0.12)
    assert set(report.left) == (set() if layers > 1 else {"project.weight"})


@pytest.mark.parametrize("blocks", [1, 3])
def test_scalars_start_as_identity_and_learn(blocks: int) -> None:
    """Four biases and a multiplier per block, a bias behind the first layer, and one before the
    last."""
    plain, with_scalars = fixed_up(blocks), fixed_up(blocks, norm="fixup")
    own = {name: p for name, p in with_scalars.named_parameters() if p.numel() == 1}
    assert len(own) == 5 * 3 * blocks + 2
    assert not any(m.bias is not None for m in with_scalars.modules() if isinstance(m, nn.Conv2d))
    layers = {name: p for name, p in with_scalars.named_parameters() if p.dim() > 1}
    assert same_bits(layers, {name: p for name, p in plain.named_parameters() if p.dim() > 1})
    assert {name: p.item() for name, p in own.items()} == {
        name: float("scale" in name) for name in own
    }
    x, labels = batch(32, 3, 16, 16), torch.arange(32) % 10
    optimizer = torch.optim.SGD(with_scalars.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(with_scalars(x), labels).backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.item() != 0 for p in own.values())


def test_the_scalars_stand_where_the_paper_has_them() -> None:
    """A block by hand: relu(x + scale * conv2(relu(conv1(x + b1) + b2) + b3) + b4)."""
    block = Block(A.relu, 4, 4, 1, "fixup")
    for number, p in enumerate(p for p in block.parameters() if p.numel() == 1):
        nn.init.constant_(p, 0.5 + number)
    x = batch(2, 4, 5, 5)
    inside = F.relu(block.conv1(x + block.before1.bias) + block.norm1.bias)
    branch = block.norm2.scale * block.conv2(inside + block.before2.bias) + block.norm2.bias
    torch.testing.assert_close(block(x), F.relu(x + branch))


@pytest.mark.parametrize(
    "given", [("model=mini",), ("model=mlp", "activation=gelu"), ("model=mini", "model.norm=batch")]
)
def test_chain_is_refused_before_data_are_opened(given: tuple[str, ...]) -> None:
    with refused(r"init=fixup is for residual networks whose branches"):
        checked_functions(compose_config("data=digits8", *given, "init=fixup"))
