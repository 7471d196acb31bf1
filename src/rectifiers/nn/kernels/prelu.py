"""PReLU at about the price of ReLU: torch's layer with another backward pass, where a kernel for it is there.

torch's own backward pass writes a full-size gradient of the slopes and sums it afterwards, which takes several times as
long as ReLU's. Here both gradients come from one pass, and what is kept for it is the output, which the next layer
keeps anyway: where a slope a is positive, x = y / a. Where one is not (or so small that y / a is no longer x), the
input is kept instead, as torch does.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rectifiers.nn.kernels import cpu

LEAST = 2.0**-10  # of a slope for which the input is made again from the output


@cache
def kernels(device: str) -> Any:
    """Return the module with a device's kernels, or None."""
    if device == "cuda":
        try:
            from rectifiers.nn.kernels import cuda  # here and not above: Triton takes a while to import
        except ImportError:  # torch may be there without it
            return None
        return cuda
    return cpu if device == "cpu" and cpu.fault() is None else None


class _PReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slopes: Tensor) -> Tensor:
        y = torch.prelu(x, slopes.to(x.dtype))
        ctx.of_output = bool((slopes >= LEAST).all())
        ctx.save_for_backward(y if ctx.of_output else x, slopes)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        v, slopes = ctx.saved_tensors
        kernel = kernels(v.device.type)
        again = torch.is_grad_enabled()  # the gradients are to be differentiated
        many = torch._C._functorch.is_legacy_batchedtensor(grad)  # it stands for several, and has no numbers of its own
        if again or many or kernel is None or not kernel.usable(v):
            return _differentiable(v, slopes, grad, ctx.of_output)
        slopes = slopes.to(v.dtype).float()  # those that the output was made with
        of_input, sums = kernel.backward(v, grad, slopes)
        exact = sums.double().sum(0)
        of_slopes = (exact if len(slopes) > 1 else exact.sum().view(1)).float()
        return of_input, of_slopes / slopes if ctx.of_output else of_slopes


def _differentiable(v: Tensor, slopes: Tensor, grad: Tensor, of_output: bool) -> tuple[Tensor, Tensor]:
    """The same by torch's operations, which have derivatives of their own."""
    own = slopes.view(1, -1, *[1] * (v.dim() - 2)).to(v.dtype)
    x = torch.where(v > 0, v, v / own) if of_output else v
    each = torch.where(v > 0, torch.zeros_like(grad), grad * x).to(slopes.dtype)
    over = [dim for dim in range(v.dim()) if dim != 1 or len(slopes) == 1]
    return torch.where(v > 0, grad, own * grad), each.sum(over).view_as(slopes)


class PReLU(nn.PReLU):
    """torch's PReLU; its gradients take one pass. [N, channels, ...] in and out.

    Scores are torch's to the bit, gradients to rounding. torch itself is asked in double precision, under `vmap` and
    the like, for tensors of other classes, under `torch.compile` (which does as well), and without a C compiler or
    Triton. As after ReLU, and unlike after torch's layer, the output must not be changed in place.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or not _fitting(x, self.weight):
            return super().forward(x)
        return _PReLU.apply(x, self.weight)


def _fitting(x: Tensor, slopes: Tensor) -> bool:
    if torch.compiler.is_compiling() or not {type(x), type(slopes)} <= {Tensor, nn.Parameter}:
        return False  # others, as those that trace, are fake or lie on many machines, may have no numbers to point at
    device = x.device.type
    return (
        (found := kernels(device)) is not None
        and found.usable(x)
        and x.dim() > 1
        and x.dtype == (torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else slopes.dtype)
        and slopes.dtype == torch.float32
        and len(slopes) in (1, x.shape[1])
        and not torch._C._are_functorch_transforms_active()
        and not torch.jit.is_tracing()
        and forward_ad._current_level < 0
    )
