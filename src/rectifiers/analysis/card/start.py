"""A deep chain as an entry starts it: signal and gradient by depth, measured beside the
prediction."""

from typing import Any

from rectifiers.analysis import propagation
from rectifiers.runs.config import RunConfig

SEEDS = 5


def at_the_start(config: RunConfig) -> dict[str, Any]:
    """Return log10 E[y^2] and log10 E[dy^2] of every layer of `config`'s network on real images,
    with the theory.

    The theory counts what finite width does on average, where it is known; `width` names the units
    per layer."""
    numbers = propagation.analyse(config, seeds=SEEDS, inputs="data")
    layers = [
        {
            "measured": layer["response_second"],
            "gradient": layer["gradient_second"],
            "theory": layer["theory"] and layer["theory"]["response"],
            "theory_gradient": layer["theory"] and layer["theory"]["gradient"],
            "width_drift": layer["theory"] and layer["theory"]["width_drift"],
            "width_spread": layer["theory"] and layer["theory"]["width_spread"],
        }
        for layer in numbers["layers"]
    ]
    return {
        "layers": layers,
        "width": numbers["layers"][1]["fan_in"],
        "seeds": SEEDS,
        "images": propagation.IMAGES,
    }
