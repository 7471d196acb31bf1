"""What W&B is told at a run's end: the summary, the table beside the paper's numbers, figures, data and weights."""

import io
import time
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from rectifiers.results.figures import FIGURES, png
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.timeouts import call_with_timeout, capture_exception, first_sentence
from rectifiers.tracking import payload


def conclude(run: Any, record: TrainingRecord, checkpoint: Path | None, wait_s: float) -> str | None:
    """Tell what `record` says, and keep `checkpoint` where one is given, in `wait_s`; return what was refused first."""
    steps = [partial(_summarize, run, record), partial(_name_data, run, record)]
    if checkpoint is not None:
        steps.append(partial(_keep, run, record, checkpoint))
    until = time.monotonic() + wait_s
    faults = [capture_exception(partial(call_with_timeout, max(0.1, until - time.monotonic()), step)) for step in steps]
    return next((first_sentence(fault) for fault in faults if fault), None)


def _summarize(run: Any, record: TrainingRecord) -> None:
    import wandb

    table = wandb.Table(columns=list(payload.COMPARISON_COLUMNS), data=payload.comparison_rows(record))
    figures = {name: draw(record) for name, draw in FIGURES.items()}
    drawn = {name: wandb.Image(Image.open(io.BytesIO(png(figure)))) for name, figure in figures.items() if figure}
    run.summary.update({**payload.summary(record), "paper_vs_measured": table, **drawn})


def _name_data(run: Any, record: TrainingRecord) -> None:
    """Lineage: a reference to the data by hash. Without a server the client knows of none, and the config names it."""
    import wandb

    if not run.offline:
        data = wandb.Artifact(f"data-{record.choices['data']}", type="dataset")
        data.add_reference(f"hash://sha256/{record.provenance.data}", name="content", checksum=False)
        run.use_artifact(data)


def _keep(run: Any, record: TrainingRecord, path: Path) -> None:
    import wandb

    checkpoint = wandb.Artifact(f"checkpoint-{run.id}", type="model", metadata=payload.summary(record))
    checkpoint.add_file(str(path), policy="immutable")
    run.log_artifact(checkpoint)
