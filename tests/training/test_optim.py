import pytest
import torch
from torch import nn

from rectifiers import activations as A
from rectifiers.models.network import Network
from rectifiers.models.spec import expand
from rectifiers.training.optim import build_sgd, group_parameters


class OwnSlope(nn.Module):
    """An activation with a parameter nobody has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.steepness = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.steepness * x).tanh()


def network(activation, norm: str = "batch") -> Network:
    rows = expand([{"name": "fc", "linear": 8, "repeat": 3}, {"name": "out", "linear": "classes"}], width=1, classes=10)
    return Network(rows, activation, channels=1, input_px=4, norm=norm)


@pytest.mark.parametrize("activation", [A.prelu, A.prelu_shared, A.relu, lambda channels: OwnSlope()])
def test_only_weights_decay_whatever_the_activation(activation) -> None:
    net = network(activation)
    optimizer = build_sgd(net, lr=0.1, momentum=0.9, weight_decay=5e-4, bias_lr_factor=2.0)
    names = {id(p): name for name, p in net.named_parameters()}
    decayed = {names[id(p)] for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]}
    assert decayed == {f"head.fc_{i}.weight" for i in (1, 2, 3)} | {"head.out.weight"}
    quick = {names[id(p)] for g in optimizer.param_groups if g["lr"] == 0.2 for p in g["params"]}
    assert quick == {f"head.fc_{i}.bias" for i in (1, 2, 3)} | {"head.out.bias"}
    everywhere = [p for g in optimizer.param_groups for p in g["params"]]
    assert len(everywhere) == len({id(p) for p in everywhere}) == len(list(net.parameters()))


def test_slopes_without_a_gradient_stay_where_they_are() -> None:
    """Weight decay would pull them to 0."""
    net = network(A.prelu, norm="none")
    optimizer = build_sgd(net, lr=0.1, momentum=0.9, weight_decay=0.5, bias_lr_factor=1.0)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    weight = net.head.get_submodule("fc_1").weight.detach().clone()
    for _ in range(5):
        optimizer.step()
    assert all((slope == 0.25).all() for slope in net.slopes().values())
    assert net.head.get_submodule("fc_1").weight.abs().sum() < weight.abs().sum()


def test_slopes_decay_where_that_is_asked_for_and_nothing_else_does() -> None:
    net = network(A.prelu)
    optimizer = build_sgd(net, lr=0.1, momentum=0.9, weight_decay=0.0, bias_lr_factor=1.0, slope_weight_decay=0.5)
    names = {id(p): name for name, p in net.named_parameters()}
    decayed = {names[id(p)] for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]}
    assert decayed == {f"head.fc_{i}_act.weight" for i in (1, 2, 3)}
    everywhere = [id(p) for g in optimizer.param_groups for p in g["params"]]
    assert sorted(everywhere) == sorted(names)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert all(slope.tolist() == pytest.approx([0.25 * (1 - 0.1 * 0.5)] * 8) for slope in net.slopes().values())


def test_every_parameter_is_in_one_group() -> None:
    net = network(A.prelu)
    groups = group_parameters(net)
    assert sorted(id(p) for g in groups for p in g) == sorted(id(p) for p in net.parameters())


def test_the_fused_step_is_the_plain_one_but_for_rounding() -> None:
    found = []
    for fused in (False, True):
        torch.manual_seed(0)
        net = network(A.prelu).double()
        optimizer = build_sgd(
            net, lr=0.1, momentum=0.9, weight_decay=0.5, bias_lr_factor=2.0, slope_weight_decay=0.25, fused=fused
        )
        for _ in range(5):
            optimizer.zero_grad()
            net(
                torch.ones(3, 1, 4, 4, dtype=torch.float64) * torch.arange(3).view(3, 1, 1, 1)
            ).square().sum().backward()
            optimizer.step()
        found.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-15)
