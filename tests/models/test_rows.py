import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers.models.network import Network
from rectifiers.models.rows import depth, expand, smallest_input_px, trace
from refusals import refused


def small14(width: float = 1.0, classes: int = 1000):
    return expand(compose_config("data.width=1.0").model.rows, width=width, classes=classes)


def test_small14_is_the_papers_table_1() -> None:
    rows = small14()
    shapes = trace(rows, channels=3, input_px=224)
    assert depth(rows) == 14
    sides = {shape.row.name: shape.side for shape in shapes if shape.side}
    names = ["conv1", "pool1", *(f"conv2_{i}" for i in range(1, 5)), "pool2"]
    names += [f"conv3_{i}" for i in range(1, 7)]
    table = (109, 36, 37, 36, 37, 36, 18, 19, 18, 19, 18, 19, 18)
    assert sides == dict(zip(names, table, strict=True))
    spp = next(shape for shape in shapes if shape.row.name == "spp")
    assert spp.channels == 50 * 256


# depth, parameters, multiply-adds of conv and of all layers at 224 px, channel-wise slopes,
# smallest input
PAPERS = {
    "small14": (14, 74_993_896, 907_612_864, 980_914_880, 10_304, 17),
    "small30": (30, 79_192_296, 2_344_161_984, 2_417_464_000, 14_400, 17),
    "vgg_b": (13, 133_047_848, 11_184_832_512, 11_308_466_176, 11_136, 32),
    "vgg16": (16, 138_357_544, 15_346_630_656, 15_470_264_320, 12_416, 32),
    "vgg19": (19, 143_667_240, 19_508_428_800, 19_632_062_464, 13_696, 32),
    "model_a": (19, 178_017_384, 18_905_112_576, 19_058_106_368, 14_688, 15),
    "model_b": (22, 183_327_080, 23_066_910_720, 23_219_904_512, 15_968, 15),
    "model_c": (22, 330_603_368, 53_211_045_888, 53_463_130_112, 20_576, 15),
}


@pytest.mark.parametrize(("model", "expected"), PAPERS.items())
def test_networks_have_the_papers_size_and_cost(model: str, expected: tuple) -> None:
    rows = expand(
        compose_config(f"model={model}", "data.width=1.0").model.rows, width=1.0, classes=1000
    )
    shapes = trace(rows, channels=3, input_px=224)
    conv = sum(shape.multiply_adds for shape in shapes if shape.row.kind == "conv")
    whole = sum(shape.multiply_adds for shape in shapes)
    slopes = sum(row.size for row in rows[:-1] if row.weighted)
    parameters = sum(shape.parameters for shape in shapes)
    assert (depth(rows), parameters, conv, whole, slopes, smallest_input_px(rows)) == expected


@pytest.mark.parametrize(("data", "px"), [("cifar10", 32), ("tiny_imagenet", 64)])
def test_small_inputs_keep_layers_and_ratios(data: str, px: int) -> None:
    config = compose_config(f"data={data}", f"model=small14_{px}")
    assert config.data.crop_px == px
    rows = expand(config.model.rows, width=1.0, classes=10)
    sides = {
        shape.row.name: shape.side for shape in trace(rows, channels=3, input_px=px) if shape.side
    }
    ends = [sides[name] for name in ("conv1", "conv2_2", "conv2_4", "conv3_2", "conv3_6")]
    assert ends == [32, 16, 16, 8, 8]
    assert [(row.name, row.size) for row in rows if row.weighted] == [
        (row.name, row.size) for row in small14(classes=10) if row.weighted
    ]


def test_width_scales_units_but_not_classes() -> None:
    rows = {row.name: row.size for row in small14(width=0.25, classes=10)}
    assert [rows[name] for name in ("conv1", "conv3_6", "fc1", "fc3")] == [16, 64, 1024, 10]
    assert [row.size for row in small14(width=0.26) if row.name == "conv1"] == [17]  # of 16.64
    assert {row.size for row in small14(width=1e-6, classes=10) if row.weighted} == {1, 10}


def test_the_smallest_input_is_named_and_works() -> None:
    rows = small14()
    assert smallest_input_px(rows) == 17
    assert trace(rows, channels=1, input_px=17)[-1].channels == 1000
    with refused(r"16 x 16 px leaves no.*the smallest .* is 17 px"):
        trace(rows, channels=1, input_px=16)


def test_maxout_multiplies_the_layers_before_it_alone() -> None:
    rows = expand(
        [{"name": "fc", "linear": 6}, {"name": "out", "linear": "classes"}], width=1, classes=10
    )
    plain, maxout = (trace(rows, channels=1, input_px=4, pieces=k) for k in (1, 3))
    assert [s.parameters for s in plain] == [16 * 6 + 6, 6 * 10 + 10]
    assert [s.parameters for s in maxout] == [16 * 18 + 18, 6 * 10 + 10]
    assert [s.channels for s in maxout] == [6, 10]


def linear_parameters(network: Network) -> int:
    return sum(
        p.numel() for m in network.modules() if isinstance(m, nn.Linear) for p in m.parameters()
    )


@pytest.mark.parametrize("model", ["mlp", "small14"])
@pytest.mark.parametrize("factory", [A.swiglu, A.geglu, A.reglu])
def test_gated_rows_have_equal_parameters(model: str, factory) -> None:
    rows = expand(compose_config(f"model={model}").model.rows, width=0.5, classes=10)
    plain, gated = (Network(rows, f, channels=1, input_px=32) for f in (A.relu, factory))
    assert linear_parameters(gated) == pytest.approx(linear_parameters(plain), rel=0.02)
    assert linear_parameters(gated) <= linear_parameters(plain)
    pairs = [(a.module, b.module) for a, b in zip(plain.sites(), gated.sites(), strict=True)]
    filters = [(a.out_channels, b.out_channels) for a, b in pairs if isinstance(a, nn.Conv2d)]
    assert all(gated == 2 * plain for plain, gated in filters)
    x = torch.randn(2, 1, 32, 32)
    assert gated(x).shape == (2, 10)


def test_gates_of_one_hidden_layer_take_two_thirds() -> None:
    rows = [{"name": "fc", "linear": 1200}, {"name": "out", "linear": "classes"}]
    shapes = trace(
        expand(rows, width=1, classes=300),
        channels=300,
        input_px=1,
        pieces=2,
        has_equal_parameters=True,
    )
    assert shapes[0].row.size == pytest.approx(800, abs=1)  # Shazeer 2020, section 3
    assert shapes[1].row.size == 300


def test_glu_keeps_its_units() -> None:
    rows = expand(compose_config("model=mlp").model.rows, width=0.5, classes=10)
    network = Network(rows, A.glu, channels=1, input_px=8)
    assert [shape.row.size for shape in network.shapes] == [128, 128, 128, 10]


BAD_ROWS = [
    ({"conv": 3, "kernel": 3}, "needs a name and one of"),
    ({"name": "x", "conv": 3, "linear": 3}, "needs a name and one of"),
    ({"name": "x", "conv": 3, "kernel": 3, "stirde": 2}, "x.stirde .* model.rows.x.stride"),
    ({"name": "out", "linear": 3}, "out names two modules"),
    ({"name": "x", "conv": 3}, "x.kernel: field required"),
    ({"name": "x", "conv": -3, "kernel": 3}, "x.conv=-3: "),
    ({"name": "x", "max_pool": 2, "padding": 2}, "x.padding=2"),
    ({"name": "x", "pyramid": []}, "x.pyramid"),
    ({"name": "x", "linear": 3, "dropout": 1.0}, "x.dropout=1.0"),
    ({"name": "fc.1", "linear": 3}, "name=fc.1: string should match pattern"),
    ({"name": "flatten", "linear": 3}, "flatten names two modules; give the row another"),
    ({"name": "out_act", "linear": 3}, "out_act names two modules"),
]


@pytest.mark.parametrize(("row", "sentence"), BAD_ROWS)
def test_a_row_that_makes_no_layer_is_named(row: dict, sentence: str) -> None:
    with refused(sentence):
        expand([row, {"name": "out", "linear": "classes"}], width=1, classes=10)


def test_names_of_torchs_modules_are_refused() -> None:
    rows = [{"name": "forward", "linear": 3}, {"name": "out", "linear": "classes"}]
    with refused("forward is a name of torch's modules; give the row an"):
        Network(expand(rows, width=1, classes=10), A.relu, channels=1, input_px=4)


def test_map_after_a_pyramid_is_refused() -> None:
    rows = [
        {"name": "p", "pyramid": [2]},
        {"name": "q", "max_pool": 2},
        {"name": "out", "linear": "classes"},
    ]
    with refused("q gets no map whatever the input"):
        trace(expand(rows, width=1, classes=3), channels=1, input_px=32)


@pytest.mark.parametrize(("kernel", "pools", "shortest"), [(50, 0, 50), (3, 6, 192)])
def test_too_short_signal_is_refused_by_its_length(kernel: int, pools: int, shortest: int) -> None:
    conv = {"name": "c", "conv": 2, "kernel": kernel}
    halves = [{"name": f"p{i}", "max_pool": 2, "stride": 2} for i in range(pools)]
    rows = expand([*halves, conv, {"name": "out", "linear": "classes"}], width=1, classes=3)
    for signal, size in ((True, "1 x 40 "), (False, "40 x 40 px")):
        with refused(size) as refusal:
            trace(rows, channels=1, input_px=40, signal=signal)
        assert ("data.crop_px" in str(refusal.value)) != signal
        assert str(shortest) in str(refusal.value)
    assert trace(rows, channels=1, input_px=shortest, signal=True)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.integers(1, 60))
def test_map_sizes_are_torchs_own(kernel: int, stride: int, padding: int, side: int) -> None:
    import torch
    from torch import nn

    row = {"name": "c", "conv": 2, "kernel": kernel, "stride": stride, "padding": padding}
    rows = expand([row, {"name": "out", "linear": "classes"}], width=1, classes=3)
    if side + 2 * padding < kernel:
        with refused("leaves no position at c"):
            trace(rows, channels=1, input_px=side)
        return
    mapped = nn.Conv2d(1, 2, kernel, stride, padding)(torch.zeros(1, 1, side, side))
    assert trace(rows, channels=1, input_px=side)[0].side == mapped.shape[-1]
