"""Activations and gradients along an ordinary training, as Glorot and Bengio (2010) drew them."""

from dataclasses import asdict
from typing import Any

from rectifiers.analysis.setup import AnalysisSetup, observe_training
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.errors import InputError
from rectifiers.training.diagnostics import QUANTILES, Signals


def log_spaced(last: int, count: int) -> list[int]:
    """Return at most `count` whole numbers from 0 to `last`, the ends included, between them evenly
    on a log scale."""
    between = (
        [round((last + 1) ** (i / (count - 1))) - 1 for i in range(count)] if count > 1 else [0]
    )
    return sorted({max(0, min(last, step)) for step in between})


def analyse(config: RunConfig, *, snapshots: int) -> dict[str, Any]:
    """Train `config` once more, in a folder of its own that is removed, and return its signals at a
    few steps.

    Raises:
        InputError: where the training diverged before its first step.
    """
    signals = Signals(log_spaced(AnalysisSetup(config).steps - 1, snapshots))
    record = observe_training(config, signals)
    whole = {
        step: layers
        for step, layers in signals.found.items()
        if all(len(pair) == 2 for pair in layers.values())
    }
    if not whole:
        raise InputError(
            "the training diverged in its first step, so there is nothing to draw; lower optim.lr"
        )
    return {
        "status": record.status,
        "quantiles": QUANTILES,
        "error_pct": record.history[-1]["val/top1_error_pct"] if record.history else None,
        "snapshots": [
            {
                "step": step,
                "layers": [
                    {"layer": layer, "activations": asdict(outputs), "gradients": asdict(gradients)}
                    for layer, (outputs, gradients) in layers.items()
                ],
            }
            for step, layers in sorted(whole.items())
        ],
    }
