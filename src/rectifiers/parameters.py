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
    slope_weight_decay: the decay of PReLU's slopes.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.LayerNorm(8))
        >>> groups = parameter_groups(model, weight_decay=0.05)
        >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
        [(1, 0.05), (1, 0.0), (3, 0.0)]
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
        {"params": weights, "weight_decay": weight_decay},
        {"params": biases, "weight_decay": 0.0},
        {"params": others, "weight_decay": 0.0},
        {"params": slopes, "weight_decay": slope_weight_decay},
    ]
    if lr is not None:
        for group in groups:
            group["lr"] = lr * bias_lr_factor if group["params"] is biases else lr
    return [group for group in groups if group["params"]]


def _is_of_weight(name: str) -> bool:
    """Return whether a layer's parameter is its weight, or one that the weight is computed from, as
    by `nn.utils.parametrizations.weight_norm`."""
    is_part = name.startswith("weight_") and "." not in name  # as torch once did it
    return name == "weight" or is_part or name.startswith("parametrizations.weight.")
