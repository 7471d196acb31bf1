"""What residual= gives the ends of residual branches."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers import initialize
from refusals import refused


class Decoder(nn.Module):
    """L blocks of `parts` gated branches behind normalisations, as of attention and perceptrons."""

    def __init__(self, blocks: int, parts: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(20, 64)
        self.up, self.ends = (
            nn.ModuleList(nn.Linear(64, 64) for _ in range(blocks * parts)) for _ in range(2)
        )
        self.head = nn.Linear(64, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for up, end in zip(self.up, self.ends, strict=True):
            x = x + end(F.silu(up(F.layer_norm(x, (64,)))))
        return self.head(F.layer_norm(x, (64,)))


class Reshaped(nn.Module):
    """A branch whose responses are brought into the shape or type of the shortcut by `end`."""

    def __init__(self, end: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        return x + self.end(self.down(F.silu(self.up(x))), x)


class Scaled(nn.Module):
    """Branches that end in a normalisation, or in a scale by hand; no stem before them."""

    def __init__(self, *, by_hand: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(3))
        self.gamma, self.by_hand = nn.Parameter(torch.ones(32)), by_hand

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            y = layer(F.relu(x))
            x = x + (y * self.gamma[None] if self.by_hand else norm(y))
        return x


def stds(report: Any) -> list[float]:
    return [row.std for row in report.layers if row.layer.startswith("ends")]


TOKENS = torch.arange(60).view(12, 5) % 20


@pytest.mark.parametrize(("blocks", "parts"), [(1, 2), (6, 2), (4, 3)])
def test_share_is_that_of_gpt2(blocks: int, parts: int) -> None:
    report = initialize(Decoder(blocks, parts), TOKENS)
    for row in report.layers:
        he = 1 / math.sqrt(row.fan_in * row.second_in)
        sums = parts * blocks if row.layer.startswith("ends") else 1
        assert row.std == pytest.approx(he / math.sqrt(sums))
        assert row.std_drawn == pytest.approx(row.std, rel=0.1)


@pytest.mark.parametrize(
    "end",
    [
        lambda y, x: y.flatten(0, 1).view_as(x),
        lambda y, x: y.ravel().reshape_as(x),
        lambda y, x: y.expand_as(x),
        lambda y, x: y.double().type_as(x),
        lambda y, x: y.half().bfloat16().to(x),
        lambda y, x: y.swapaxes(0, 1).moveaxis(0, 1).swapdims(0, 1).swapdims(0, 1),
    ],
    ids=["view_as", "reshape_as", "expand_as", "type_as", "to", "swapaxes"],
)
def test_branches_end_in_layers_behind_views(end: Callable[[Tensor, Tensor], Tensor]) -> None:
    model = nn.Sequential(nn.Linear(32, 32), *(Reshaped(end) for _ in range(4)), nn.Linear(32, 2))
    shares = {row.layer: row.share for row in initialize(model, (4, 8, 32)).layers}
    assert shares == {name: 0.25 if "down" in name else 1.0 for name in shares}


@pytest.mark.parametrize("settings", [{}, {"mode": "empirical"}, {"init": "orthogonal"}], ids=str)
def test_depth_lets_later_branches_be_smaller(settings: dict[str, str]) -> None:
    report = initialize(Decoder(4), TOKENS, residual="depth", **settings).check()
    ends = [row for row in report.layers if row.layer.startswith("ends")]
    assert [row.share for row in ends] == pytest.approx([1 / k for k in range(1, 9)])
    for row in ends:
        assert row.measured == pytest.approx(row.share, rel=0.5)


@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "empirical"}, {"mode": "backward"}, {"init": "xavier"}, {"bias": 0.5}],
    ids=str,
)
def test_zero_leaves_the_shortcuts_alone(settings: dict[str, Any]) -> None:
    model = Decoder(3)
    report = initialize(model, TOKENS, residual="zero", **settings).check()
    assert stds(report) == [0.0] * 6
    assert not any(p.any() for p in model.ends.parameters())
    assert all(layer.weight.any() for layer in model.up)
    x = model.token(TOKENS)
    assert torch.equal(model(TOKENS), model.head(F.layer_norm(x, (64,))))


@pytest.mark.parametrize("by_hand", [False, True])
def test_zero_sets_scales_that_end_branches(by_hand: bool) -> None:
    model, x = Scaled(by_hand=by_hand), torch.randn(64, 32)
    report = initialize(model, x, residual="zero").check()
    assert torch.equal(model(x), x)
    assert report.others.keys() == (
        {"gamma"} if by_hand else {f"norms.{i}.weight" for i in range(3)}
    )
    assert all(layer.weight.any() for layer in model.layers)


def test_network_without_a_stem_is_not_alarmed() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = (nn.Linear(32, 32) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x + self.two(F.relu(self.one(x))))

    report = initialize(Plain(), (64, 32), residual="zero").check()
    assert [row.gradient == 0 for row in report.layers] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"residual": "sqrt_2l"}, "residual=sqrt_2l is not known; choose one of: share, zero"),
        ({"residual": None}, "residual=None is not known"),
        ({"residual": "depth", "init": "lsuv"}, "residual=depth: the rule does not ask"),
        ({"residual": "depth", "init": "xavier"}, "residual=depth: the rule does not ask"),
        ({"residual": "depth", "mode": "backward"}, "residual=depth: the rule does not ask"),
        ({"residual": "zero", "model": nn.Linear(32, 8)}, "residual=zero: needs residual branches"),
        (
            {"residual": "zero", "model": Reshaped(lambda y, x: F.relu(y))},
            "residual=zero: needs residual branches",
        ),
        ({"residual": "depth", "model": nn.Linear(32, 8)}, "residual=depth: no residual branch"),
    ],
)
def test_options_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    model = settings.pop("model", Decoder(2))
    before = copy.deepcopy(model.state_dict())
    example = TOKENS if isinstance(model, Decoder) else (4, 32)
    with refused(message):
        initialize(model, example, **settings)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
