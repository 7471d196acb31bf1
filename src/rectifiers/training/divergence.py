"""Where a loss that is not finite came from."""

import torch
from torch import Tensor, nn


class Diverged(Exception):
    """Training stopped because the loss of `step` was not finite; `layer` is the first one it can be seen at."""

    def __init__(self, step: int, layer: str) -> None:
        super().__init__(f"the loss stopped being finite at step {step}, first seen at {layer}")
        self.step, self.layer = step, layer


def _finite(x: object) -> bool:
    return not isinstance(x, Tensor) or bool(torch.isfinite(x).all())


def all_finite(numbers: Tensor) -> bool:
    """Whether no number is infinite or none: seen in most cases from their sum, in a tenth of the time."""
    return bool(torch.isfinite(numbers.sum())) or bool(torch.isfinite(numbers).all())


@torch.no_grad()
def first_bad_layer(network: nn.Module, x: Tensor) -> str:
    """Return the first module, in the order of a forward pass on `x`, whose weights or output are not finite.

    "input" where `x` itself is not finite, "loss" where all scores still are.
    """
    if not _finite(x):
        return "input"
    found: list[str] = []
    handles = []
    for name, module in network.named_modules():
        if not list(module.children()):

            def look(module: nn.Module, _: object, output: object, name: str = name) -> None:
                if not found and not (_finite(output) and all(_finite(p) for p in module.parameters())):
                    found.append(name)

            handles.append(module.register_forward_hook(look))
    try:
        network.forward(x)  # not network(x): that may be compiled, and compiled code calls no hooks
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "loss"
