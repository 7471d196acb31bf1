"""Activations and gradients along an ordinary training, as Glorot and Bengio (2010) drew them."""

import tempfile
from dataclasses import asdict
from typing import Any

from rectifiers.runtime.errors import InputError
from rectifiers.training.diagnostics import QUANTILES, Signals
from rectifiers.training.run import train


def spaced(last: int, count: int) -> list[int]:
    """Return at most `count` whole numbers from 0 to `last`, the ends included, between them evenly on a log scale."""
    between = [round((last + 1) ** (i / (count - 1))) - 1 for i in range(count)] if count > 1 else [0]
    return sorted({max(0, min(last, step)) for step in between})


def histograms(config: dict[str, Any], steps: int, *, snapshots: int) -> dict[str, Any]:
    """Train `config` once more, in a folder of its own that is removed, and return its signals at a few steps.

    steps: of the whole training.

    Raises:
        InputError: where the training diverged before its first step.
    """
    look = Signals(spaced(steps - 1, snapshots))
    with tempfile.TemporaryDirectory() as place:
        own = {**config, "runs_dir": place, "rerun": False, "logger": {**config["logger"], "name": "none"}}
        record = train(own, {}, [look]).record
    whole = {step: layers for step, layers in look.found.items() if all(len(pair) == 2 for pair in layers.values())}
    if not whole:
        raise InputError("the training diverged in its first step, so there is nothing to draw; lower optim.lr")
    return {
        "status": record["status"],
        "quantiles": QUANTILES,
        "error_pct": record["history"][-1]["val/top1_error_pct"] if record["history"] else None,
        "snapshots": [
            {
                "step": step,
                "layers": [
                    {"layer": layer, "activations": asdict(answers), "gradients": asdict(gradients)}
                    for layer, (answers, gradients) in layers.items()
                ],
            }
            for step, layers in sorted(whole.items())
        ],
    }
