"""The paper's optimiser: SGD with momentum; only the weights of conv and linear layers decay."""

from typing import Any, cast

import torch
from torch import nn
from torch.optim import SGD, Optimizer


def group_parameters(network: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Return (weights, biases, others) of `network`, disjoint and complete.

    Weights and biases are those of conv and linear layers. Others are what belongs to no such layer: slopes of any
    activation and normalisation parameters. A slope that decays is pulled to 0, that is to ReLU (section 2.1).
    """
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
    """Return SGD with decay on the weights alone and biases at `bias_lr_factor` times the learning rate.

    slope_weight_decay: decay of PReLU's slopes, which the paper leaves without it. fused: in one pass over each weight;
    else as torch chooses. Either may go on from a state that the other one left, in another order of maps too.
    """
    weights, biases, others = group_parameters(network)
    of_prelu = {id(m.weight) for m in network.modules() if isinstance(m, nn.PReLU)}
    slopes = [p for p in others if id(p) in of_prelu and slope_weight_decay]
    groups = [
        {"params": weights, "lr": lr, "weight_decay": weight_decay},
        {"params": biases, "lr": lr * bias_lr_factor, "weight_decay": 0.0},
        {"params": [p for p in others if not (slopes and id(p) in of_prelu)], "lr": lr, "weight_decay": 0.0},
        {"params": slopes, "lr": lr, "weight_decay": slope_weight_decay},
    ]
    optimizer = SGD([group for group in groups if group["params"]], lr=lr, momentum=momentum, fused=fused or None)
    if fused:
        optimizer.register_step_pre_hook(_begin_momentum)

    def as_here(optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            group["fused"] = fused or None  # and not as the run was begun
            for p in group["params"]:
                kept = optimizer.state[p].get("momentum_buffer")
                if kept is not None and kept.stride() != p.stride():
                    optimizer.state[p]["momentum_buffer"] = torch.empty_like(p).copy_(kept)

    optimizer.register_load_state_dict_post_hook(as_here)
    return optimizer


def _begin_momentum(optimizer: Optimizer, *_: Any) -> None:
    """Momentum begins with 0, which makes the same first step. torch's fused one takes momentum of all or of none."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if group["momentum"] and p.requires_grad and optimizer.state[p].get("momentum_buffer") is None:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
