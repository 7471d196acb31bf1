"""The record of a training, from the parts of a run that have ended."""

import re
import statistics
from collections.abc import Mapping, Sequence

from rectifiers.data.sources import Source
from rectifiers.nn.initializers import LayerReport
from rectifiers.nn.networks.rows import depth
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import science
from rectifiers.runs.record import SCHEMA_VERSION, TrainingRecord, finite
from rectifiers.runs.record_parts import Divergence, InitReportEntry, Network, ProtocolResult, Provenance, Slopes
from rectifiers.training.divergence import Diverged
from rectifiers.training.module import Classifier

OF_THIS_MACHINE = ("runs_dir", "cache_dir", "rerun", "logger", "hydra")


def training_record(
    *,
    run: str,
    config: RunConfig,
    choices: dict[str, str | None],
    overrides: Sequence[str] | None,
    source: Source,
    classifier: Classifier,
    init_report: Sequence[LayerReport],
    warnings: list[str],
    diverged: Diverged | None,
    results: Mapping[str, ProtocolResult],
    provenance: Provenance,
    processes: int,
) -> TrainingRecord:
    """Return the record of a training that is finished or has diverged.

    overrides: what was typed after `python train.py`; None where nothing was.
    """
    network, history = classifier.network, classifier.history
    rates = [row["images_per_second"] for row in history]
    return TrainingRecord(
        schema_version=SCHEMA_VERSION,
        kind="training",
        run=run,
        status="diverged" if diverged else "finished",
        diverged=Divergence(step=diverged.step, layer=diverged.layer) if diverged else None,
        choices=choices,
        overrides=None if overrides is None else without_places(overrides),
        science=science(config),
        compute={**config.compute.as_dict(), "processes": processes},
        protocols=dict(results),
        network=Network(
            depth=depth([shape.row for shape in network.shapes]),
            input_px=config.data.crop_px,
            channels=source.channels,
            classes=len(source.classes),
            parameters=sum(p.numel() for p in network.parameters()),
            slopes=sum(slope.numel() for slope in network.slopes().values()),
            multiply_adds=sum(shape.multiply_adds for shape in network.shapes),
        ),
        class_names=list(source.classes),
        init_report=[InitReportEntry(**entry.as_dict()) for entry in init_report],
        warnings=warnings,
        slopes={}
        if diverged
        else {
            layer: Slopes(
                mean=float(slope.mean()),
                std=float(slope.std(correction=0)),
                min=float(slope.min()),
                max=float(slope.max()),
                channels=slope.numel(),
            )
            for layer, slope in network.slopes().items()
        },
        drop_epochs=classifier.rule.drop_epochs,
        epochs=len(history),
        history=[{key: finite(value) for key, value in row.items()} for row in history],
        train_images=len(source.train.labels),
        images_per_second=statistics.harmonic_mean(rates) if rates else None,
        wall_s=sum([*(row["seconds"] for row in history), *(result.seconds for result in results.values())]),
        codes=classifier.codes,
        provenance=provenance,
    )


def without_places(overrides: Sequence[str]) -> list[str]:
    """Return what others can type for the same run: nothing that names a folder or an account of this machine."""
    kept = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "data.root":
            kept.append("data.root=FOLDER")
        elif key == "optim.drop_epochs_from" and "/" in value:
            kept.append("optim.drop_epochs_from=RECORD")
        elif re.split(r"[./@]", key)[0] not in OF_THIS_MACHINE:
            kept.append(override)
    return kept


def unread_warning(indices: Sequence[int]) -> list[str]:
    """Return a sentence about the training images that could not be read, or nothing where all could."""
    if not indices:
        return []
    named = ", ".join(str(index) for index in indices)
    return [f"{len(indices)} training images could not be read; others took their places (by index: {named})"]
