"""A sweep's cells as runs: planned with what the data says, and trained like any other."""

from typing import Any

from rectifiers.models.spec import trace
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.sweep import Cell
from rectifiers.training.assembly import build_layers, build_source
from rectifiers.training.run import Outcome, train

FORWARD_AND_BACKWARD = 3


def plan_cell(overrides: list[str], config: dict[str, Any], choices: dict[str, Any]) -> Cell:
    """Freeze a resolved configuration: its data is opened, so that the run's name holds."""
    source = build_source(config)
    shapes = trace(
        build_layers(config, len(source.classes)), channels=source.channels, input_px=config["data"]["crop_px"]
    )
    images = len(source.train.labels) * config["optim"]["epochs"]
    cost = FORWARD_AND_BACKWARD * sum(shape.multiply_adds for shape in shapes) * images
    return Cell(run_id(science(config)), overrides, config, choices, cost, code_fingerprint())


def run_cell(cell: Cell) -> Outcome:
    """Train a cell; what submitit calls on another machine too."""
    return train(cell.config, cell.choices)
