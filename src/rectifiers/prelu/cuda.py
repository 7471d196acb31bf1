"""PReLU's backward pass on a GPU, by Triton: one pass, with sums in float32 in a fixed order."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from rectifiers.prelu.cpu import memory_format

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK = 1024


@triton.jit
def _maps(  # type: ignore[no-untyped-def]
    v,
    grad,
    slopes,
    grad_input,
    sums,
    channels,
    units,
    stride,
    unit: tl.constexpr,
    block: tl.constexpr,
):
    """One program per `block` numbers of a map [units * unit]; sums: [images * channels, programs
    per map].

    The compiler knows that every map begins at a multiple of `unit`, and loads as many numbers at
    once."""
    inner = units * unit
    one, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * block + tl.arange(0, block)
    inside = at < inner
    x = tl.load(v + one * inner + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(grad + one * inner + at, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(slopes + one % channels * stride)
    tl.store(grad_input + one * inner + at, tl.where(x > 0, dy, slope * dy), mask=inside)
    tl.store(sums + one * tl.num_programs(1) + part, tl.sum(tl.where(x > 0, 0.0, dy * x)))


@triton.jit
def _last(  # type: ignore[no-untyped-def]
    v,
    grad,
    slopes,
    grad_input,
    sums,
    positions,
    channels,
    stride,
    rows: tl.constexpr,
    block: tl.constexpr,
):
    """One program per `rows` positions of `block` channels, channels last; sums: [programs,
    channels]."""
    part = tl.program_id(0).to(tl.int64)
    position = (part * rows + tl.arange(0, rows))[:, None]
    channel = (tl.program_id(1) * block + tl.arange(0, block))[None, :]
    inside = (position < positions) & (channel < channels)
    at = position * channels + channel
    x = tl.load(v + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(slopes + channel * stride, mask=channel < channels, other=0.0)
    tl.store(grad_input + at, tl.where(x > 0, dy, slope * dy), mask=inside)
    part_sums = tl.sum(tl.where(x > 0, 0.0, dy * x), axis=0)[None, :]
    tl.store(sums + part * channels + channel, part_sums, mask=channel < channels)


def warps(block: int) -> int:
    """Return how many warps share a block of a map: so few that each thread has four numbers to
    load at once."""
    return max(1, min(4, block // 128))


def backward(
    v: Tensor, grad: Tensor, slopes: Tensor, from_output: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the same as `cpu.backward`."""
    grad_input, sums = _gradients(v, grad, slopes)
    exact = sums.double().sum(0)
    grad_slopes = (exact if len(slopes) > 1 else exact.sum().view(1)).float()
    return grad_input, grad_slopes / slopes if from_output else grad_slopes


def _gradients(v: Tensor, grad: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the input, and sums [parts, channels], float32, of grad * v over
    v <= 0."""
    order = memory_format(v)
    v, grad, slopes = (
        v.contiguous(memory_format=order),
        grad.contiguous(memory_format=order),
        slopes.contiguous(),
    )
    images, channels = v.shape[:2]
    if not v.numel():
        return torch.empty_like(v), torch.zeros(images, channels, device=v.device)
    inner = v.numel() // max(1, images * channels)
    grad_input, stride = torch.empty_like(v), int(slopes.numel() > 1)
    if order is torch.channels_last or inner == 1:
        positions, block = images * inner, min(128, triton.next_power_of_2(channels))
        rows = max(1, 4 * BLOCK // block)
        sums = torch.empty(
            triton.cdiv(positions, rows), channels, dtype=torch.float32, device=v.device
        )
        grid = (sums.shape[0], triton.cdiv(channels, block))
        _last[grid](v, grad, slopes, grad_input, sums, positions, channels, stride, rows, block)
        return grad_input, sums
    block = min(4 * BLOCK, triton.next_power_of_2(inner))
    sums = torch.empty(
        images, channels, triton.cdiv(inner, block), dtype=torch.float32, device=v.device
    )
    grid, unit = (images * channels, sums.shape[2]), math.gcd(inner, 16)
    sizes = (channels, inner // unit, stride, unit, block)
    _maps[grid](v, grad, slopes, grad_input, sums, *sizes, num_warps=warps(block))
    return grad_input, sums.sum(2)
