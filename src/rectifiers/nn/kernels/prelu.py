"""PReLU at about the cost of ReLU: torch's layer with a backward pass of its own, where a kernel is available.

torch's own backward pass writes a full-size gradient of the slopes and sums it afterwards, which takes several times as
long as ReLU's. Here one pass makes both gradients, and it needs the output, which the next layer keeps anyway: where a
slope a is positive, x = y / a. The input is kept instead, as torch does, where that need not hold: with a slope that is
not positive or so small that y loses digits, with one above 1, by which y may overflow, and in float16, whose range is
small. What is left is an underflow of y, which changes the gradient of the slope by 2**-140 times that of y at most.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.nn.kernels import cpu
from rectifiers.nn.kernels.plain import are_plain
from rectifiers.runtime.torch_internals import is_batched

MIN_SLOPE, MAX_SLOPE = 2.0**-10, 1.0  # the slopes for which the input is recomputed from the output


@cache
def kernels(device: str) -> Any:
    """Return the module with the kernels of a device, or None."""
    if device == "cuda":
        try:
            from rectifiers.nn.kernels import cuda  # imported late, because Triton takes a while
        except ImportError:  # torch may be installed without Triton
            return None
        return cuda
    return cpu if device == "cpu" and cpu.unavailable_reason() is None else None


class _PReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slopes: Tensor) -> Tensor:
        y = torch.prelu(x, slopes.to(x.dtype))
        is_invertible = ((slopes >= MIN_SLOPE) & (slopes <= MAX_SLOPE)).all()
        ctx.saved_output = x.dtype != torch.float16 and bool(is_invertible)
        ctx.save_for_backward(y if ctx.saved_output else x, slopes)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        v, slopes = ctx.saved_tensors
        kernel = kernels(v.device.type)
        again = torch.is_grad_enabled()  # the gradients are to be differentiated
        if again or is_batched(grad) or kernel is None or v.dtype not in kernel.DTYPES:
            return _differentiable(v, slopes, grad, ctx.saved_output)
        slopes = slopes.to(v.dtype).float()  # as rounded for the output
        grad_input, sums = kernel.backward(v, grad, slopes)
        exact = sums.double().sum(0)
        grad_slopes = (exact if len(slopes) > 1 else exact.sum().view(1)).float()
        return grad_input, grad_slopes / slopes if ctx.saved_output else grad_slopes


def _differentiable(v: Tensor, slopes: Tensor, grad: Tensor, saved_output: bool) -> tuple[Tensor, Tensor]:
    """Return the same gradients from differentiable operations."""
    own = slopes.view(1, -1, *[1] * (v.dim() - 2)).to(v.dtype)
    x = torch.where(v > 0, v, v / own) if saved_output else v
    each = torch.where(v > 0, torch.zeros_like(grad), grad * x).to(slopes.dtype)
    over = [dim for dim in range(v.dim()) if dim != 1 or len(slopes) == 1]
    return torch.where(v > 0, grad, own * grad), each.sum(over).view_as(slopes)


class PReLU(nn.PReLU):
    """torch's PReLU with a one-pass backward; [N, channels, ...] in and out.

    Outputs equal torch's to the bit, gradients to rounding. torch's own operation is used in double precision, under
    `vmap` and the like, for tensor subclasses, under `torch.compile` (which is as fast), and without a C compiler or
    Triton. As after ReLU, and unlike after torch's layer, the output must not be changed in place.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or not _is_supported(x, self.weight):
            return super().forward(x)
        return _PReLU.apply(x, self.weight)


def _is_supported(x: Tensor, slopes: Tensor) -> bool:
    if not are_plain(x, slopes):
        return False
    device = x.device.type
    return (
        (kernel := kernels(device)) is not None
        and x.dtype in kernel.DTYPES
        and x.dim() > 1
        and x.dtype == (torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else slopes.dtype)
        and slopes.dtype == torch.float32
        and len(slopes) in (1, x.shape[1])
    )
