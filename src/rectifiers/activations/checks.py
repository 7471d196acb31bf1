"""What is tried of an activation before a network is built of it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rectifiers.activations.modules import outputs, pieces
from rectifiers.quadrature import EXAMPLES, describe, is_elementwise, no_moments
from rectifiers.runtime.errors import InputError


def check_activation(activation: nn.Module, channels: int, sides: Sequence[int] = ()) -> Tensor:
    """Apply `activation`, built for `channels` channels, to standard normal numbers [images,
    channels, *sides], and return these numbers.

    Raises:
        InputError: if it cannot be applied to numbers with a gradient, returns another number of
            channels or numbers that are not finite, or has a derivative of 0 almost everywhere, as
            a step function.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, channels * pieces(activation), *sides, generator=generator)
    expected = (EXAMPLES, channels * outputs(activation), *sides)
    name, z = f"activation {describe(activation)}", x.clone().requires_grad_()

    gradient = torch.zeros(())
    try:
        with torch.enable_grad():
            y = activation.eval()(z.clone())  # a copy, because the activation may work in place
        if isinstance(y, Tensor) and y.requires_grad:
            # weighted, because the sum of a softmax is constant
            weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
            (gradient,) = torch.autograd.grad(y, z, weights, materialize_grads=True)
    except Exception as error:  # a user's activation may raise anything
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} cannot be applied to {list(x.shape)} with a gradient ({reason}); give one "
            "that works on any number of images, by torch's functions alone"
        ) from error

    if not isinstance(y, Tensor) or y.shape != expected:
        got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{name} makes {got} of {list(x.shape)}, where {list(expected)} is needed; give one "
            "that keeps the number of channels, or has attributes `pieces` and `outputs`: the "
            "channels that it reads and gives per unit"
        )
    if not torch.isfinite(y).all():
        raise InputError(
            f"{name} is not finite for all z ~ N(0, 1); give one that is finite for every number"
        )
    if not gradient.any():
        raise InputError(
            f"{name} has a derivative of 0 almost everywhere, so no layer before it learns; give "
            "another activation"
        )
    return x


def check_gain(activation: nn.Module, x: Tensor) -> None:
    """Check that `activation` has a gain that an initialiser can use.

    x: the numbers that `check_activation` returns.

    Raises:
        InputError: if it mixes its inputs and has no method `moments()`.
    """
    if not callable(getattr(activation, "moments", None)) and not is_elementwise(activation, [x]):
        raise no_moments(activation, "mixes its inputs")
