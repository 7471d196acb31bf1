"""What the responses of a run's layers were, as its record tells, and what Eq. 9 says of them."""

import math
from collections.abc import Mapping
from typing import Any

from rectifiers.runs.record import TrainingRecord

SCALES_WITH_INPUT = (
    "ReLU",
    "LeakyReLU",
    "PReLU",
)  # f(s y) = s f(y) for s > 0, so that a variance has one factor


def by_layer(record: TrainingRecord, row: Mapping[str, Any]) -> dict[str, float]:
    """Return the root mean square of each layer's responses in a row of the record's history; none
    that is silent.

    From the first layer on, as the init report has them: a row's keys are in the order of the
    alphabet."""
    found = {}
    for layer in (entry.layer for entry in record.init_report):
        mean, std = row.get(f"response_mean/{layer}"), row.get(f"response_std/{layer}")
        if mean is not None and std is not None and (mean or std):
            found[layer] = math.hypot(mean, std)
    return found


def expected(record: TrainingRecord) -> dict[str, float] | None:
    """Return by what Eq. 9 multiplies the root mean square of the responses from the first hidden
    layer to each, at the start: the square root of the product of n Var[w] E[f(z)^2], z ~ N(0, 1).

    None for an activation whose variance has no one factor, for normalised layers, for weights that
    are all zero, and for maps, whose pooling Eq. 9 leaves out."""
    layers = [entry for entry in record.init_report if entry.activation_after]
    plain = record.science["model"]["norm"] == "none" and all(
        len(entry.shape) == 2 for entry in layers
    )
    if not plain or not all(entry.activation_after in SCALES_WITH_INPUT for entry in layers):
        return None
    product, found = 1.0, {}
    for i, entry in enumerate(layers):
        if entry.forward_gain is None or entry.std_asked <= 0:
            return None
        product *= math.sqrt(entry.fan_in) * entry.std_asked / entry.forward_gain if i else 1.0
        found[entry.layer] = product
    return found
