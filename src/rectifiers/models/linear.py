"""Fully connected layers through oneDNN, on processors on which torch's own products are slower.

torch multiplies float32 matrices by MKL, which uses AVX-512 on Intel's processors alone; oneDNN,
which torch ships for its convolutions, uses it on AMD's too. Their results differ by the order of
the sums. On every other processor, and for products so small that the calls are what takes time,
the layer is torch's."""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import has_torch_function

from rectifiers.runtime import machine
from rectifiers.runtime.torch_internals import functorch_is_active, has_memory, onednn_linear

MIN_VECTORS = 32  # below, reading the weights takes longer than multiplying them
MIN_MULTIPLY_ADDS = 2**22


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies faster than MKL here: on AMD's processors with AVX-512.

    On a processor of 2024 (Zen 5) it did 181, 173 and 183 GFLOP/s a thread where MKL did 83, 88 and
    80, in the forward product and the two of the backward pass of 128 x 3200 numbers and 1,024
    units; with AVX2 alone both are equal."""
    has_both = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
    return (
        has_both
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and machine.vendor() == "AuthenticAMD"
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        return onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        is_differentiated = torch.is_grad_enabled()  # the gradients themselves
        linear = F.linear if is_differentiated or not has_memory(grad) else onednn_linear
        return (
            linear(grad, weight.t(), None) if ctx.needs_input_grad[0] else None,
            linear(grad.t(), x.t(), None) if ctx.needs_input_grad[1] else None,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )


class Linear(nn.Linear):
    """torch's fully connected layer with the products of oneDNN where those are faster; [N, inputs]
    to [N, units].

    Outputs and gradients equal torch's to rounding, and the bits are the same for the same numbers
    and threads. torch's own products are used for anything but large float32 matrices on the CPU,
    under autocast, `vmap` and the like, for tensor subclasses, and under `torch.compile`."""

    def forward(self, x: Tensor) -> Tensor:
        if not _is_supported(x, self.weight):
            return super().forward(x)
        return _Linear.apply(x, self.weight, self.bias)


def _is_supported(x: Tensor, weight: Tensor) -> bool:
    """Return whether both are large float32 matrices on the CPU, with nothing between them and
    their memory: no `torch.compile`, export, tracing, `vmap` or forward-mode derivative, and no
    subclass (fake, traced, distributed)."""
    return (
        not torch.compiler.is_compiling()
        and {type(x), type(weight)} <= {Tensor, nn.Parameter}
        and not functorch_is_active()
        and not torch.jit.is_tracing()
        and all(forward_ad.unpack_dual(tensor).tangent is None for tensor in (x, weight))
        and onednn_is_faster()
        and not has_torch_function((x, weight))  # a tracer looks for torch's function
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and x.dim() == 2
        and x.shape[1] == weight.shape[1]
        and x.shape[0] >= MIN_VECTORS
        and x.shape[0] * weight.numel() >= MIN_MULTIPLY_ADDS
        and weight.is_contiguous()
    )
