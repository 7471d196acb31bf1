"""The record of a training, from the parts of a run that have ended."""

import re
import statistics
from collections.abc import Mapping, Sequence

from rectifiers.nn.networks.rows import depth
from rectifiers.runs.identity import science
from rectifiers.runs.record import SCHEMA_VERSION, TrainingRecord, finite
from rectifiers.runs.record_parts import Divergence, InitReportEntry, Network, ProtocolResult, Slopes
from rectifiers.runtime.distributed import all_gather
from rectifiers.training.build import Run
from rectifiers.training.divergence import Diverged

OF_THIS_MACHINE = ("runs_dir", "cache_dir", "rerun", "logger", "hydra")


def training_record(
    run: Run,
    choices: Mapping[str, str | None],
    overrides: Sequence[str] | None,
    diverged: Diverged | None,
    results: Mapping[str, ProtocolResult],
) -> TrainingRecord:
    """Return the record of a training that is finished or has diverged, on every rank.

    overrides: what was typed after `python train.py`; None where nothing was.
    """
    config, source, network, history = run.config, run.source, run.network, run.classifier.history
    rates = [row["images_per_second"] for row in history]
    unread = run.classifier.unreadable_images() or sorted(set().union(*all_gather(run.data.unread)))
    return TrainingRecord(
        schema_version=SCHEMA_VERSION,
        kind="training",
        run=run.folder.name,
        status="diverged" if diverged else "finished",
        diverged=Divergence(step=diverged.step, layer=diverged.layer) if diverged else None,
        choices=dict(choices),
        overrides=None if overrides is None else without_places(overrides),
        science=science(config),
        compute={**config.compute.as_dict(), "processes": run.here.size},
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
        init_report=[InitReportEntry(**entry.as_dict()) for entry in run.init_report],
        warnings=[*run.warnings, *_unread_warning(unread)],
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
        drop_epochs=run.classifier.drop_epochs,
        epochs=len(history),
        history=[{key: finite(value) for key, value in row.items()} for row in history],
        train_images=len(source.train.labels),
        images_per_second=statistics.harmonic_mean(rates) if rates else None,
        wall_s=sum([*(row["seconds"] for row in history), *(result.seconds for result in results.values())]),
        codes=run.classifier.codes,
        provenance=run.provenance(),
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


def _unread_warning(indices: Sequence[int]) -> list[str]:
    """A sentence about the training images that could not be read, or nothing where all could."""
    if not indices:
        return []
    named = ", ".join(str(index) for index in indices)
    return [f"{len(indices)} training images could not be read; others took their places (by index: {named})"]
