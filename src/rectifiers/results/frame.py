"""Records as one pandas data frame, and which of them belong into a table.

A record says of which experiment it is; `results/records/experiments.yaml` holds what that
experiment is, so that a run with another learning rate, activation or crop never passes for a row
of the paper. `scripts/report.py tables` makes it."""

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.identity import run_id, without
from rectifiers.runs.record import Member, Record, TrainingRecord
from rectifiers.runs.record_parts import SplitSizes
from rectifiers.runs.sections import MULTISTEP, PLATEAU
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject, value_at

if TYPE_CHECKING:
    from pandas import DataFrame

RESULTS = CONF.parent / "results"
EXPERIMENTS = RESULTS / "records" / "experiments.yaml"
CLAIM = "claim/"  # how the name begins of what answers a claim, and stands in no table
PAPERS_SETTING = "the paper's setting"
PAPERS_DATA = "imagenet"
PAPERS_IMAGES = SplitSizes(train=1_281_167, val=50_000, test=None)
SAME_IMAGES = "chosen and tested on the same images"

# What other data or a smaller run may change; the rest is what an experiment is.
SIZE = (
    *("seed", "data", "model.width", "preprocess.scale", "init.fc_std"),
    "trainer.max_epochs",
)
BY_RUN = ("seed", "data.content", "data.protocol", "data.val_per_class")
# When the rate drops, by the error or after epochs that are given.
DROPS = tuple(f"scheduler.{k}" for k in ("_target_", "max_drops", "patience", "milestones"))
CHOICES = ("model", "activation", "init", "data")
NUMBERS = (
    *("top1_error_pct", "top5_error_pct", "num_images", "split", "multiply_adds"),
    *("ece", "nll", "brier"),
)
COLUMNS = (
    *("run", "experiment", *CHOICES, "seed", "optim.lr", "epochs", "setting", "images", "code"),
    *("machine", "status", "record", "protocol", "result", "low_pct", "high_pct", *NUMBERS),
)


@functools.cache
def known() -> JsonObject:
    """Return `experiments.yaml`: experiments' `arm` and `whole`, protocols' settings by data, and
    the sizes of Table 3's networks."""
    return load_yaml(EXPERIMENTS.read_text())


def described(science: JsonObject) -> dict[str, str]:
    """Return two hashes of a run: what is compared (`arm`), and that at its size (`whole`)."""
    has_drops = value_at(science, "scheduler._target_") in (PLATEAU, MULTISTEP)
    rest = without(science, DROPS) if has_drops else science
    return {"arm": run_id(without(rest, SIZE)), "whole": run_id(without(rest, BY_RUN))}


def experiment_of(choices: Mapping[str, str | None]) -> str | None:
    """Return what a run was made for: `table2/prelu`, or `claim/signal` for a claim."""
    claim = choices.get("claim")
    return f"{CLAIM}{claim}" if claim else choices.get("experiment")


def exclusion_reason(record: Record) -> str | None:
    """Return why a record does not belong into a table, or None."""
    choices, experiments = record.choices, known()["experiments"]
    if experiment_of(choices) is None:
        return "it is of no experiment"
    if choices.get("debug") is not None:
        return f"debug={choices['debug']} measures nothing"
    if choices.get("data") is None:
        return "its choices name no data"

    for part in record.trainings:
        name = str(experiment_of(part.choices))
        if name.startswith(CLAIM):
            return "it is of a claim"
        if name not in experiments:
            return f"its experiment {name} is not known"
        if described(part.science)["arm"] != experiments[name]["arm"]:
            return f"its configuration departs from {name} in more than data, size and length"

    if record.provenance.git_dirty is not False:
        return "its code was not committed"
    if record.provenance.data_pinned is False:
        return "its data were not pinned"
    return protocol_exclusion_reason(record)


def protocol_exclusion_reason(record: Record) -> str | None:
    """Return why a test of the record cannot stand in a table, or None."""
    settings = known()["settings"].get(record.choices.get("data"), {})
    for name, result in record.protocols.items():
        if result.git_dirty:
            return f"{name} was tested by code that was not committed"
        if name in settings and result.settings != settings[name]:
            return f"{name} has other settings than the protocol of that name"
    return None


def setting(record: Record) -> str:
    """Return the data, and in what the run is smaller than the paper's. The networks of Table 3 are
    not named, because they have rows of their own."""
    run = record.trainings[0]
    science, hashes, experiment = run.science, described(run.science), experiment_of(run.choices)
    asked = known()["experiments"].get(str(experiment), {})
    data = record.choices.get("data") or "data of no option"
    is_whole = hashes["whole"] == asked.get("whole")
    if data == PAPERS_DATA and is_whole and run.images == PAPERS_IMAGES:
        return PAPERS_SETTING

    network = ""
    if experiment and hashes["arm"] != asked.get("arm"):
        network = "each arm at its own rate, "
        model = run.choices.get("model")
        if model not in known()["networks"]:
            network = f"{model}, {network}"

    width = science["model"]["width"]
    length = f"{length_of(run)} of {run.images.train:,} images"
    fc_std = ", large fc std" if science["init"].get("fc_std") is None else ""
    protocol = f", {SAME_IMAGES}" if run.images.test is None else ""
    px = science["data"]["crop_px"]

    return f"{data} ({network}width {width:g}, {px} px, {length}{fc_std}{protocol})"


def length_of(run: TrainingRecord | Member) -> str:
    """Return how long a run trains, as in `75 epochs (4,950 steps)`."""
    epochs, batch = run.science["trainer"]["max_epochs"], value_at(run.science, "data.batch_size")
    length = f"{epochs} epoch{'' if epochs == 1 else 's'}"
    if not isinstance(batch, int) or batch < 1:  # a record from elsewhere
        return length
    return f"{length} ({epochs * (run.images.train // batch):,} steps)"


def frame(records: Iterable[Record], only: str | None = None) -> "DataFrame":
    """Return the records as a data frame: a row per run and protocol (`only` one, if given; a run
    without has one row with NaN), with errors in percent and the 95 % interval of the top-1 error
    over test images (Wilson). images: the digest of a run's data. record, result: what a row is
    of."""
    import pandas as pd  # here and not above: it takes a second

    rows = []
    for record in records:
        run = {
            **{choice: record.choices.get(choice) for choice in CHOICES},
            "run": record.run,
            "experiment": experiment_of(record.choices),
            "seed": record.seed,
            "optim.lr": value_at(record.science, "optim.lr"),
            "epochs": getattr(record, "epochs", None),
            "setting": setting(record),
            "images": record.provenance.data,
            "code": code_of(record),
            "machine": machine_of(record),
            "status": record.status,
            "record": record,
        }

        results = {k: v for k, v in record.protocols.items() if only in (None, k)}
        for protocol, result in results.items():
            low, high = error_interval_pct(result.top1_errors, result.num_images)
            numbers = {name: getattr(result, name) for name in NUMBERS}
            tested = {"protocol": protocol, "result": result, "low_pct": low, "high_pct": high}
            rows.append(run | tested | numbers)
        if not results:
            rows.append(run)
    return pd.DataFrame(rows, columns=list(COLUMNS))
