import pytest
import torch
from torch import nn

from conftest import compose_config
from rectifiers import activations as A
from rectifiers.models.network import Network
from rectifiers.models.rows import expand

ACTIVATIONS = [
    A.relu,
    A.leaky_relu,
    A.prelu,
    A.prelu_shared,
    A.sigmoid,
    A.tanh,
    A.maxout,
    A.elu,
    A.gelu,
    A.silu,
    A.softplus,
    A.identity,
    A.crelu,
    A.glu,
    A.rrelu,
    A.noisy_relu,
    A.squared_relu,
]


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
def test_any_activation_fits_any_network_and_every_parameter_gets_a_gradient(
    activation, model: str
) -> None:
    network = build(activation, model=model)
    scores = network(torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert scores.shape == (4, 10)
    scores.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())
    counted = sum(p.numel() for layer in network.sites() for p in layer.module.parameters())
    assert counted == sum(shape.parameters for shape in network.shapes)


def test_small14_has_thirteen_shared_slopes_or_one_per_channel() -> None:
    with torch.device("meta"):
        shared, wise = (build(f, width=1.0, input_px=224) for f in (A.prelu_shared, A.prelu))
    assert sum(s.numel() for s in shared.slopes().values()) == 13
    assert (
        sum(s.numel() for s in wise.slopes().values()) == 10_304
    )  # 64 + 4 * 128 + 6 * 256 + 2 * 4096


def test_every_prelu_has_its_own_slopes() -> None:
    network = build(A.prelu_shared)
    sites = [m for m in network.modules() if isinstance(m, nn.PReLU)]
    assert len({id(m.weight) for m in sites}) == 13
    assert list(network.slopes()) == [site.name for site in network.sites()[:-1]]


def test_the_order_is_weights_norm_activation_dropout() -> None:
    network = build(A.relu, norm="batch")
    assert [name for name, _ in network.trunk.named_children()][:4] == [
        "conv1",
        "conv1_norm",
        "conv1_act",
        "pool1",
    ]
    assert [name for name, _ in network.head.named_children()] == [
        "spp",
        "fc1",
        "fc1_norm",
        "fc1_act",
        "fc1_drop",
        "fc2",
        "fc2_norm",
        "fc2_act",
        "fc2_drop",
        "fc3",
    ]
    assert network.head.get_submodule("fc1_drop").p == 0.5


def test_batch_norm_normalises_every_maxout_piece() -> None:
    network = build(A.maxout, norm="batch")
    assert network.trunk.get_submodule("conv2_1_norm").num_features == 2 * 8
    assert network(torch.randn(4, 1, 32, 32)).shape == (4, 10)


def test_a_pyramid_lets_any_larger_image_through() -> None:
    network = build(A.relu).eval()
    assert network(torch.randn(2, 1, 40, 57)).shape == (2, 10)


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


def test_the_papers_worked_example_on_vgg_b() -> None:
    """Section 2.2: a constant std of 0.01 makes the gradient at conv2 1/(5.9 * 4.2^2 * 2.9^2 *
    2.1^4) of Eq. 14's."""
    from rectifiers.chains import initialize_chain
    from rectifiers.initializers import he_backward

    rows = compose_config("model=vgg_b", "data.width=1.0").model.rows
    with torch.device("meta"):
        network = Network(expand(rows, width=1.0, classes=10), A.relu, channels=3, input_px=32)
    sites = [
        site for site in network.to_empty(device="cpu").sites() if site.name.startswith("conv")
    ]
    report = initialize_chain(sites, he_backward, seed=0, name="he_backward")
    printed = {64: 0.059, 128: 0.042, 256: 0.029, 512: 0.021}
    assert all(round(entry.std_asked, 3) == printed[entry.shape[0]] for entry in report)
    ratio = torch.tensor(
        [entry.std_asked / 0.01 for entry in report[1:]], dtype=torch.float64
    ).prod()
    assert float(ratio) == pytest.approx(16_729, rel=1e-4)


@pytest.mark.parametrize("model", ["small14", "mini", "mlp"])
@pytest.mark.parametrize("activation", [A.prelu, A.relu, A.maxout])
def test_activation_checkpointing_keeps_less_and_changes_no_bit(activation, model: str) -> None:
    gradients, kept = [], []
    for again in (False, True):
        torch.manual_seed(0)
        network = build(activation, model=model)
        network.activation_checkpointing = again
        images = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
        numbers: dict[int, int] = {}

        def keep(saved: torch.Tensor, numbers: dict[int, int] = numbers) -> torch.Tensor:
            numbers[saved.data_ptr()] = saved.numel()
            return saved

        torch.manual_seed(1)  # of dropout
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
            loss = network(images).square().sum()
        loss.backward()
        kept.append(sum(numbers.values()))
        gradients.append([loss, *[p.grad for p in network.parameters()]])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    if len(network.trunk):
        assert kept[1] < kept[0]


def test_activation_checkpointing_is_off_outside_training() -> None:
    network = build(A.relu, model="mini", norm="batch")
    network.activation_checkpointing = True
    calls: list[int] = []
    network.trunk[0].register_forward_hook(lambda *_: calls.append(1))
    network.eval()(torch.randn(2, 1, 32, 32)).sum().backward()
    assert len(calls) == 1
