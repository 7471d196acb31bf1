"""What people ask of the library in one line."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rectifiers
from rectifiers import (
    PReLU,
    gain,
    he_normal_,
    initialize,
    moments,
    parameter_groups,
    stability,
    swap_prelu,
)
from refusals import refused


def batch(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.Linear(256, 8))


@pytest.mark.parametrize(
    "activation",
    ["gelu", "GELU", F.gelu, nn.GELU, nn.GELU(), lambda x: x * torch.special.ndtr(x)],
    ids=["name", "class name", "function", "class", "module", "lambda"],
)
def test_an_activation_is_given_in_any_form(activation: object) -> None:
    exact = 1 / math.sqrt(moments(nn.GELU()).second)
    assert gain(activation) == pytest.approx(exact, rel=1e-12)
    assert moments(activation).map_slope == pytest.approx(moments(nn.GELU()).map_slope)
    assert stability(activation, 30).error_growth == pytest.approx(49.6, abs=1)
    weight = he_normal_(torch.empty(512, 1024), activation=activation)
    assert weight.std() == pytest.approx(exact / 32, rel=0.01)


@pytest.mark.parametrize(
    ("activation", "words"),
    [
        ("gulu", ["gulu", "did you mean"]),
        (3, ["3", "function of tensors"]),
        (torch.zeros(2, 3), ["tensor(", "function of tensors"]),
        (nn.Threshold, ["Threshold", "needs settings"]),
        ("threshold", ["threshold", "needs settings"]),
        (lambda x: x.softmax(-1), ["mixes its inputs", "moments"]),
        (lambda x: x.sum(), ["maps", "moments"]),
        (rectifiers.activations.relu, ["ReLU", "moments"]),
    ],
    ids=["unknown", "number", "tensor", "class", "name", "mixing", "sum", "factory"],
)
def test_what_is_no_activation_is_one_sentence(activation: object, words: list[str]) -> None:
    with refused(".*".join(map(re.escape, words))):
        gain(activation)


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "average"])
def test_weights_have_their_modes_std_in_any_distribution(mode: str, distribution: str) -> None:
    weight = torch.empty(256, 512, 3, 3)
    he_normal_(weight, activation="silu", mode=mode, distribution=distribution)
    both = moments("silu")
    conditions = {"fan_in": 512 * 9 * both.second, "fan_out": 256 * 9 * both.derivative_second}
    mean = (512 + 256) * 9 / 2 * (both.second + both.derivative_second) / 2
    std = conditions.get(mode, mean) ** -0.5
    assert weight.std() == pytest.approx(std, rel=0.005)
    largest = {"normal": math.inf, "uniform": math.sqrt(3), "truncated_normal": 2 / 0.8796}
    assert weight.abs().max() <= largest[distribution] * std * 1.001


def test_fans_of_relu_are_torchs() -> None:
    ours, theirs = torch.empty(256, 512), torch.empty(256, 512)
    for mode in ("fan_in", "fan_out"):
        he_normal_(ours, mode=mode, generator=torch.Generator().manual_seed(0))
        nn.init.kaiming_normal_(
            theirs, mode=mode, nonlinearity="relu", generator=torch.Generator().manual_seed(0)
        )
        torch.testing.assert_close(ours, theirs)
    for keyword in ("mode", "distribution"):
        with refused(f"{keyword}=sideways is not known; choose one of"):
            he_normal_(ours, **{keyword: "sideways"})


LAYERS: dict[str, tuple[nn.Module, int, int]] = {  # with fan-in and fan-out
    "linear": (nn.Linear(300, 200), 300, 200),
    "depthwise": (nn.Conv2d(512, 512, 3, groups=512), 9, 9),
    "grouped 1-D": (nn.Conv1d(64, 96, 5, groups=4), 16 * 5, 24 * 5),
    "strided 3-D": (nn.Conv3d(8, 16, 3, stride=2, groups=2), 4 * 27, 8 * 27),
    "transposed": (nn.ConvTranspose2d(64, 32, 4, stride=2, groups=4), 16 * 16 // 4, 8 * 16),
    "transposed 1-D": (nn.ConvTranspose1d(60, 90, 3, stride=3, groups=3), 20, 30 * 3),
    "transposed 3-D": (nn.ConvTranspose3d(16, 24, 2), 16 * 8, 24 * 8),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "average"])
def test_a_layer_is_filled_by_its_own_fans(kind: str, mode: str) -> None:
    layer, fan_in, fan_out = LAYERS[kind]
    assert he_normal_(layer, mode=mode) is layer.weight
    fan = {"fan_in": fan_in, "fan_out": fan_out}.get(mode, (fan_in + fan_out) / 2)
    draws = torch.cat([he_normal_(layer, mode=mode).detach().clone().flatten() for _ in range(20)])
    assert draws.std() == pytest.approx(math.sqrt(2 / fan), rel=0.03)
    if kind.startswith("transposed"):
        return  # a tensor does not say that its rows are inputs
    groups = getattr(layer, "groups", 1)
    generator, weight = torch.Generator(), torch.empty(layer.weight.shape)
    he_normal_(layer, mode=mode, generator=generator.manual_seed(0))
    he_normal_(weight, groups=groups, mode=mode, generator=generator.manual_seed(0))
    assert torch.equal(layer.weight, weight)


@pytest.mark.parametrize(
    ("weight", "settings", "words"),
    [
        (nn.ReLU(), {}, "no linear, conv or transposed layer"),
        (nn.LazyConv2d(8, 3), {}, "has no fans"),
        (nn.Linear(4, 4, dtype=torch.complex64), {}, "complex64 holds no real numbers"),
        (torch.empty(4, 4, dtype=torch.int8), {}, "int8 holds no real numbers"),
        (nn.Conv2d(4, 4, 3, groups=2), {"groups": 2}, "leave it out"),
        (torch.empty(6, 4), {"groups": 4}, "groups=4 does not divide the 6"),
        (torch.empty(6, 4), {"groups": 0}, "groups=0 does not divide"),
        (torch.empty(6), {}, "has no fans"),
    ],
)
def test_what_has_no_fans_is_refused(weight: object, settings: dict, words: str) -> None:
    with refused(words):
        he_normal_(weight, **settings)  # type: ignore[arg-type]


def test_the_activation_may_be_said_instead_of_seen() -> None:
    seen, said = (initialize(chain(), (32, 64), activation=name) for name in (None, "silu"))
    assert said.layers[0].std == seen.layers[0].std
    expected = [gain("silu") / 16] * 2
    assert [layer.std for layer in said.layers[1:]] == pytest.approx(expected)
    assert said.layers[1].reads == "SiLU() of 0.weight"
    assert seen.layers[1].std == pytest.approx(gain("gelu") / 16, rel=0.1)


def test_reports_print_as_tables() -> None:
    report = initialize(chain(), (32, 64))
    lines = str(report).splitlines()
    assert lines[0].startswith("Initialised by he.")
    assert lines[1].split()[:4] == ["layer", "shape", "reads", "E[x²]"]
    assert [line.split()[0] for line in lines[2:]] == ["0.weight", "2.weight", "3.weight"]
    assert lines[1].index("gradient") + len("gradient") <= len(lines[2])  # numbers to the right
    assert "\n| 0.weight | " in report._repr_markdown_()


@pytest.mark.parametrize("relu", [False, True])
def test_prelus_are_swapped_and_keep_their_slopes(relu: bool) -> None:
    shared = nn.PReLU(16, init=0.1)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), shared, nn.Sequential(shared, nn.ReLU()))
    x, slopes = batch(2, 3, 8, 8), shared.weight
    before = model(x)
    heard: list[Tensor] = []
    shared.register_forward_hook(lambda _, __, y: heard.append(y))
    assert swap_prelu(model, relu=relu) is model
    assert is_swapped(model[1])
    assert model[1] is model[2][0]
    assert model[1].weight is slopes
    assert is_swapped(model[2][1]) is relu
    assert torch.equal(model(x), before) is not relu
    assert len(heard) == 2


def test_single_layers_are_swapped_in_place() -> None:
    for layer in (nn.PReLU(), PReLU(), nn.ReLU()):
        assert swap_prelu(layer, relu=True) is layer
        assert is_swapped(layer)
        assert layer.weight.item() == 0.25
    double = swap_prelu(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).double(), relu=True)
    assert double(batch(2, 8).double()).dtype is torch.float64


def is_swapped(layer: nn.Module) -> bool:
    """Whether a layer, torch's for others, computes as ours."""
    return type(layer) is nn.PReLU and layer.forward.__func__ is PReLU.forward


def test_weights_of_any_layer_decay_and_nothing_else() -> None:
    norms = nn.utils.parametrizations
    with pytest.warns(FutureWarning):
        old = nn.utils.weight_norm(nn.Linear(4, 4))
    layers = {"head": nn.Linear(8, 5), "computed": norms.weight_norm(nn.Conv2d(4, 4, 1))}
    layers |= {"spectral": norms.spectral_norm(nn.Linear(4, 4, bias=False)), "old": old}
    attention = nn.MultiheadAttention(8, 2, add_bias_kv=True)
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 8), "attention": attention, **layers})
    model["head"].weight = model["embedding"].weight  # tied: a layer's

    weights, biases, others = parameter_groups(model, weight_decay=0.1)
    assert set(weights["param_names"]) == {
        *("embedding.weight", "attention.in_proj_weight", "attention.out_proj.weight"),
        *(f"computed.parametrizations.weight.original{i}" for i in range(2)),
        *("spectral.parametrizations.weight.original", "old.weight_g", "old.weight_v"),
    }
    assert set(biases["param_names"]) == {
        f"{layer}.bias" for layer in ("attention.out_proj", "head", "computed", "old")
    }
    assert set(others["param_names"]) == {
        f"attention.{name}" for name in ("in_proj_bias", "bias_k", "bias_v")
    }
