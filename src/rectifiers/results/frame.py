"""Records as one pandas data frame, which tables and listings are made from."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rectifiers.results.eligibility import setting
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.record import Record, TrainingRecord

if TYPE_CHECKING:
    from pandas import DataFrame

CHOICES = ("experiment", "model", "activation", "init", "data")
RUN = ("run", *CHOICES, "seed", "optim.lr", "epochs", "setting", "images", "code", "machine")
NUMBERS = (
    *("top1_error_pct", "top5_error_pct", "num_images", "split", "multiply_adds"),
    *("ece", "nll", "brier"),
)


def frame(records: Iterable[Record], only: str | None = None) -> "DataFrame":
    """Return the records as a data frame: a row per run and protocol, with errors in percent and
    the 95 % interval of the top-1 error over test images (Wilson).

    A run without a protocol has one row, and NaN in it. only: a protocol, so that each run has one
    row. images: the digest of a run's data. record, result: what a row was made from."""
    import pandas as pd  # here and not above: it takes a second

    rows = []
    for record in records:
        run = _run(record)
        results = {k: v for k, v in record.protocols.items() if only in (None, k)}
        for protocol, result in results.items():
            low, high = error_interval_pct(result.top1_errors, result.num_images)
            numbers = {name: getattr(result, name) for name in NUMBERS}
            tested = {"protocol": protocol, "result": result, "low_pct": low, "high_pct": high}
            rows.append(run | tested | numbers)
        if not results:
            rows.append(run)
    columns = (*RUN, "status", "record", "protocol", "result", "low_pct", "high_pct", *NUMBERS)
    return pd.DataFrame(rows, columns=list(columns))


def _run(record: Record) -> dict[str, Any]:
    training = record if isinstance(record, TrainingRecord) else None
    return {
        **{choice: record.choices.get(choice) for choice in CHOICES},
        "run": record.run,
        "seed": record.seed,
        "optim.lr": training and training.science["optim"]["lr"],
        "epochs": training and training.epochs,
        "setting": setting(record),
        "images": record.provenance.data,
        "code": code_of(record),
        "machine": machine_of(record),
        "status": record.status,
        "record": record,
    }


def code_of(record: Record) -> str:
    """Return the fingerprint of the source that trained, 12 hex digits; of several, in the order of
    their epochs."""
    return "+".join(record.codes)


def machine_of(record: Record) -> str:
    """Return the processor with its instructions, where known, or the GPU, with the threads of
    torch."""
    machine = record.provenance.machine
    processor = f"{machine.cpu} ({machine.instructions})" if machine.instructions else machine.cpu
    device = processor if machine.device == "cpu" else machine.device
    return f"{device}, {machine.threads} thread{'s' * (machine.threads != 1)}"
