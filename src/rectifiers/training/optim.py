"""The paper's optimiser: SGD with momentum; only the weights of conv and linear layers decay."""

from typing import cast

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

    slope_weight_decay: decay of PReLU's slopes, which the paper leaves without it. fused: in one pass over each weight.
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
    return SGD([group for group in groups if group["params"]], lr=lr, momentum=momentum, fused=fused)
