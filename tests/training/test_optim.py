from functools import partial

import pytest
import torch
from torch import nn

from rectifiers import activations as A
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.parameters import parameter_groups
from rectifiers.training.optim import build_optimizer


class OwnSlope(nn.Module):
    """An activation with a parameter of an unknown kind."""

    def __init__(self) -> None:
        super().__init__()
        self.steepness = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.steepness * x).tanh()


def build_sgd(
    net: nn.Module, *, momentum: float, fused: bool = False, **settings: float
) -> torch.optim.Optimizer:
    groups, rate = parameter_groups(net, **settings), settings["lr"]
    kind = partial(torch.optim.SGD, momentum=momentum)
    return build_optimizer(kind, groups, lr=rate, fused=fused)


def network(activation, norm: str = "batch") -> Network:
    rows = [{"name": "fc", "linear": 8, "repeat": 3}, {"name": "out", "linear": "classes"}]
    rows = expand(rows, width=1, classes=10)
    return Network(rows, activation, channels=1, input_px=4, norm=norm)


def names_of(net: nn.Module, optimizer: torch.optim.Optimizer, key: str, value: float) -> set[str]:
    """The parameters in groups whose setting has a value."""
    groups = [group for group in optimizer.param_groups if group[key] == value]
    own = {id(p) for group in groups for p in group["params"]}
    return {name for name, p in net.named_parameters() if id(p) in own}


@pytest.mark.parametrize(
    "activation", [A.prelu, A.prelu_shared, A.relu, lambda channels: OwnSlope()]
)
def test_only_weights_decay_with_every_activation(activation) -> None:
    net = network(activation)
    optimizer = build_sgd(net, lr=0.1, momentum=0.9, weight_decay=5e-4, bias_lr_factor=2.0)
    layers = ("fc_1", "fc_2", "fc_3", "out")
    decayed = names_of(net, optimizer, "weight_decay", 5e-4)
    assert decayed == {f"head.{layer}.weight" for layer in layers}
    assert names_of(net, optimizer, "lr", 0.2) == {f"head.{layer}.bias" for layer in layers}
    everywhere = [p for g in optimizer.param_groups for p in g["params"]]
    assert len(everywhere) == len({id(p) for p in everywhere}) == len(list(net.parameters()))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_groups_and_their_parameters_have_names(kind) -> None:
    """Also a parameter that two layers share, by its first name."""
    net = nn.Sequential(nn.Linear(4, 4), A.prelu(4), nn.Linear(4, 4), OwnSlope())
    net[2].weight = net[0].weight
    groups = parameter_groups(net, weight_decay=0.1, slope_weight_decay=0.2)
    optimizer = kind(groups, lr=0.1)
    assert {group["name"]: group["param_names"] for group in optimizer.param_groups} == {
        "weights": ["0.weight"],
        "biases": ["0.bias", "2.bias"],
        "others": ["3.steepness"],
        "slopes": ["1.weight"],
    }
    for group in optimizer.param_groups:
        named = [net.get_parameter(name) for name in group["param_names"]]
        assert all(one is other for one, other in zip(named, group["params"], strict=True))


@pytest.mark.parametrize("fused", [False, True])
def test_every_parameter_has_momentum(fused: bool) -> None:
    """Two steps with gradients of 1 move a parameter by lr (1 + (1 + momentum)). With a decay of
    0.5, a slope of 0.25 goes to 0.25 - 0.1 * 1.125 = 0.1375, and then, with a momentum buffer of
    0.9 * 1.125 + 1 + 0.5 * 0.1375 = 2.08125, to -0.070625."""
    net = network(A.prelu)
    settings = {"weight_decay": 0.0, "bias_lr_factor": 2.0, "slope_weight_decay": 0.5}
    optimizer = build_sgd(net, lr=0.1, momentum=0.9, fused=fused, **settings)
    assert len(optimizer.param_groups) == 4
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    for _ in range(2):
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
    for name, p in net.named_parameters():
        lr = 0.2 if name.endswith(("fc_1.bias", "fc_2.bias", "fc_3.bias", "out.bias")) else 0.1
        expected = before[name] - lr * 2.9
        if name.endswith("_act.weight"):
            expected = torch.full_like(p, -0.070625)
        torch.testing.assert_close(p.detach(), expected, msg=name)


@pytest.mark.parametrize("fused", [False, True])
def test_dampening_leaves_the_first_step_whole(fused: bool) -> None:
    p = nn.Parameter(torch.zeros(3))
    kind = partial(torch.optim.SGD, momentum=0.9, dampening=0.9)
    optimizer = build_optimizer(kind, [{"params": [p]}], lr=1.0, fused=fused)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert p.tolist() == [-1.0] * 3


SETTINGS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5}
SETTINGS |= {"bias_lr_factor": 2.0, "slope_weight_decay": 0.25}
LAYOUTS = {"NCHW": torch.contiguous_format, "channels last": torch.channels_last}


def begun(layout: str, fused: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network with convolutions that always starts with the same weights, in double precision."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), A.prelu(4), nn.Conv2d(4, 2, 3)).double()
    net.to(memory_format=LAYOUTS[layout])
    return net, build_sgd(net, **SETTINGS, fused=fused)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for p in net.parameters():
        gradient = torch.randn(p.shape, generator=draw, dtype=p.dtype)
        p.grad = torch.empty_like(p).copy_(gradient) if p.requires_grad else None
    optimizer.step()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("layout_before", LAYOUTS)
@pytest.mark.parametrize("fused_before", [False, True])
def test_fused_and_plain_steps_agree(layout, fused, layout_before, fused_before) -> None:
    """And continue from each other's state."""
    plain = begun("NCHW", False)
    before, now = begun(layout_before, fused_before), begun(layout, fused)
    for seed in (1, 2):
        step(*plain, seed)
        step(*before, seed)
    now[0].load_state_dict(before[0].state_dict())
    now[1].load_state_dict(before[1].state_dict())
    # None: torch chooses
    assert all(group["fused"] is (True if fused else None) for group in now[1].param_groups)
    for seed in (3, 4):
        step(*plain, seed)
        step(*now, seed)
    for one, other in zip(plain[0].parameters(), now[0].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("fused", [False, True])
def test_weights_that_are_unfrozen_later_start_without_momentum(fused: bool) -> None:
    nets = [begun("NCHW", False), begun("NCHW", fused)]
    for net, optimizer in nets:
        net[0].requires_grad_(False)
        step(net, optimizer, 1)
        net[0].requires_grad_(True)
        step(net, optimizer, 2)
        optimizer.state.clear()
        step(net, optimizer, 3)
    for one, other in zip(nets[0][0].parameters(), nets[1][0].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)
