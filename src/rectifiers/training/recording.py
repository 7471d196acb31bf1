"""The record of a training, from the parts of a run that have ended."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rectifiers.data.sources import Source
from rectifiers.nn.initializers import LayerReport
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import depth
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import science
from rectifiers.runs.shape import SCHEMA_VERSION
from rectifiers.training.divergence import Diverged
from rectifiers.training.module import Classifier


def training_record(
    *,
    run: str,
    config: RunConfig,
    choices: dict[str, Any],
    source: Source,
    classifier: Classifier,
    init_report: Sequence[LayerReport],
    warnings: list[str],
    diverged: Diverged | None,
    results: dict[str, Any],
    where: dict[str, Any],
    processes: int,
) -> dict[str, Any]:
    """Return the record of a training that is finished or has diverged.

    results: each protocol's entry by name. where: the provenance, see `runs.provenance`.
    """
    network, history = classifier.network, classifier.history
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "status": "diverged" if diverged else "finished",
        "diverged": {"step": diverged.step, "layer": diverged.layer} if diverged else None,
        "choices": choices,
        "science": science(config),
        "compute": {**config.compute.as_dict(), "processes": processes},
        "protocols": results,
        "network": _describe(network, source, config.data.crop_px),
        "class_names": list(source.classes),
        "ledger": [entry.as_dict() for entry in init_report],
        "warnings": warnings,
        "slopes": {} if diverged else _slopes(network),
        "drop_epochs": classifier.rule.drop_epochs,
        "epochs": len(history),
        "history": [{key: _finite(value) for key, value in row.items()} for row in history],
        "train_images": len(source.train.labels),
        "images_per_second": statistics.harmonic_mean([row["images_per_second"] for row in history])
        if history
        else None,
        "wall_s": sum(part["seconds"] for part in (*history, *results.values())),
        "codes": classifier.codes,
        "provenance": where,
    }


def unread_warning(indices: Sequence[int]) -> list[str]:
    """Return a sentence about the training images that could not be read, or nothing where all could."""
    if not indices:
        return []
    named = ", ".join(str(index) for index in indices)
    return [f"{len(indices)} training images could not be read; others took their places (by index: {named})"]


def _finite(number: float | None) -> float | None:
    """A diverged run's last numbers may be none; JSON says null."""
    return number if number is not None and math.isfinite(number) else None


def _describe(network: Network, source: Source, input_px: int) -> dict[str, Any]:
    shapes = network.shapes
    return {
        "depth": depth([shape.row for shape in shapes]),
        "input_px": input_px,
        "channels": source.channels,
        "classes": len(source.classes),
        "parameters": sum(p.numel() for p in network.parameters()),
        "slopes": sum(slope.numel() for slope in network.slopes().values()),
        "multiply_adds": sum(shape.multiply_adds for shape in shapes),
    }


def _slopes(network: Network) -> dict[str, Any]:
    return {
        layer: {
            "mean": float(slope.mean()),
            "std": float(slope.std(correction=0)),
            "least": float(slope.min()),
            "most": float(slope.max()),
            "channels": slope.numel(),
        }
        for layer, slope in network.slopes().items()
    }
