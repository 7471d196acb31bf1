"""Parameter groups for any optimiser."""

from typing import Any

from torch import nn

LAYERS = (
    *(nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)


def parameter_groups(
    model: nn.Module,
    *,
    weight_decay: float,
    lr: float | None = None,
    bias_lr_factor: float = 1.0,
    slope_weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Return parameter groups for an optimiser, with weight decay only on the weights of conv and
    linear layers and of `nn.MultiheadAttention`.

    Biases, slopes of any activation, parameters of normalisation, and embeddings do not decay.
    Decay would pull a slope towards 0, which is ReLU (section 2.1 of the paper).

    weight_decay: the decay of the weights.
    lr: the learning rate of all groups; None: the optimiser's.
    bias_lr_factor: a factor on `lr` for the biases of layers; has no effect without `lr`.
    slope_weight_decay: the decay of PReLU's slopes; without it they are among the others.

    Each group has a `name`, which Lightning's LearningRateMonitor shows: weights, biases, others or
    slopes; and `param_names`, where torch's optimisers keep the names of parameters.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.LayerNorm(8))
        >>> groups = parameter_groups(model, weight_decay=0.05)
        >>> [(group["name"], group["param_names"], group["weight_decay"]) for group in groups[:2]]
        [('weights', ['0.weight'], 0.05), ('biases', ['0.bias'], 0.0)]
        >>> groups[2]["name"], groups[2]["param_names"]
        ('others', ['1.weight', '2.weight', '2.bias'])
    """
    layers = [m for m in model.modules() if isinstance(m, LAYERS)]
    owned = [dict(layer.named_parameters()) for layer in layers]
    weights = [p for own in owned for name, p in own.items() if _is_of_weight(name)]
    attentions = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    weights += [p for m in attentions for p in m.parameters(recurse=False) if p.dim() == 2]
    biases = [own["bias"] for own in owned if "bias" in own]
    # layers may share a parameter, which an optimiser takes once
    weights, biases = list(dict.fromkeys(weights)), list(dict.fromkeys(biases))

    in_layers = {id(p) for p in weights + biases}
    others = [p for p in model.parameters() if id(p) not in in_layers]
    slopes: list[nn.Parameter] = []
    if slope_weight_decay:
        slope_ids = {id(m.weight) for m in model.modules() if isinstance(m, nn.PReLU)}
        slopes = [p for p in others if id(p) in slope_ids]
        others = [p for p in others if id(p) not in slope_ids]

    groups: list[dict[str, Any]] = [
        {"name": "weights", "params": weights, "weight_decay": weight_decay},
        {"name": "biases", "params": biases, "weight_decay": 0.0},
        {"name": "others", "params": others, "weight_decay": 0.0},
        {"name": "slopes", "params": slopes, "weight_decay": slope_weight_decay},
    ]
    names = {id(p): name for name, p in model.named_parameters()}
    for group in groups:
        # beside the parameters, because not every optimiser takes pairs of name and parameter
        group["param_names"] = [names[id(p)] for p in group["params"]]
        if lr is not None:
            group["lr"] = lr * bias_lr_factor if group["params"] is biases else lr
    return [group for group in groups if group["params"]]


def _is_of_weight(name: str) -> bool:
    """Return whether a layer's parameter is its weight, or one that the weight is computed from, as
    by `nn.utils.parametrizations.weight_norm`."""
    is_part = name.startswith("weight_") and "." not in name  # as torch once did it
    return name == "weight" or is_part or name.startswith("parametrizations.weight.")
