"""What W&B gets at a run's end: the summary, the comparison with the paper, figures, data and weights."""

import io
import time
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from rectifiers.results.figures import FIGURES, png
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.timeouts import error_within, first_sentence
from rectifiers.tracking import payload


def conclude(run: Any, record: TrainingRecord, checkpoint: Path | None, wait_s: float) -> str | None:
    """Log the results of `record`, and `checkpoint` where one is given, in `wait_s`; return the first error."""
    steps = [partial(_log_summary, run, record), partial(_log_data, run, record)]
    if checkpoint is not None:
        steps.append(partial(_log_checkpoint, run, record, checkpoint))
    until = time.monotonic() + wait_s
    errors = [error_within(max(0.1, until - time.monotonic()), step) for step in steps]
    return next((first_sentence(error) for error in errors if error), None)


def _log_summary(run: Any, record: TrainingRecord) -> None:
    import wandb

    table = wandb.Table(columns=list(payload.COMPARISON_COLUMNS), data=payload.comparison_rows(record))
    figures = {name: draw(record) for name, draw in FIGURES.items()}
    images = {name: wandb.Image(Image.open(io.BytesIO(png(figure)))) for name, figure in figures.items() if figure}
    run.summary.update({**payload.summary(record), "paper_vs_measured": table, **images})


def _log_data(run: Any, record: TrainingRecord) -> None:
    """Log which data was used, by a reference to its hash; offline the client has no such lineage."""
    import wandb

    if not run.offline:
        data = wandb.Artifact(f"data-{record.choices['data']}", type="dataset")
        data.add_reference(f"hash://sha256/{record.provenance.data}", name="content", checksum=False)
        run.use_artifact(data)


def _log_checkpoint(run: Any, record: TrainingRecord, path: Path) -> None:
    import wandb

    checkpoint = wandb.Artifact(f"checkpoint-{run.id}", type="model", metadata=payload.summary(record))
    checkpoint.add_file(str(path), policy="immutable")
    run.log_artifact(checkpoint)
