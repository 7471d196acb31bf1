"""`initialize` finds what every layer of any network reads and feeds, and keeps the signal."""

import copy
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from rectifiers import activations as A
from rectifiers import audit, gains, initializers
from rectifiers.initialization.filling import bias_part
from rectifiers.initialization.initialize import InitReport, initialize
from rectifiers.models import chains
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.runtime.errors import InputError
from rectifiers.theory.stability import stability
from refusals import refused


def batch(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def row(report: InitReport, layer: str):
    return next(row for row in report.layers if row.layer == layer)


class Model(nn.Module):
    """Two layers, and whatever `forward` makes of them."""

    def __init__(self, forward: Callable[["Model", Tensor], Tensor], width: int = 256) -> None:
        super().__init__()
        self.one = nn.Linear(64, width)
        self.two, self.other = nn.Linear(width, width), nn.Linear(width, width)
        self.how = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self, x)


RELU, GELU = 0.5, gains.moments(nn.GELU()).second
SLOPES = torch.linspace(0, 1, 256)
READ = {  # what the second layer reads of normal responses y, and its E[x^2]
    "relu": (lambda y: F.relu(y), RELU),
    "relu in place": (lambda y: F.relu(y, inplace=True), RELU),
    "a method": (lambda y: y.relu(), RELU),
    "gelu": (lambda y: F.gelu(y), GELU),
    "silu by hand": (lambda y: y * torch.sigmoid(y), gains.moments(nn.SiLU()).second),
    "by operators": (lambda y: 2 * y**2 + 1, 4 * 3 + 4 + 1),
    "nothing": (lambda y: y, 1.0),
    "dropout": (lambda y: F.dropout(y.relu(), training=False), RELU),
    "a view": (lambda y: y.relu().view(-1, 16, 16).transpose(1, 2).flatten(1), RELU),
    "the gate of two halves": (lambda y: y[:, :128].repeat(1, 2) * 1.0, 1.0),
    "slopes of a channel": (lambda y: F.prelu(y, SLOPES), (1 + (SLOPES**2).mean()) / 2),
    "softmax": (lambda y: 256 * y.softmax(1), math.e),  # measured: E[e^2y] / E[e^y]^2
}


@pytest.mark.parametrize("read", READ)
def test_a_layer_is_filled_for_what_it_reads(read: str) -> None:
    function, second = READ[read]
    model = Model(lambda m, x: m.two(function(m.one(x))))
    report = initialize(model, example_input=batch(512, 64))
    found = row(report, "two.weight")
    # the sample of weights and of the example
    assert found.second_in == pytest.approx(float(second), rel=0.12)
    assert found.std == pytest.approx(1 / math.sqrt(256 * found.second_in))
    assert found.measured == pytest.approx(1, abs=0.2)
    assert [name.partition(".")[0] for name in report.left] == ["other"]


def test_two_halves_of_a_response_are_independent() -> None:
    """A gated linear unit: half of it times the sigmoid of the other."""
    model = Model(lambda m, x: m.two(F.pad(F.glu(m.one(x), 1) * 2, (0, 128))))
    by_hand = Model(
        lambda m, x: (lambda a, b: m.two((a * b.sigmoid()).repeat(1, 2)))(*m.one(x).chunk(2, 1))
    )
    reports = [initialize(m, example_input=batch(512, 64)) for m in (model, by_hand)]
    gate = gains.moments(nn.Sigmoid()).second
    assert row(reports[1], "two.weight").second_in == pytest.approx(gate, rel=0.05)
    assert row(reports[0], "two.weight").measured == pytest.approx(1, abs=0.2)


def test_chain_gets_the_stds_of_its_rows() -> None:
    conv = {"name": "conv", "conv": 16, "kernel": 3, "padding": 1, "repeat": 3}
    rows = expand([conv, {"name": "fc", "linear": "classes"}], width=1, classes=10)
    x = batch(16, 3, 8, 8)
    for activation in (A.prelu, A.relu, A.maxout):
        network = Network(rows, activation, channels=3, input_px=8)

        def chain_stds(rule, network: Network = network) -> list[float]:
            report = chains.initialize_chain(network.sites(), rule, seed=0, name="")
            return [entry.std_asked for entry in report]

        forward, backward = chain_stds(initializers.he), chain_stds(initializers.he_backward)
        stds = [entry.std for entry in initialize(network, example_input=x).layers]
        assert stds[1:] == pytest.approx(forward[1:], rel=0.12)
        report = initialize(network, example_input=x, mode="backward")
        stds = [entry.std for entry in report.layers]
        assert stds[:-1] == pytest.approx(backward[:-1], rel=1e-6)


class Residual(nn.Module):
    """A plain stem, `blocks` residual blocks of two convolutions without normalisation, and a
    classifier."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(blocks))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(F.relu(first(F.relu(x))))
        return self.head(F.relu(x).mean((2, 3)))


def test_residual_sums_do_not_grow_with_depth() -> None:
    blocks = 40
    model = Residual(blocks)
    report = initialize(model, example_input=batch(8, 3, 12, 12))
    shares = {r.layer.partition(".")[0]: r.share for r in report.layers}
    assert shares == {"stem": 1.0, "first": 1.0, "second": pytest.approx(1 / blocks), "head": 1.0}
    assert 0.3 < report.layers[-1].measured < 3
    for r in report.layers:
        if r.layer.startswith("second"):
            model.get_parameter(r.layer).data.mul_(math.sqrt(blocks))
    head = next(r for r in audit(model, batch(8, 3, 12, 12)).tensors if r.tensor == "head.weight")
    assert head.second > 1e6 * report.layers[-1].measured


def test_layers_of_many_kinds_keep_the_signal() -> None:
    mixed = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, groups=4),
        nn.BatchNorm2d(16),
        nn.ELU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.PReLU(16),
        nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 64, 1),
        nn.Flatten(2),
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
    )
    report = initialize(mixed, example_input=batch(8, 8, 8, 8))
    assert {r.layer for r in report.layers} == {
        *(f"{i}.weight" for i in (0, 3, 5, 8)),
        *(f"10.self_attn.in_proj_weight[{part}]" for part in "qkv"),
        *(f"10.{name}.weight" for name in ("self_attn.out_proj", "linear1", "linear2")),
    }
    assert not report.left
    for r in report.layers:
        assert r.measured is None or r.share / 2 < r.measured < 2 * r.share, r


def test_what_is_not_understood_is_named_and_left() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.never = nn.Embedding(10, 32), nn.Linear(3, 3)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))
            self.rnn, self.last = nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.rnn(self.normed(self.table(x)))[0])

    model = Odd()
    before = copy.deepcopy(model.state_dict())
    report = initialize(model, example_input=torch.randint(10, (4, 6)))
    assert not report.layers or {r.layer for r in report.layers} <= {"last.weight"}
    changed = {
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    }
    assert changed <= {"last.weight", "last.bias"}
    assert {"table.weight", "never.weight", "rnn.weight_ih_l0"} <= set(report.left)
    assert report.left["rnn.weight_ih_l0"].startswith("recurrent layers, such as this LSTM, are")
    assert "left as it was" in report.to_markdown()


class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)


def picky(weight: Tensor, layer: initializers.Layer, generator: torch.Generator) -> float:
    if layer.name == "0.weight":
        raise InputError("not this one")
    return initializers.he(weight, layer, generator)


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"mode": "backward"}, {"0.weight"}),
        ({"init": picky}, {"0.weight"}),
        ({"init": "zeros", "mode": "empirical"}, {"0.weight", "2.weight"}),
    ],
)
def test_layer_that_no_rule_fits_is_kept(settings: dict, left: set[str]) -> None:
    model = nn.Sequential(nn.Linear(16, 32), Step(), nn.Linear(32, 4))
    before = copy.deepcopy(model.state_dict())
    report = initialize(model, batch(8, 16), **settings)
    assert report.left.keys() == left
    for name, value in model.named_parameters():
        is_left = name.replace("bias", "weight") in left
        assert torch.equal(value, before[name]) is is_left


def test_seed_decides_where_a_rule_has_numbers_of_its_own() -> None:
    """A user's rule may call torch.nn.init, which draws from torch's own numbers."""

    def rule(weight: Tensor, layer: Any, generator: torch.Generator) -> float:
        nn.init.normal_(weight, std=0.1)
        return 0.1

    drawn = []
    for seed, before in ((1, 0), (1, 7), (2, 7)):
        torch.manual_seed(before)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        state = torch.get_rng_state()
        initialize(net, (16, 8), rule, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        drawn.append(net[0].weight)
        assert not torch.equal(net[0].weight, net[2].weight)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])


def test_equal_seeds_give_equal_weights() -> None:
    def weights(seed: int) -> Tensor:
        model = Model(lambda m, x: m.two(m.one(x).relu()))
        initialize(model, init="orthogonal", example_input=batch(8, 64), seed=seed)
        return model.two.weight.detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    rows = weights(1) @ weights(1).T
    assert torch.allclose(rows, rows[0, 0] * torch.eye(256), atol=1e-5)


class ChannelScale(nn.Module):
    """A scale per channel of maps."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale[:, None, None]


def test_a_scale_per_channel_of_maps_is_measured() -> None:
    convs = [nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)]
    report = initialize(nn.Sequential(convs[0], ChannelScale(16), convs[1]), (8, 3, 16, 16))
    assert report.layers[1].second_in == pytest.approx(report.layers[0].measured / 4)


def test_attention_feeds_no_output() -> None:
    x = batch(4, 6, 32)
    report = initialize(nn.MultiheadAttention(32, 4, batch_first=True), (x, x, x))
    assert [row.feeds for row in report.layers] == ["attention"] * 3 + ["the output"]


def test_unusable_arguments_are_one_sentence() -> None:
    model = nn.Linear(4, 4)
    for arguments, message in (
        ({"model": F.relu}, "is no module; give a network"),
        ({"model": [model]}, "is no module; give a network"),
        ({"model": Language}, "model=Language is a class; give a network, as Language\\(\\)"),
        ({"example_input": (4,)}, "without a batch dimension; give a batch, such as \\(64, 4\\)"),
        ({"example_input": (0, 4)}, "is no shape; give sizes of at least 1"),
        ({"init": "Layer"}, "init=Layer is not usable; give the name of a rule"),
        ({"init": nn.init.kaiming_normal_}, "is not usable; give the name of a rule"),
        ({"bias": "zero"}, "bias=zero is not usable; give a number such as 0, or torch_default"),
        ({"mode": "sideways"}, "mode=sideways is not known; choose one of: forward, backward"),
        ({"example_input": torch.zeros(2, 4)}, "example_input is all zeros"),
        ({"example_input": torch.zeros(0, 4)}, "no numbers; give a batch of at least one"),
        ({"example_input": batch(2, 4)[:, :0]}, "no numbers; give a batch of at least one"),
        ({"example_input": batch(2, 4) / 0}, "NaN.*without them"),
        ({"example_input": torch.ones(2, 5)}, "Linear cannot be run on example_input"),
    ):
        with refused(message):
            initialize(**{"model": model, "example_input": batch(2, 4), **arguments})
    for sizes, message in (({"depth": 2.5}, "depth=2.5"), ({"depth": 2, "units": 0}, "units=0")):
        with refused(f"{message} is not usable; give a whole number"):
            stability(nn.ReLU(), **sizes)


def test_unusable_examples_name_their_remedy() -> None:
    linear, bilinear, pairs = nn.Linear(4, 4), nn.Bilinear(4, 4, 4), TensorDataset(batch(4, 4))
    remedy = "give a batch in the shape and type its layers read, or a shape, as (64, 3, 32, 32)"
    for model, example, message in (
        (linear, [2, 4], f"type list (...); {remedy}"),
        (linear, None, f"type NoneType (...); {remedy}"),
        (linear, DataLoader(pairs), f"type DataLoader (...); {remedy}"),
        (linear, batch(2, 4).double(), f"shape (2, 4) (...); {remedy}"),
        (bilinear, (2, 4), "give a tuple of what its forward method takes: input1, input2"),
        (bilinear, ((2, 4), (2, 5)), f"shape (2, 4), (2, 5) (...); {remedy}"),
    ):
        with pytest.raises(InputError) as raised:
            initialize(model, example)
        cause = raised.value.__cause__
        words = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        assert message in str(raised.value).replace(words, "..."), str(raised.value)


def test_rule_may_follow_the_example() -> None:
    for rule in ("orthogonal", initializers.orthogonal):
        assert initialize(nn.Linear(4, 4), (8, 4), rule).rule == "orthogonal"


class Language(nn.Module):
    """A causal language model of one block, by hand, whose head is the embedding of its tokens."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(50, width), nn.Embedding(12, width)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, 256), nn.Linear(width, 256)
        self.down = nn.Linear(256, width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        x = x + self.mixed(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        x = x + self.down(F.silu(self.gate(self.norms[1](x))) * self.up(self.norms[1](x)))
        return F.linear(x, self.token.weight)


def test_layers_behind_embeddings_are_filled() -> None:
    torch.manual_seed(0)  # of the embeddings
    report = initialize(Language(), example_input=torch.randint(50, (16, 12)))
    names = [r.layer.removesuffix(".weight") for r in report.layers]
    assert names == ["qkv", "mixed", "gate", "up", "down", "token"]
    assert [r.share for r in report.layers] == pytest.approx([1, 1 / 2, 1, 1, 1 / 2, 1])
    assert report.left.keys() == {"place.weight"}
    assert report.others.keys() == {"token.weight"}
    for r in report.layers:
        assert r.share / 1.5 < r.measured < 1.5 * r.share, r


@pytest.mark.parametrize("given", ["bytes", "nested", "attended"])
def test_numbers_without_a_layer_before_them_are_measured(given: str) -> None:
    torch.manual_seed(0)  # of what is not filled
    model = Model(lambda m, x: m.two(F.relu(m.one(x))))
    example = batch(256, 64)
    if given == "bytes":
        model.how = lambda m, x: m.two(F.relu(m.one(x / 255)))
        example = torch.randint(0, 256, (256, 64), dtype=torch.uint8)
    if given == "nested":
        model.how = lambda m, x: m.two(F.relu(m.one(x["x"][0])))
        example = ({"x": [example]},)
    if given == "attended":
        model.token, model.mix = nn.Embedding(9, 64), nn.MultiheadAttention(64, 4, batch_first=True)
        model.how = lambda m, tokens: (lambda x: m.two(F.relu(m.one(m.mix(x, x, x)[0]))))(
            m.token(tokens)
        )
        example = torch.randint(9, (16, 8))
    report = initialize(model, example_input=example)
    assert set(report.left) <= {"other.weight", "token.weight"}
    assert all(r.measured is None or 0.6 < r.measured < 1.6 for r in report.layers)


def test_products_of_many_matrices_are_filled() -> None:
    model = Model(lambda m, x: m.two((m.one(x)[None] @ m.experts).mean(0)) @ m.vector, width=64)
    model.experts = nn.Parameter(torch.randn(4, 64, 64))
    model.vector = nn.Parameter(torch.randn(64))
    report = initialize(model, example_input=batch(256, 64))
    assert row(report, "experts").fan_in == row(report, "experts").fan_out == 64
    assert row(report, "experts").measured == pytest.approx(1, abs=0.2)


SUMS = {  # of x and of the branch y that reads x; the factor on E[y^2]
    "x - y": (lambda x, y: x - y, 1.0),
    "y - x": (lambda x, y: y.sub(x), 1.0),
    "x + y / 2": (lambda x, y: torch.add(x, y, alpha=0.5), 0.25),
    "x - y / 2": (lambda x, y: torch.sub(x, y, alpha=0.5), 0.25),
}


@pytest.mark.parametrize("how", SUMS)
def test_differences_and_scaled_sums_are_residual_sums_too(how: str) -> None:
    combine, factor = SUMS[how]
    model = Model(lambda m, x: (lambda y: m.other(combine(y, m.two(F.relu(y)))))(m.one(x)))
    report = initialize(model, example_input=batch(256, 64))
    found = row(report, "other.weight")
    assert found.reads == "a sum"
    assert found.second_in == pytest.approx(1 + factor, rel=0.1)
    assert found.measured == pytest.approx(1, abs=0.15)


def test_dependent_sums_are_measured() -> None:
    """y + (y + z): the parts are not independent, and E of the square is 4 + 1, not 1 + 2."""
    model = Model(lambda m, x: (lambda y: m.other(y + (y + m.two(F.relu(y)))))(m.one(x)))
    report = initialize(model, example_input=batch(256, 64))
    assert row(report, "other.weight").second_in == pytest.approx(5, rel=0.1)


class AfterTheSum(nn.Module):
    """Blocks whose activation comes after the sum, without normalisation."""

    def __init__(self, activation: nn.Module, blocks: int) -> None:
        super().__init__()
        self.stem, self.activation = nn.Conv2d(3, 32, 3, padding=1), activation
        self.blocks = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.stem(x))
        for block in self.blocks:
            x = self.activation(x + block(x))
        return x


@pytest.mark.parametrize(
    "activation", [nn.GELU(), nn.SiLU(), nn.ReLU()], ids=["gelu", "silu", "relu"]
)
def test_sums_of_activations_are_predicted(activation: nn.Module) -> None:
    """Taken as normal, the numbers behind 12 GELUs had 50 times the mean square that was
    predicted."""
    report = initialize(AfterTheSum(activation, 12), example_input=batch(8, 3, 16, 16))
    assert report.layers[-1].reads.endswith("of a sum (measured)")
    assert [r.share for r in report.layers] == pytest.approx([1, *[1 / 12] * 12])
    for r in report.layers:
        assert 3 / 4 < r.measured / r.predicted < 4 / 3, r


def test_shared_layer_is_filled_for_its_first_use() -> None:
    model = Model(lambda m, x: m.two(F.relu(m.two(m.one(x)))))
    report = initialize(model, example_input=batch(256, 64))
    reads = row(report, "two.weight").reads
    assert reads == "one.weight, for which it is filled, the first of 2 uses"
    assert row(report, "one.weight").reads == "the input"


@pytest.mark.parametrize("how", ["an item", "a part", "a rectified part"])
def test_partly_overwritten_map_is_measured(how: str) -> None:
    def forward(m: Model, x: Tensor) -> Tensor:
        y = m.one(x)
        if how == "an item":
            y[:, :192] = 0
        elif how == "a part":
            y[:, :192].mul_(0)
        else:
            F.threshold(y[:, :192], 1e9, 0.0, inplace=True)
        return m.two(y)

    report = initialize(Model(forward), example_input=batch(256, 64))
    assert row(report, "two.weight").second_in == pytest.approx(0.25, rel=0.1)


def test_function_behind_known_moments_is_measured() -> None:
    model = Model(lambda m, x: m.other(m.two(0.5 * m.maxout(m.one(x)))), width=256)
    model.maxout = A.maxout(128)
    model.two = nn.Linear(128, 256)
    report = initialize(model, example_input=batch(512, 64))
    found = row(report, "two.weight")
    assert found.second_in == pytest.approx(0.25 * gains.moments(A.maxout(128)).second, rel=0.1)


def test_hooks_are_part_of_the_run() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    model[1].register_forward_hook(lambda module, args, out: 2 * out)
    report = initialize(model, example_input=batch(256, 64))
    assert row(report, "2.weight").second_in == pytest.approx(2, rel=0.1)


class Caching(nn.Module):
    """Makes a buffer when it is first run, counts in another, draws random numbers, and may
    raise."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.fails = nn.Linear(64, 64), nn.Linear(64, 64), False
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.ones(64), persistent=False)
        y = self.one(x) * self.cache + torch.rand(())
        self.mean.mul_(0.9).add_(y.mean(0))
        y = self.two(y - self.mean)
        if self.fails:
            raise ValueError("no more")
        return y


def test_noise_of_a_model_is_the_same_each_time() -> None:
    reports = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = Model(lambda m, x: m.two(m.one(x + torch.randn(x.shape))))
        reports.append(initialize(model, batch(16, 64)))
    assert reports[0] == reports[1]
    assert reports[0].layers[0].second_in == pytest.approx(2, rel=0.1)  # noise and data differ


def test_run_leaves_nothing_behind(monkeypatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    model, x, state = Caching(), batch(16, 64), torch.get_rng_state()
    model.one.eval()
    initialize(model, example_input=x)
    assert torch.equal(torch.get_rng_state(), state)
    assert not seeds
    assert [m.training for m in model.modules()] == [True, False, True]
    assert not model.mean.any()
    assert not any(hasattr(tensor, "rectifiers_distribution") for tensor in (model.mean, x))
    model(x)


def test_a_model_that_fails_is_as_before() -> None:
    model = Caching()
    model.fails, before = True, copy.deepcopy(model.state_dict())
    with refused("ValueError: no more") as raised:
        initialize(model, example_input=batch(16, 64))
    assert isinstance(raised.value.__cause__, ValueError)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(
        not m._forward_hooks and not m._forward_pre_hooks and m.training for m in model.modules()
    )


def test_compiled_model_is_run_eagerly() -> None:
    def refuse(graph: object, inputs: object) -> Callable:
        raise AssertionError("it was compiled")

    chain = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    model = torch.compile(chain, backend=refuse)
    report = initialize(model, example_input=batch(16, 64))
    assert row(report, "_orig_mod.2.weight").reads == "ReLU() of _orig_mod.0.weight"


def test_unreadable_models_are_refused() -> None:
    chain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with torch.inference_mode():
        inferred = nn.Linear(4, 4)
    for model, message in (
        (torch.jit.script(copy.deepcopy(chain)), "scripted modules"),
        (copy.deepcopy(chain).to("meta"), "on device meta"),
        (nn.Sequential(nn.LazyLinear(4)), "lazy layers without weights"),
        (inferred, "made in inference mode"),
    ):
        with refused(message):
            initialize(model, example_input=batch(2, 4))


class Parts(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.zeros(8, 8, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(self.mix.dtype) @ self.mix).abs()


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_layers_are_refused(dtype: torch.dtype) -> None:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).to(dtype)
    before = [parameter.clone() for parameter in model.parameters()]
    for use in (initialize, partial(initialize, init="lsuv")):
        with refused(rf"0\.weight is of {dtype}, and only layers of real"):
            use(model, x)
    assert all(map(torch.equal, before, model.parameters()))
    with refused(f"mix is of {dtype}"):
        initialize(Parts(dtype), x.real)


@pytest.mark.parametrize(
    ("slope", "grown", "part"),
    [
        (1.0, 10.0, 0.0),
        (2.0, None, 1 - 0.85 / 2),
        (2.0, 3.0, 1 - 0.95 / 2),
        (2.0, 10.0, 7 / 9),  # of an example that is three times the mean
    ],
)
def test_part_of_biases_by_hand(slope: float, grown: float | None, part: float) -> None:
    reads = SimpleNamespace(step=slope, map_slope=1.0, growth_to=lambda factor: grown)
    call = SimpleNamespace(reads=reads, bias=torch.zeros(1))
    assert bias_part(call) == pytest.approx(part)  # type: ignore[arg-type]


def test_biases_and_weights_share_one_mean_square() -> None:
    layers = [layer for _ in range(24) for layer in (nn.Linear(128, 128), nn.GELU())]
    x = torch.randn(256, 128, generator=torch.Generator().manual_seed(0))
    report = initialize(nn.Sequential(*layers), x, mode="empirical")
    with_biases = [row for row in report.layers if 0.05 < row.bias_part < 1]
    assert len(with_biases) > 20
    measured = [row.measured or 0.0 for row in with_biases]
    assert sum(measured) / len(measured) == pytest.approx(1, abs=0.06)
