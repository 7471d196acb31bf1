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


def network(activation) -> Network:
    net = Network(expand(ROWS, width=1, classes=5), activation, channels=1, input_px=8)
    initialize_chain(net.sites(), I.he, seed=0, name="")
    return net.double()


def image() -> torch.Tensor:
    return torch.randn(4, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "activation", [A.relu, A.leaky_relu, A.prelu, A.maxout, A.crelu, A.identity]
)
def test_rectifiers_keep_the_intensity_to_the_bit(activation) -> None:
    """A factor of a power of two is exact in every product and sum."""
    net, x = network(activation).train(), image()
    for factor in (4.0, 0.125):
        assert torch.equal(net(factor * x), factor * net(x))


@pytest.mark.parametrize("activation", [A.relu, A.prelu, A.maxout])
def test_rectifiers_without_biases_move_with_the_image(activation) -> None:
    """On a canvas of zeros, by a position of the last map."""
    net, x = network(activation).train(), image()
    canvas, moved = torch.zeros(4, 1, 40, 40).double(), torch.zeros(4, 1, 40, 40).double()
    canvas[:, :, MARGIN : MARGIN + 8, MARGIN : MARGIN + 8] = x
    moved[:, :, MARGIN : MARGIN + 8, MARGIN + STRIDE : MARGIN + STRIDE + 8] = x
    first, second = net.trunk(canvas)[..., :-1], net.trunk(moved)[..., 1:]
    assert first.norm() > 1
    torch.testing.assert_close(second, first, rtol=1e-12, atol=1e-12)
