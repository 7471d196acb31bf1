"""The paper's numbers, as printed."""

import functools
from pathlib import Path

from rectifiers.runtime.files import load_yaml
from rectifiers.runtime.schema import JsonObject


@functools.cache
def published() -> JsonObject:
    """Return `paper.yaml`: the paper's numbers by table, with the texts that they were read in."""
    return load_yaml(Path(__file__).with_name("paper.yaml").read_text())


def table_1_slopes(shared: bool) -> dict[str, float]:
    """Return Table 1's slopes by layer, as printed: channel-shared, or means over channels."""
    column = "shared" if shared else "wise"
    return {layer: slopes[column] for layer, slopes in published()["table_1"].items()}
