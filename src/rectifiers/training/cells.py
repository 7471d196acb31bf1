"""A sweep's cells as runs: planned with what the data says, and trained like any other."""

import copy
import signal
from pathlib import Path
from typing import Any

from rectifiers.nn.networks.rows import trace
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.sweep import Cell, note_end, note_start
from rectifiers.runtime.signals import Stopped, deferring_signals
from rectifiers.training.assembly import build_layers, build_source
from rectifiers.training.run import Outcome, train

FORWARD_AND_BACKWARD = 3


def plan_cell(overrides: list[str], config: dict[str, Any], choices: dict[str, Any]) -> Cell:
    """Freeze a resolved configuration: its data is opened, so that the run's name holds, its paths are made absolute.

    A cell bears its run's name, or, where that waits for another run's drop epochs, one made with the reference.
    """
    source = build_source(config)
    shapes = trace(
        build_layers(config, len(source.classes)), channels=source.channels, input_px=config["data"]["crop_px"]
    )
    images = len(source.train.labels) * config["optim"]["epochs"]
    cost = FORWARD_AND_BACKWARD * sum(shape.multiply_adds for shape in shapes) * images
    reference = config["optim"]["drop_epochs_from"]
    named = science(config) | ({} if reference is None else {"drop_epochs_from": reference})
    return Cell(run_id(named), overrides, _absolute(config), choices, cost, code_fingerprint())


def _absolute(config: dict[str, Any]) -> dict[str, Any]:
    """A cell is run from wherever its scheduler is."""
    own = copy.deepcopy(config)
    for node, key in ((own, "runs_dir"), (own, "cache_dir"), (own["data"], "root"), (own["optim"], "drop_epochs_from")):
        is_path = key != "drop_epochs_from" or (isinstance(node[key], str) and Path(node[key]).exists())
        if isinstance(node.get(key), str) and is_path:
            node[key] = str(Path(node[key]).absolute())
    return own


def run_cell(sweep: Path, cell: Cell) -> Outcome:
    """Train a cell, and note in its sweep where that fails."""
    note_start(sweep, cell)
    try:
        return train(cell.config, cell.choices)
    except SystemExit as left:
        note_end(sweep, cell, int(left.code or 0))
        raise
    except BaseException as fault:
        note_end(sweep, cell, 1, f"error: {fault}")
        raise


class Job:
    """A cell as submitit calls it, maybe on another machine.

    Where its time is over or it is to make room, it stops cleanly, and then does what submitit wants of it then: be
    queued again.
    """

    def __init__(self, sweep: Path, cell: Cell) -> None:
        self.sweep, self.cell = sweep, cell

    def __call__(self) -> str:
        queue_again: Any = signal.getsignal(signal.SIGUSR2)  # submitit's, which would leave within a step
        try:
            with deferring_signals():
                signal.signal(signal.SIGUSR2, lambda *_: signal.raise_signal(signal.SIGUSR1))
                return str(run_cell(self.sweep, self.cell).path)
        except Stopped:
            queue_again(signal.SIGUSR2, None)
            raise

    def checkpoint(self) -> Any:
        """Return what submitit is to call when the job is there again: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)
