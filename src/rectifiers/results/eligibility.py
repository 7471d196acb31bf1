"""Which records belong into a table, and into which part of it.

A record says of which experiment it is; `experiments.yaml` beside this holds what that experiment
is, so that a run with another learning rate, activation or crop never passes for a row of the
paper. `scripts/report.py claims` makes it."""

import functools
from pathlib import Path
from typing import Any

import yaml

from rectifiers.runs.identity import run_id, without
from rectifiers.runs.record import Record
from rectifiers.runs.record_parts import SplitSizes

PLACE = Path(__file__).with_name("experiments.yaml")
PAPERS_SETTING = "the paper's setting"
CLAIM = "claim/"  # how the experiments begin that answer claims, and stand in no table
PAPERS_DATA, TRAIN_IMAGES, VAL_IMAGES = "imagenet", 1_281_167, 50_000
SAME_IMAGES = "chosen and tested on the same images"

# What other data or a smaller run may change; the rest is what an experiment is.
SIZE = (
    "seed",
    "data",
    "model.width",
    "optim.epochs",
    "optim.patience",
    "optim.drop_epochs",
    "preprocess.scale",
    "init.fc_std",
)
BY_RUN = ("seed", "data.content", "data.protocol", "data.val_per_class", "optim.drop_epochs")


@functools.cache
def known() -> dict[str, Any]:
    """Return `experiments.yaml`: experiments' `arm` and `whole`, claims' arms, protocols' settings
    by data, and networks' sizes."""
    return yaml.safe_load(PLACE.read_text())


def described(science: dict[str, Any]) -> dict[str, str]:
    """Return the two hashes of a run's science: what is compared (`arm`), and that at the size it
    was run (`whole`)."""
    return {"arm": run_id(without(science, SIZE)), "whole": run_id(without(science, BY_RUN))}


def exclusion_reason(record: Record) -> str | None:
    """Return why a record does not belong into a table, or None."""
    choices = record.choices
    if choices.get("experiment") is None:
        return "it is of no experiment"
    if choices.get("debug") is not None:
        return f"debug={choices['debug']} measures nothing"
    if choices.get("data") is None:
        return "its choices name no data"
    for part in record.trainings:
        name = str(part.choices.get("experiment"))
        if name.startswith(CLAIM):
            return "it is of a claim"
        if name not in known()["experiments"]:
            return f"its experiment {name} is not known"
        if described(part.science)["arm"] != known()["experiments"][name]["arm"]:
            return f"its configuration departs from {name} in more than data, size and length"
    if record.provenance.git_dirty is not False:
        return "its code was not committed"
    if record.provenance.data_pinned is False:
        return "its data were not pinned"
    settings = known()["settings"].get(choices["data"], {})
    for name, result in record.protocols.items():
        if result.git_dirty:
            return f"{name} was tested by code that was not committed"
        if name in settings and result.settings != settings[name]:
            return f"{name} has other settings than the protocol of that name"
    return None


def setting(record: Record) -> str:
    """Return the data, and in what the run is smaller than the paper's."""
    run = record.trainings[0]
    science, hashes = run.science, described(run.science)
    experiment = known()["experiments"].get(run.choices.get("experiment"), hashes | {"whole": ""})
    data = record.choices.get("data") or "data of no option"
    is_whole = hashes["whole"] == experiment["whole"]
    paper_images = SplitSizes(train=TRAIN_IMAGES, val=VAL_IMAGES, test=None)
    if data == PAPERS_DATA and is_whole and run.images == paper_images:
        return PAPERS_SETTING
    is_claim = hashes["arm"] != experiment["arm"]
    network = f"{record.choices['model']}, each arm at its own rate, " if is_claim else ""
    width, epochs = science["model"]["width"], science["optim"]["epochs"]
    length = f"{epochs} epoch{'s' * (epochs != 1)} of {run.images.train:,} images"
    protocol = f", {SAME_IMAGES}" if run.images.test is None else ""
    px = science["data"]["crop_px"]
    return f"{data} ({network}width {width:g}, {px} px, {length}{protocol})"
