"""Private names of torch, because torch 2.15 has no public ones for the task.

`training.lightning` has Lightning's and one more of torch's, `tracking.wandb_artifacts` and
`results.wandb_report` have W&B's. `tests/test_architecture.py` finds any elsewhere, and a test
beside each file fails when a name goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed._tools.mem_tracker import MemTracker


def is_exporting() -> bool:
    """Return whether `torch.export` is at work.

    Up to torch 2.9 `torch.compiler.is_exporting` answers yes in `torch.compile`, too."""
    import torch

    return torch.compiler._is_exporting_flag


def functorch_is_active() -> bool:
    """Return whether a transform such as `torch.func.vmap` or `grad` is running, whose tensors have
    no memory."""
    import torch

    return torch._C._are_functorch_transforms_active()


def is_followed() -> bool:
    """Return whether a compiler, an exporter, a tracer, a transform or a mode follows what is
    computed, such as a counter of operations."""
    import torch

    return (
        torch.compiler.is_compiling()  # first: a compiler follows no private names
        or torch._C._is_tracing()
        or torch.compiler._is_exporting_flag
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_torch_function_mode_enabled()
    )


def has_memory(tensor: Tensor) -> bool:
    """Return whether a tensor's numbers lie in memory, where `data_ptr` says, as they are.

    Those of a batch of gradients do not, as `torch.autograd.grad(is_grads_batched=True)` makes
    them, nor those of a zero of forward-mode differentiation, of a view that stands for the
    negative, as of the imaginary part of a conjugate, and of oneDNN's own layouts."""
    import torch

    return not (
        torch._C._functorch.is_legacy_batchedtensor(tensor)
        or tensor._is_zerotensor()
        or tensor.is_neg()
        or tensor.is_mkldnn
    )


def shared_bytes(num_bytes: int) -> Tensor:
    """Return a uint8 tensor [num_bytes] of uninitialised shared memory.

    A loader's worker hands it over without a copy. `Tensor.share_memory_()` would copy the
    uninitialised memory first."""
    import torch

    return torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(num_bytes))


def memory_tracker() -> MemTracker:
    """Return torch's counter of the bytes that tensors hold."""
    from torch.distributed._tools.mem_tracker import MemTracker

    return MemTracker()


def base(tensor: Tensor) -> Tensor | None:
    """Return the tensor of which this one is a view, or None."""
    return tensor._base


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.linear(x, weight, bias)` of float32 tensors on the CPU, as oneDNN computes it.

    x: [N, inputs]; weight: [units, inputs], which may be the transposed view of a contiguous
    matrix; bias: [units] or None. Nothing of the weight is kept between calls, and no gradient is
    recorded."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
