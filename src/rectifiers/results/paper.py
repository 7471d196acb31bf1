"""The numbers that the paper prints, each with its place and the texts it was read in (`paper.yaml`
beside this)."""

import functools
from pathlib import Path
from typing import Any

import yaml


@functools.cache
def published() -> dict[str, Any]:
    """Return `paper.yaml` as plain data; entries of confidence `recalled` are never targets."""
    return yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text())


def table_1_slopes(shared: bool) -> dict[str, float]:
    """Return Table 1's learned slopes by layer, as printed: channel-shared, or the mean over
    channels."""
    column = "slope_channel_shared" if shared else "slope_channel_wise_mean"
    layers = published()["table_1_small_model"]["layers"]
    return {layer["name"]: layer[column]["value"] for layer in layers if column in layer}
