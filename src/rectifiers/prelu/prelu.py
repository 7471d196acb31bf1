"""PReLU at about the cost of ReLU: torch's layer with a backward pass of its own, where a kernel is
available."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rectifiers.prelu.operator import has_kernel, is_invertible, prelu
from rectifiers.runtime.torch_internals import functorch_is_active

MIN_NUMBERS = 2**14  # on a CPU; below, calling the kernel takes longer than torch's whole operation


class PReLU(nn.PReLU):
    """torch's PReLU with a one-pass backward; [N, channels, ...] in and out.

    Outputs equal torch's to the bit, gradients to rounding. torch's own operation is used without a
    gradient, in double precision, for less than 16,384 numbers on a CPU, and without a C compiler
    or Triton. As after ReLU, and unlike
    after torch's layer, the output must not be changed in place."""

    from_output: bool | None = None  # what `asked_together` knows of the slopes

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or not _is_supported(x, self.weight):
            return super().forward(x)
        return prelu(x, self.weight, None if torch.compiler.is_compiling() else self.from_output)


def _is_supported(x: Tensor, slopes: Tensor) -> bool:
    if not isinstance(x, Tensor):  # but what `torch.fx` writes down
        return False
    device = x.device.type
    return (
        # a compiler would follow the search for a kernel; its graph has the formula where there is
        # none
        (torch.compiler.is_compiling() or has_kernel(device, x.dtype))
        and x.dim() > 1
        and (device != "cpu" or _is_worth_a_call(x))
        and slopes.dtype == torch.float32
        and (x.dtype == torch.float32 or torch.is_autocast_enabled(device))
        and len(slopes) in (1, x.shape[1])
    )


def _is_worth_a_call(x: Tensor) -> bool:
    # not all transforms of torch.func have a rule for torch's operation
    is_followed = torch.compiler.is_compiling() or functorch_is_active()
    return is_followed or x.numel() >= MIN_NUMBERS


@contextmanager
def asked_together(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Ask the slopes of all PReLUs among `layers` at once what their gradients need to know, for
    the forward passes of the body, in which the slopes must not change.

    Each layer would ask by itself, and a GPU would have to finish what was given to it before every
    answer."""
    prelus = [layer for layer in layers if isinstance(layer, PReLU)]
    bounds = [bound for layer in prelus for bound in layer.weight.detach().aminmax()]
    numbers = torch.stack(bounds).tolist() if bounds else []
    try:
        for layer, low, high in zip(prelus, numbers[::2], numbers[1::2], strict=True):
            layer.from_output = is_invertible(low, high)
        yield
    finally:
        for layer in prelus:
            layer.from_output = None
