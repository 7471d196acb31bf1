import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers.models.network import Network, SpatialPyramid, _Level
from rectifiers.models.rows import expand

ACTIVATIONS = [A.relu, A.leaky_relu, A.prelu, A.prelu_shared, A.sigmoid, A.tanh, A.maxout, A.elu]
ACTIVATIONS += [A.gelu, A.silu, A.softplus, A.identity, A.crelu, A.glu, A.rrelu, A.noisy_relu]
ACTIVATIONS += [A.squared_relu, A.golu, A.xielu, A.swiglu, A.squared_prelu, A.learned_swish]


def build(
    activation,
    *,
    width: float = 1 / 16,
    norm: str = "none",
    input_px: int = 32,
    model: str = "small14",
) -> Network:
    rows = compose_config(f"model={model}", "data.width=1.0").model.rows
    return Network(
        expand(rows, width=width, classes=10), activation, channels=1, input_px=input_px, norm=norm
    )


@pytest.mark.parametrize("model", ["small14", "mlp"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_parameter_gets_a_gradient(activation, model: str) -> None:
    network = build(activation, model=model)
    scores = network(torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert scores.shape == (4, 10)
    scores.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())
    counted = sum(p.numel() for layer in network.sites() for p in layer.module.parameters())
    assert counted == sum(shape.parameters for shape in network.shapes)


def test_signals_get_one_dimensional_layers() -> None:
    rows = compose_config("model=stages", "data=mnist1d").model.rows
    network = Network(
        expand(rows, width=0.25, classes=10), A.relu, channels=1, input_px=40, signal=True
    )
    assert [shape.side for shape in network.shapes] == [40, 40, 20, 20, 10, 10, 0]
    x = torch.randn(3, 1, 1, 40, generator=torch.Generator().manual_seed(0))
    y = x[:, :, 0]
    for site, shape in zip(network.sites()[:-1], network.shapes, strict=False):
        assert sum(p.numel() for p in site.module.parameters()) == shape.parameters
        weight, bias = site.module.weight[:, :, 0], site.module.bias
        y = F.relu(F.conv1d(y, weight, bias, shape.row.stride, shape.row.padding))
    assert torch.allclose(network(x), network.head(y[:, :, None]), atol=1e-6)
    positions = [40, 40, 20, 20, 10, 10]
    conv = 3 * 8 * positions[0] + sum(3 * 8 * 8 * n for n in positions[1:])
    assert network.multiply_adds == conv + 8 * 10 * 10


def test_every_prelu_has_its_own_slopes() -> None:
    network = build(A.prelu_shared)
    sites = [m for m in network.modules() if isinstance(m, nn.PReLU)]
    assert len({id(m.weight) for m in sites}) == 13
    assert list(network.slopes()) == [site.name for site in network.sites()[:-1]]
    assert sum(s.numel() for s in network.slopes().values()) == 13
    with torch.device("meta"):
        wise = build(A.prelu, width=1.0, input_px=224).slopes()
    assert sum(s.numel() for s in wise.values()) == 64 + 4 * 128 + 6 * 256 + 2 * 4096


def test_batch_norm_normalises_every_maxout_piece() -> None:
    network = build(A.maxout, norm="batch")
    norm = network.trunk.get_submodule("conv2_1_norm")
    assert (type(norm), norm.num_features) == (nn.BatchNorm2d, 2 * 8)


def test_the_order_is_weights_norm_activation_dropout() -> None:
    network = build(A.relu, norm="batch")
    trunk = ["conv1", "conv1_norm", "conv1_act", "pool1"]
    head = ["spp", "fc1", "fc1_norm", "fc1_act", "fc1_drop"]
    head += ["fc2", "fc2_norm", "fc2_act", "fc2_drop", "fc3"]
    assert [name for name, _ in network.trunk.named_children()][:4] == trunk
    assert [name for name, _ in network.head.named_children()] == head
    assert network.head.get_submodule("fc1_drop").p == 0.5


@pytest.mark.process
def test_vgg19_computes_what_torchvisions_does() -> None:
    from torchvision.models import vgg19

    torch.manual_seed(0)
    theirs = vgg19(num_classes=10).eval()
    rows = compose_config("model=vgg19", "data.width=1.0").model.rows
    ours = Network(expand(rows, width=1.0, classes=10), A.relu, channels=3, input_px=224).eval()
    layers = [m for m in theirs.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for site, layer in zip(ours.sites(), layers, strict=True):
        site.module.load_state_dict(layer.state_dict())
    x = torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        assert torch.allclose(ours(x), theirs(x), atol=1e-6)


@pytest.mark.parametrize("side", [(18, 18), (14, 14), (13, 17), (2, 2), (1, 5)])
def test_bins_span_floor_to_ceil(side: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *side, generator=torch.Generator().manual_seed(0))
    levels = [6, 3, 2, 1]
    bins = []
    for n in levels:
        level = torch.empty(2, 3, n, n)
        for i in range(n):
            for j in range(n):
                rows = slice(math.floor(i * side[0] / n), math.ceil((i + 1) * side[0] / n))
                columns = slice(math.floor(j * side[1] / n), math.ceil((j + 1) * side[1] / n))
                level[:, :, i, j] = x[:, :, rows, columns].amax((-2, -1))
        bins.append(level.flatten(1))
    assert torch.equal(SpatialPyramid(levels)(x), torch.cat(bins, dim=1))
    assert torch.cat(bins, dim=1).shape == (2, 50 * 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("side", [(14, 14), (18, 18), (5, 4), (2, 1)])
def test_both_gradients_have_equal_bits(
    side: tuple[int, int], memory: torch.memory_format, dtype: torch.dtype
) -> None:
    """That of torch's pooling, which a CPU uses, and that of one bin after the other, for CUDA."""
    x = torch.randn(2, 3, *side, generator=torch.Generator().manual_seed(0)).to(dtype)
    x = x.round(decimals=1).to(memory_format=memory).requires_grad_()  # with equal maxima
    y = SpatialPyramid([6, 3, 2])(x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    in_order = torch.cat([_Level.apply(x, n).flatten(1) for n in (6, 3, 2)], dim=1)
    found, expected = (torch.autograd.grad(out, x, weights)[0] for out in (y, in_order))
    assert torch.equal(y, in_order)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("pool", [SpatialPyramid([3]), lambda x: _Level.apply(x, 3)])
def test_the_gradient_has_a_gradient(pool: Callable[[Tensor], Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(pool, x)
    assert torch.autograd.gradgradcheck(pool, x)
