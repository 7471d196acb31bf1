"""A deep chain as an entry starts it: signal and gradient by depth, measured beside the
prediction."""

from typing import Any

from rectifiers.analysis import propagation
from rectifiers.runs.config import RunConfig

SEEDS = 5


def init_section(config: RunConfig) -> dict[str, Any]:
    """Return log10 E[y^2] and log10 E[dy^2] of every layer of `config`'s network on real images,
    with the theory.

    The theory counts what finite width does on average, where it is known; `width` names the units
    per layer."""
    numbers = propagation.analyse(config, seeds=SEEDS, inputs="data")
    layers = []
    for layer in numbers["layers"]:
        theory = layer["theory"] or {}
        row = {"measured": layer["response_second"], "gradient": layer["gradient_second"]}
        row |= {"theory": theory.get("response"), "theory_gradient": theory.get("gradient")}
        layers.append(row | {key: theory.get(key) for key in ("width_drift", "width_spread")})
    width = numbers["layers"][1]["fan_in"]
    return {"layers": layers, "width": width, "seeds": SEEDS, "images": propagation.IMAGES}
