"""What steps of SGD bring to parameters without a gradient: those of a branch that starts at 0 wait
for one step, and nothing is at fault with them."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.initialization.flow import Flow, measure
from rectifiers.runtime.errors import InputError

MOST_STEPS = 3
# Root mean square of what a step changes in every tensor, over the numbers that have a gradient: of
# a table few rows have one.
STEP = 0.01


def after_steps(
    model: nn.Module, start: Flow, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Flow]:
    """Measure a copy of the model after each step of SGD, as long as they bring gradients to
    parameters that had none; nothing where all have one.

    start: what `measure` has shown of the model itself."""
    flows: list[Flow] = []
    waiting = silent(start)
    stepped = copied(model) if waiting else model
    while waiting and len(flows) < MOST_STEPS:
        _step(stepped, (flows[-1] if flows else start).derivatives)
        flows.append(measure(copied(stepped), args, kwargs))
        before, waiting = waiting, silent(flows[-1])
        if waiting == before:
            break
    return flows


def silent(flow: Flow) -> list[str]:
    """Return the parameters that the outputs depend on with a gradient of 0. A bias before a
    normalisation or a softmax has none, and does not count; nor do empty parameters, and layers
    without rows."""
    result = []
    for name, gradient in flow.gradients.items():
        derivative = flow.derivatives[name]
        if gradient != 0 or derivative is None or not derivative.numel() or name in flow.idle:
            continue
        owner = name.rpartition(".")[0]
        others = (g for n, g in flow.gradients.items() if n != name and _is_in(n, owner))
        if derivative.dim() > 1 or not any(others):
            result.append(name)
    return result


def _is_in(name: str, owner: str) -> bool:
    return name.rpartition(".")[0] == owner


def copied(model: nn.Module) -> nn.Module:
    """Return a copy to run: some models keep numbers of a run beside their tensors, as caches."""
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise InputError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); give it before wrappers, and without hooks"
        ) from error


@torch.no_grad()
def _step(model: nn.Module, derivatives: Mapping[str, Tensor | None]) -> None:
    for name, parameter in model.named_parameters():
        derivative = derivatives.get(name)
        if derivative is None or not derivative.numel():
            continue
        largest = float(derivative.abs().amax())
        if 0 < largest < math.inf:
            unit = derivative / largest  # first: STEP / size of a tiny derivative overflows
            size = float(unit[unit != 0].double().square().mean().sqrt())
            parameter.sub_(unit * (STEP / size))
