"""Different activations in one network: which layer gets which, and that all that reads activations
follows."""

import pytest
import torch
from torch import nn

from conftest import compose_config
from rectifiers.activations import gain
from rectifiers.by_layer import by_layer
from rectifiers.data.sources import digits
from rectifiers.prelu import PReLU
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.errors import InputError
from rectifiers.training import build, functions

MIXED = "activation.layers={fc_1: prelu, fc_*: {leaky_relu: {slope: 0.5}}, fc_3: tanh}"


def config(*overrides: str) -> RunConfig:
    return compose_config(
        "activation=by_layer", "model=mlp", "model.hidden=20", "model.depth=4", *overrides
    )


def test_the_name_goes_before_patterns_and_the_longer_pattern_before_the_shorter() -> None:
    layers = {
        "*": "tanh",
        "conv*": "sigmoid",
        "conv3_*": "prelu",
        "conv3_2": "relu",
        "conv[3]_2": "gelu",
    }
    for given in (layers, dict(reversed(layers.items()))):  # a configuration has no order
        made = [
            type(by_layer(4, name, "elu", given)) for name in ("fc1", "conv1", "conv3_1", "conv3_2")
        ]
        assert made == [nn.Tanh, nn.Sigmoid, PReLU, nn.ReLU]
    assert isinstance(by_layer(4, "fc1", "elu", None), nn.ELU)


def test_every_layer_has_its_own_activation_and_the_gains_are_those_around_it() -> None:
    network, report = build.build_network(config(MIXED), digits(), None)
    made = {name: module for name, (module, _) in network.activations().items()}
    assert [type(module) for module in made.values()] == [
        PReLU,
        nn.LeakyReLU,
        nn.Tanh,
        nn.LeakyReLU,
    ]
    assert made["fc_2"].negative_slope == 0.5
    assert list(network.slopes()) == ["fc_1"]
    forward = [row.forward_gain for row in report]
    expected = [
        made["fc_1"],
        made["fc_1"],
        made["fc_2"],
        made["fc_3"],
        made["fc_4"],
    ]  # the first layer reads none
    assert forward == pytest.approx([gain(module) for module in expected])
    backward = [made["fc_1"], made["fc_2"], made["fc_3"], made["fc_4"], made["fc_4"]]
    assert [row.backward_gain for row in report] == pytest.approx(
        [gain(m, mode="backward") for m in backward]
    )
    assert [row.activation_after for row in report] == [
        "PReLU",
        "LeakyReLU",
        "Tanh",
        "LeakyReLU",
        None,
    ]


def test_one_activation_for_all_layers_is_that_activation() -> None:
    x = torch.randn(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    scores = [
        build.build_network(one, digits(), None)[0](x)
        for one in (config("activation.default=tanh"), compose_config(*SAME, "activation=tanh"))
    ]
    assert torch.equal(*scores)


SAME = ("model=mlp", "model.hidden=20", "model.depth=4")


def test_a_record_says_which_layer_has_which() -> None:
    mixed = config("activation.layers={fc_1: prelu}")
    said = functions.describe_activation(mixed)
    assert said == "by_layer(default: relu, layers: {fc_1: prelu})"
    assert functions.name_activation({"activation": "by_layer"}, mixed, said) == {
        "activation": said
    }


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "activation.layers={conv1: prelu}",
            r"activation\.layers\.conv1 fits no layer; .* are: fc_1, fc_2, fc_3",
        ),
        (
            "activation.layers={fc_1: perlu}",
            r"activation\.layers\.fc_1=perlu is not usable; give one of: crelu, dks, elu",
        ),
        (
            "activation.layers={fc_1: {prelu: {slop: 1}}}",
            r"activation\.layers\.fc_1=.* unexpected keyword .*slop",
        ),
        (
            "activation.layers={fc_1: {prelu: {}, relu: {}}}",
            r"activation\.layers\.fc_1=.* is not usable; give one of",
        ),
        ("activation.layers={fc_1: 3}", r"activation\.layers\.fc_1=3: "),
        ("activation.default=gain", r"activation\.default=gain is not usable; give one of"),
    ],
)
def test_a_choice_that_cannot_be_made_is_one_sentence(given: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        functions.check_functions(config(given))


def test_layers_agree_in_channels_per_unit_and_have_names() -> None:
    with pytest.raises(
        InputError, match=r"activation of fc_1 reads 2 and gives 1 channels per unit, .* that agree"
    ):
        build.build_network(config("activation.layers={fc_1: maxout}"), digits(), None)
    with pytest.raises(
        InputError, match=r"chooses by the names of rows, and model\._target_=.*resnet has none"
    ):
        build.build_network(compose_config("activation=by_layer", "model=resnet20"), digits(), None)
