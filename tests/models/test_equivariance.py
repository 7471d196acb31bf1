"""What rectifiers without biases and noise keep: intensity and translation of an image (Nair and
Hinton 2010)."""

import pytest
import torch

from rectifiers import activations as A
from rectifiers import initializers as I
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand

ROWS = [
    {"name": "conv1", "conv": 8, "kernel": 3, "padding": 1},
    {"name": "pool1", "max_pool": 2},
    {"name": "conv2", "repeat": 2, "conv": 8, "kernel": 3, "padding": 1},
    {"name": "fc", "linear": "classes"},
]
STRIDE = 2  # of a position of the last map, in pixels
MARGIN = 16  # of zeros around the image, px: more than the layers reach


def network(activation, bias: float = 0.0, px: int = 8) -> Network:
    net = Network(expand(ROWS, width=1, classes=5), activation, channels=1, input_px=px)
    initialize_chain(net.sites(), I.he, seed=0, name="", bias=bias)
    return net.double()


def image(px: int = 8) -> torch.Tensor:
    return torch.randn(
        4, 1, px, px, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )


@pytest.mark.parametrize(
    "activation", [A.relu, A.leaky_relu, A.prelu, A.maxout, A.crelu, A.identity]
)
def test_rectifiers_keep_the_intensity_to_the_bit(activation) -> None:
    """A factor of a power of two is exact in every product and sum."""
    net, x = network(activation).train(), image()
    for factor in (4.0, 0.125):
        assert torch.equal(net(factor * x), factor * net(x))


def test_a_negative_factor_is_no_intensity() -> None:
    net, x = network(A.relu), image()
    assert not torch.allclose(net(-x), -net(x))


@pytest.mark.parametrize(
    ("activation", "bias"), [(A.relu, 0.01), (A.tanh, 0.0), (A.gelu, 0.0), (A.noisy_relu, 0.0)]
)
def test_biases_and_noise_change_the_intensity(activation, bias) -> None:
    net, x = network(activation, bias).train(), image()
    error = (net(4 * x) - 4 * net(x)).norm() / net(4 * x).norm()
    assert error > 1e-3


def shifted_maps(activation, bias: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The last maps of an image on a canvas of zeros, and of the image a position further to the
    right."""
    net, x = network(activation, bias).train(), image()
    canvas, moved = torch.zeros(4, 1, 40, 40).double(), torch.zeros(4, 1, 40, 40).double()
    canvas[:, :, MARGIN : MARGIN + 8, MARGIN : MARGIN + 8] = x
    moved[:, :, MARGIN : MARGIN + 8, MARGIN + STRIDE : MARGIN + STRIDE + 8] = x
    return net.trunk(canvas)[..., :-1], net.trunk(moved)[..., 1:]


@pytest.mark.parametrize("activation", [A.relu, A.prelu, A.maxout])
def test_rectifiers_without_biases_move_with_the_image(activation) -> None:
    first, moved = shifted_maps(activation, 0.0)
    assert first.norm() > 1
    torch.testing.assert_close(moved, first, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("activation", "bias"), [(A.relu, 0.1), (A.sigmoid, 0.0), (A.noisy_relu, 0.0)]
)
def test_biases_meet_the_padding(activation, bias: float) -> None:
    first, moved = shifted_maps(activation, bias)
    assert not torch.allclose(moved, first, rtol=1e-3, atol=1e-3)


def test_shift_must_be_a_multiple_of_strides() -> None:
    net, x = network(A.relu, px=16), image(16)
    rolled = x.roll(1, dims=-1)
    assert not torch.allclose(net.trunk(rolled)[..., 2:-1], net.trunk(x)[..., 2:-1])
