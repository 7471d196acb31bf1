"""Whether an operation of ours may read the memory of tensors itself."""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rectifiers.runtime.torch_internals import functorch_is_active


def are_plain(*tensors: Tensor) -> bool:
    """Return whether nothing stands between the tensors and their memory.

    False under `torch.compile`, export and tracing, `vmap` and the like, for forward-mode
    derivatives, and for subclasses (fake, traced, distributed), which may have no memory to point
    at."""
    return (
        not torch.compiler.is_compiling()
        and {type(tensor) for tensor in tensors} <= {Tensor, nn.Parameter}
        and not functorch_is_active()
        and not torch.jit.is_tracing()
        and all(forward_ad.unpack_dual(tensor).tangent is None for tensor in tensors)
    )
