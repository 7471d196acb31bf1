"""`initialize` and `audit` judge a start alike: what is lost on its way through a network."""

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from networks import Net
from rectifiers import audit, dead_units, initialize
from rectifiers.initializers import Layer, Rule

WIDTH = 32


def batch(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)


def linear(outputs: int = WIDTH, *, bias: bool = True) -> nn.Linear:
    return nn.Linear(WIDTH, outputs, bias=bias)


def rule(**stds: float) -> Rule:
    """A rule with these stds, and else with 1 / sqrt(fan_in)."""

    def fixed(weight: Tensor, layer: Layer, generator: torch.Generator) -> float:
        std = stds.get(layer.name.removesuffix(".weight"), layer.fan_in**-0.5)
        nn.init.normal_(weight, std=std, generator=generator)
        return std

    return fixed


def warnings(model: nn.Module, x: Tensor, init: Rule | str = "he") -> list[tuple[str, ...]]:
    """The warnings of `initialize`, and those of `audit` of the same weights."""
    report, audited = initialize(model, x, init), audit(model, x)
    assert not audited.errors
    return [report.start_warnings, audited.warnings]


def blocks(norm: Callable[[], nn.Module], depth: int) -> nn.Sequential:
    layers = [m for _ in range(depth) for m in (linear(), norm(), nn.ReLU())]
    return nn.Sequential(*layers, linear(4))


def rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-12)


BEFORE_NORM = {
    "batch norm": (blocks(lambda: nn.BatchNorm1d(WIDTH), 10), {str(3 * i): 1e4 for i in range(10)}),
    "small before layer norm": (blocks(lambda: nn.LayerNorm(WIDTH), 2), {"0": 1e-6}),
    "group norm of maps": (
        nn.Sequential(
            nn.Unflatten(1, (2, 4, 4)), nn.Conv2d(2, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(),
            nn.Flatten(), linear(4),
        ),
        {"1": 1e5},
    ),
    "by hand": (
        Net(lambda m, x: m.b(rms_norm(m.a(x)).relu()), a=linear(), b=linear()), {"a": 1e-5}
    ),
    "behind the last layer": (
        nn.Sequential(linear(), nn.ReLU(), linear(), nn.LayerNorm(WIDTH)), {"2": 1e4}
    ),
    "normalised outputs": (
        Net(lambda m, x: F.normalize(m.b(m.a(x).relu())), a=linear(), b=linear()), {"b": 1e4}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE_NORM)
def test_a_normalisation_may_read_any_size(name: str) -> None:
    model, stds = BEFORE_NORM[name]
    assert warnings(model, batch(64, WIDTH), rule(**stds)) == [(), ()]


class Photo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x).relu().mean((2, 3)))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(linear(), nn.ReLU(), linear(8)), torch.ones(64, WIDTH)),
        (Photo(), batch(1, 1, 8, 8).expand(16, 1, 8, 8)),
    ],
    ids=["ones", "one photo"],
)
def test_inputs_that_are_alike_are_not_blamed(model: nn.Module, x: Tensor) -> None:
    assert warnings(model, x + 1e-6 * batch(*x.shape)) == [(), ()]


def test_biases_that_drown_the_data_are_blamed() -> None:
    model = nn.Sequential(linear(), nn.ReLU(), linear(8))
    (sentence,) = audit(model, 1e-6 * batch(64, WIDTH)).warnings
    assert sentence.startswith("inputs become alike")
    assert warnings(model, 1e-6 * batch(64, WIDTH)) == [(), ()]  # whose biases are 0


def drowned(m: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    """A common part, which a layer adds to responses that keep the gradient.

    Another layer reads a constant first."""
    constant = m.constant(m.token.expand(len(x), -1) if hasattr(m, "token") else torch.ones_like(x))
    y = m.data(x) + constant
    return y, m.head(y + 1e5)


class Token(Net):
    """With a class token."""

    def __init__(self, how: Callable[[Net, Tensor], Any], **modules: nn.Module) -> None:
        super().__init__(how, **modules)
        self.token = nn.Parameter(torch.ones(1, WIDTH))


@pytest.mark.parametrize("kind", [Net, Token])
def test_constants_that_run_first_hide_nothing(kind: type[Net]) -> None:
    model = kind(drowned, constant=linear(), data=linear(), head=linear())
    for sentences in warnings(model, batch(64, WIDTH)):
        assert any("inputs become alike" in s and "head" in s for s in sentences)


def scaled_by_constant(m: Net, x: Tensor) -> Tensor:
    return m.data(x) * torch.sigmoid(m.scale(torch.ones_like(x)))


def shifted_by_constant(m: Net, x: Tensor) -> Tensor:
    embedded = torch.tanh(m.first(torch.linspace(0, 1, WIDTH).expand(len(x), -1)))
    return m.data(x) + m.second(embedded)


def with_monitor(m: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    y = m.data(x)
    return y, m.monitor(y + 1e5).detach()


@pytest.mark.parametrize(
    ("how", "names"),
    [
        (scaled_by_constant, ("data", "scale")),
        (shifted_by_constant, ("data", "first", "second")),
        (with_monitor, ("data", "monitor")),
    ],
)
def test_layers_beside_the_data_are_not_blamed(
    how: Callable[[Net, Tensor], Any], names: tuple[str, ...]
) -> None:
    model = Net(how, **{name: linear() for name in names})
    assert not [s for s in initialize(model, batch(64, WIDTH)).warnings if "alike" in s]
    assert not [s for s in audit(model, batch(64, WIDTH)).warnings if "alike" in s]


def test_inputs_are_judged_without_a_backward_pass() -> None:
    model = Net(lambda m, x: m.head(m.data(x) + 1e5).argmax(1), data=linear(), head=linear())
    (sentence,) = initialize(model, batch(64, WIDTH)).start_warnings[:1]
    assert sentence.startswith("inputs become alike")


def loop(uses: int, activation: Callable[[Tensor], Tensor]) -> nn.Module:
    def forward(m: Net, x: Tensor) -> Tensor:
        for _ in range(uses):
            x = activation(m.layer(x))
        return x

    return Net(forward, layer=linear())


@pytest.mark.parametrize(
    ("model", "std", "word"),
    [(loop(40, F.silu), 1.0, "vanishes"), (loop(20, F.relu), 3.0, "explodes")],
    ids=["silu", "relu"],
)
def test_later_uses_of_a_layer_are_judged(model: nn.Module, std: float, word: str) -> None:
    for sentences in warnings(model, batch(64, WIDTH), rule(layer=std * WIDTH**-0.5)):
        assert f"the signal {word}: layer.weight at its last use" in sentences[0]
        assert "mode=" not in sentences[0]  # which changes nothing of it


def recurrent(m: Net, x: Tensor) -> Tensor:
    state = torch.zeros_like(x)
    for _ in range(4):
        state = torch.tanh(m.reads(x) + m.state(state))
    return m.head(state)


def experts(m: Net, x: Tensor) -> Tensor:
    return m.head(m.busy(x)) + m.idle(x[:0]).sum()


class Gate(nn.Module):
    """Multiplies by numbers that start at 0, as in ReZero."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def gated(*gates: nn.Module, inner: nn.Module | None = None) -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        return m.head(x + m.gates(torch.relu(m.inner(x))))

    return Net(forward, inner=inner or linear(), gates=nn.Sequential(*gates), head=linear())


SOUND = {
    "a state that starts at 0": (
        Net(recurrent, reads=linear(), state=linear(bias=False), head=linear()), {}
    ),
    "a head that starts at 0": (nn.Sequential(linear(), nn.ReLU(), linear()), {"2": 0.0}),
    "a shift that starts at 0": (
        Net(lambda m, x: m.head(x + m.shift(x)), shift=linear(), head=linear()), {"shift": 0.0}
    ),
    "a gate that starts at 0": (gated(Gate()), {}),
    "gates of units that start at 0": (gated(Gate(WIDTH)), {}),
    "a normalisation that starts at 0": (gated(nn.LayerNorm(WIDTH), Gate(WIDTH)), {}),
    "scores that are masked by -inf": (
        Net(lambda m, x: m.head(x).masked_fill(x > 0, -torch.inf), head=linear()), {}
    ),
    "scores that are masked": (
        Net(lambda m, x: m.head(x).masked_fill(x > 0, -1e9), head=linear()), {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_sound_starts_are_not_warned_of(name: str) -> None:
    model, stds = SOUND[name]
    assert warnings(model, batch(64, WIDTH), rule(**stds)) == [(), ()]


def test_gates_that_keep_each_other_at_zero_are_warned_of() -> None:
    model = gated(Gate(), Gate())
    assert "inner.weight" in initialize(model, batch(64, WIDTH)).start_warnings[0]
    assert "inner.weight" in audit(model, batch(64, WIDTH)).errors[0]


def test_what_is_lost_behind_a_gate_is_warned_of() -> None:
    chain = nn.Sequential(*[m for _ in range(20) for m in (linear(), nn.Sigmoid())], linear())
    for sentences in warnings(gated(Gate(), inner=chain), batch(64, WIDTH)):
        assert "the gradient vanishes" in sentences[0]
        assert " is 0 times" not in sentences[0]


def test_model_that_cannot_be_copied_is_not_warned_of_zeros() -> None:
    model = gated(Gate())
    model.lock = threading.Lock()
    assert not initialize(model, batch(64, WIDTH)).start_warnings


def test_sparse_gradients_are_measured() -> None:
    tokens = torch.arange(64)[:, None] % 8
    model = nn.Sequential(nn.Embedding(8, WIDTH, sparse=True), nn.Flatten(), gated(Gate()))
    assert warnings(model, tokens) == [(), ()]


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_state_of_a_single_step_needs_no_gradient(kind: Callable[..., nn.Module]) -> None:
    def forward(m: Net, x: Tensor) -> Tensor:
        return m.head(m.recurrent(m.encoder(x)[:, None])[0][:, 0])

    layers = {"encoder": linear(), "recurrent": kind(WIDTH, WIDTH, batch_first=True)}
    report = audit(Net(forward, **layers, head=linear()), batch(64, WIDTH))
    assert not report.errors
    assert any("recurrent.weight_hh_l0" in x.tensors for x in report.findings)


def one_step(m: Net, x: Tensor) -> Tensor:
    return m.head(torch.tanh(m.reads(x) + m.state(torch.zeros(len(x), WIDTH))))


def zeros_through_layers(m: Net, x: Tensor) -> Tensor:
    return m.head(m.reads(x) + m.state(torch.relu(m.memory(torch.zeros(len(x), WIDTH)))))


@pytest.mark.parametrize("how", [one_step, zeros_through_layers])
def test_zeros_of_the_data_are_not_lost(how: Callable[[Net, Tensor], Any]) -> None:
    layers = {name: linear(bias=False) for name in ("reads", "memory", "state", "head")}
    assert not initialize(Net(how, **layers), batch(64, WIDTH)).start_warnings


def test_zeros_that_layers_make_are_lost() -> None:
    model = nn.Sequential(linear(bias=False), nn.Threshold(1e3, 0.0), linear(bias=False))
    (sentence,) = initialize(model, batch(64, WIDTH), rule()).start_warnings
    assert sentence.startswith("the signal vanishes: 2.weight")


def test_layer_without_examples_is_not_judged() -> None:
    model = Net(experts, busy=linear(), idle=linear(), head=linear())
    report = initialize(model, batch(64, WIDTH))
    assert not report.start_warnings
    assert [row.layer for row in report.layers if row.measured is None] == ["idle.weight"]
    audited = audit(model, batch(64, WIDTH))
    assert [(x.severity, x.tensors) for x in audited.findings] == [
        ("note", ("idle.weight", "idle.bias"))
    ]
    assert set(dead_units(model, [batch(64, WIDTH)])) == {"busy.weight", "head.weight"}


@pytest.mark.parametrize(
    "end",
    [lambda y: (y - 100).log(), lambda y: y + math.inf, lambda y: (y, y.new_full((1,), math.nan))],
    ids=["NaN", "infinite", "a part"],
)
def test_outputs_that_are_not_finite_are_an_error(end: Callable[[Tensor], Any]) -> None:
    model = Net(lambda m, x: end(m.head(m.body(x).relu())), body=linear(), head=linear())
    report = initialize(model, batch(64, WIDTH))
    for sentences in (report.start_warnings, audit(model, batch(64, WIDTH)).errors):
        assert [s for s in sentences if s.startswith("the outputs are not finite")]


@pytest.mark.parametrize(
    "end", [nn.Identity(), nn.ReLU(), nn.LogSoftmax(1), nn.Flatten(), nn.AvgPool1d(2)], ids=repr
)
def test_last_layer_with_too_large_outputs_is_lost(end: nn.Module) -> None:
    model = nn.Sequential(linear(), nn.ReLU(), linear(), end)
    for sentences in warnings(model, batch(64, WIDTH), rule(**{"2": 1e4})):
        assert "the signal explodes: 2.weight" in sentences[0]


def test_gradient_that_reaches_no_layer_is_lost() -> None:
    model = nn.Sequential(linear(), nn.ReLU(), linear(), nn.Softmax(1))
    (sentence,) = initialize(model, batch(64, WIDTH), rule(**{"2": 1e6})).warnings
    assert sentence.startswith("the gradient vanishes: it is 0")


def test_gradient_that_is_not_finite_is_said() -> None:
    def forward(m: Net, x: Tensor) -> Tensor:
        zeros = m.one(x).mul(0).square().sum(1, keepdim=True).sqrt()
        return m.two(x + zeros)

    (sentence,) = initialize(Net(forward, one=linear(), two=linear()), batch(8, WIDTH)).warnings
    assert sentence.startswith("the gradient of one.weight is not finite")


def saturated(depth: int) -> nn.Sequential:
    """Layers whose biases leave Tanh a slope of 0.01."""
    layers = [m for _ in range(depth) for m in (linear(), nn.Tanh())]
    for layer in layers[::2]:
        nn.init.constant_(layer.get_parameter("bias"), 3.0)
    return nn.Sequential(*layers, linear(4))


def sigmoids(depth: int) -> nn.Sequential:
    return nn.Sequential(*(m for _ in range(depth) for m in (linear(), nn.Sigmoid())), linear(4))


@pytest.mark.parametrize("make", [lambda: sigmoids(90), lambda: saturated(40)])
def test_gradient_too_small_for_numbers_has_vanished(make: Callable[[], nn.Module]) -> None:
    (sentence,) = audit(make(), batch(16, WIDTH)).errors
    assert "no gradient; the gradient vanishes" in sentence
    assert sentence.startswith("0.weight")


@pytest.mark.parametrize("unit", [1.0, 1e-42])
def test_unit_of_outputs_does_not_matter(unit: float) -> None:
    def forward(m: Net, x: Tensor) -> Tensor:
        return unit * m.head(m.base(x) + m.up(m.down(x)))

    model = Net(forward, base=linear(), down=linear(), up=linear(), head=linear())
    nn.init.zeros_(model.get_parameter("up.weight"))  # so that a step has to be made
    report = audit(model, batch(64, WIDTH)).check(strict=True)
    assert all(row.gradient and math.isfinite(row.gradient) for row in report.tensors)


def test_signal_is_judged_without_a_backward_pass() -> None:
    def forward(m: Net, x: Tensor) -> Tensor:
        return m.layers(x).argmax(1)

    layers = nn.Sequential(*(m for _ in range(30) for m in (linear(), nn.ReLU())))
    init = rule(**{f"layers.{2 * i}": math.sqrt(1 / WIDTH) for i in range(30)})
    (sentence,) = initialize(Net(forward, layers=layers), batch(64, WIDTH), init).warnings
    assert sentence.startswith("the signal vanishes")
