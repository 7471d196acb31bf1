"""The paper's optimiser: SGD with momentum, decay of conv and linear weights alone, and its step
rule."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.optim import SGD, Optimizer


def group_parameters(
    network: nn.Module,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Return (weights, biases, others) of `network`, disjoint and complete.

    Weights and biases are those of conv and linear layers. Others are all other parameters: slopes
    of any activation and those of normalisation. Decay would pull a slope to 0, which is ReLU
    (section 2.1)."""
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    weights = [cast(nn.Parameter, layer.weight) for layer in layers]
    biases = [cast(nn.Parameter, layer.bias) for layer in layers if layer.bias is not None]
    known = {id(p) for p in weights + biases}
    return weights, biases, [p for p in network.parameters() if id(p) not in known]


def build_sgd(
    network: nn.Module,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    bias_lr_factor: float,
    slope_weight_decay: float = 0.0,
    fused: bool = False,
) -> Optimizer:
    """Return SGD with decay on the weights alone and biases at `bias_lr_factor` times the learning
    rate.

    slope_weight_decay: decay of PReLU's slopes, which do not decay in the paper. fused: make the
    step in one pass over each weight, else as torch chooses. A state loads into either, also where
    channels lie in another order in memory."""
    weights, biases, others = group_parameters(network)
    prelu_weights = {id(m.weight) for m in network.modules() if isinstance(m, nn.PReLU)}
    slopes = [p for p in others if id(p) in prelu_weights and slope_weight_decay]
    groups = [
        {"params": weights, "lr": lr, "weight_decay": weight_decay},
        {"params": biases, "lr": lr * bias_lr_factor, "weight_decay": 0.0},
        {
            "params": [p for p in others if not (slopes and id(p) in prelu_weights)],
            "lr": lr,
            "weight_decay": 0.0,
        },
        {"params": slopes, "lr": lr, "weight_decay": slope_weight_decay},
    ]
    optimizer = SGD(
        [group for group in groups if group["params"]],
        lr=lr,
        momentum=momentum,
        fused=fused or None,
    )
    if fused:
        optimizer.register_step_pre_hook(_start_momentum_at_zero)

    def adapt_state(optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            group["fused"] = fused or None  # not the checkpoint's
            for p in group["params"]:
                kept = optimizer.state[p].get("momentum_buffer")
                if kept is not None and kept.stride() != p.stride():
                    optimizer.state[p]["momentum_buffer"] = torch.empty_like(p).copy_(kept)

    optimizer.register_load_state_dict_post_hook(adapt_state)
    return optimizer


def _start_momentum_at_zero(optimizer: Optimizer, *_: Any) -> None:
    """Give every parameter a momentum buffer of zeros, which leaves the first step as it is.

    torch's fused step needs buffers for all parameters of a group or for none.
    """
    for group in optimizer.param_groups:
        for p in group["params"]:
            if (
                group["momentum"]
                and p.requires_grad
                and optimizer.state[p].get("momentum_buffer") is None
            ):
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)


def drop_epochs(
    errors: Sequence[float], patience: int, max_drops: int, fixed: Sequence[int] | None = None
) -> list[int]:
    """Return the epochs, counted from 1, after which the learning rate drops, given the error of
    each epoch so far.

    patience: epochs without a new lowest error before a drop (the paper does not print its rule;
    this is ours).
    max_drops: the largest number of drops. fixed: drop after these epochs whatever the error is, as
    the paper did for the second arm of its ReLU / PReLU pairs."""
    if fixed is not None:
        return [epoch for epoch in fixed if epoch <= len(errors)]
    drops: list[int] = []
    lowest, waited = math.inf, 0
    for epoch, error in enumerate(errors, start=1):
        waited = 0 if error < lowest else waited + 1
        lowest = min(lowest, error)
        if waited >= patience and len(drops) < max_drops:
            drops.append(epoch)
            waited = 0
    return drops
