"""Records that are made up, and whole: what is not given follows from what is."""

import copy
import functools
import json
from typing import Any

import yaml

from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id
from rectifiers.runs.record import EnsembleRecord, Record, TrainingRecord

PARTS = yaml.safe_load("""
science:
  {seed: 0, data: {crop_px: 8}, model: {width: 1, norm: none}, trainer: {max_epochs: 3}, init: {},
   activation: {}, preprocess: {}}
provenance:
  {code: c0de, git_sha: "0123456789", git_dirty: false, lock: 10c, data: same, data_pinned: null,
   statistics: 57a7, versions: {torch: "2"}, machine: {system: Linux, cpu: a processor,
   instructions: null, cores: 2, threads: 1, device: cpu}}
network:
  {depth: 14, input_px: 8, channels: 3, classes: 10, parameters: 1100, slopes: 100,
   multiply_adds: 10}
layer:
  {layer: conv1, shape: [5, 9], fan_in: 9, fan_out: 5, activation_before: null,
   activation_after: ReLU, forward_gain: 1.4142135623730951, backward_gain: 1.4142135623730951,
   rule: he, std_asked: 0.5, std_drawn: 0.5, mean_drawn: 0.0, bias: 0.0}
tested:
  {by_scale: {}, nll: 1.0, brier: 0.5, ece: 0.1, split: val, settings: {}, multiply_adds: 10,
   images_per_second: 100.0, seconds: 0.1, scores: null, code: c0de, git_sha: "0123456789",
   git_dirty: false}
epoch:
  {lr: 0.01, train_loss: 1.0, val/loss: 1.0, val/top1_error_pct: 50.0, val/top5_error_pct: 5.0,
   images_per_second: 1000.0, seconds: 0.5}
training:
  {schema_version: 4, kind: training, status: finished, diverged: null, overrides: [seed=0],
   choices: {}, compute: {}, protocols: {}, class_names: null, init_report: [], warnings: [],
   slopes: {}, drop_epochs: [], images_per_second: 1000.5, wall_s: 1.5, codes: [c0de]}
""")
SCIENCE, PROVENANCE, NETWORK, LAYER = (
    PARTS[name] for name in ("science", "provenance", "network", "layer")
)


def errors(correct: int, num_images: int, top5_correct: int | None = None) -> dict[str, Any]:
    """Counts and the percentages that follow from them; all in the first five where nothing else is
    said."""
    in_five = num_images if top5_correct is None else top5_correct
    return {
        "num_images": num_images,
        "top1_correct": correct,
        "top1_error_pct": 100 * (num_images - correct) / num_images,
        "top5_correct": in_five,
        "top5_error_pct": 100 * (num_images - in_five) / num_images,
    }


def result(correct: int, num_images: int, top5_correct: int | None = None, **more: Any) -> Any:
    """A protocol's result whose first images are correct."""
    padding = -num_images % 4
    bits = ((1 << correct) - 1) << (num_images - correct + padding)
    mask = {"correct_mask": f"{bits:0{(num_images + padding) // 4}x}"}
    counts = errors(correct, num_images, top5_correct)
    return counts | mask | copy.deepcopy(PARTS["tested"]) | more


def epoch(number: int, **more: float | None) -> dict[str, Any]:
    """An epoch's numbers."""
    return {"epoch": number} | PARTS["epoch"] | more


def training_json(**changes: Any) -> dict[str, Any]:
    """A training's record as JSON; its history and its name follow from its science, where they are
    not given."""
    science = changes.get("science", SCIENCE)
    epochs = science["trainer"]["max_epochs"]
    tested = next((found["num_images"] for found in changes.get("protocols", {}).values()), 50)
    images = {"train": 100, "val": tested, "test": None}  # of the paper's protocol
    own = {"run": run_id(science), "science": science, "images": images, "network": NETWORK}
    own |= {"history": [epoch(i + 1) for i in range(epochs)], "provenance": PROVENANCE}
    own |= {"epochs": len(changes.get("history", range(epochs)))}
    return copy.deepcopy(PARTS["training"] | own | changes)


def training(**changes: Any) -> TrainingRecord:
    """A training's record."""
    found = parsed(training_json(**changes))
    assert isinstance(found, TrainingRecord)
    return found


def diverged(**changes: Any) -> TrainingRecord:
    """The record of a training that diverged in its first epoch, or after the `history` that is
    given."""
    lost = {"status": "diverged", "diverged": {"step": 7, "layer": "conv2"}, "history": []}
    return training(**lost | {"protocols": {}, "images_per_second": None} | changes)


def ensemble(*members: TrainingRecord, **changes: Any) -> EnsembleRecord:
    """An ensemble's record; its results are those of its first member where they are not given."""
    parts = sorted(members, key=lambda member: member.run)
    science = {"members": [part.run for part in parts]}
    digests = {"member_scores": [None] * len(parts)}
    known = {"run", "choices", "science", "images"}
    whole = {
        key: PARTS["training"][key] for key in ("schema_version", "status", "choices", "codes")
    }
    whole |= {"kind": "ensemble", "run": run_id(science), "science": science}
    whole |= {"members": [part.model_dump(include=known) for part in parts]}
    results = {name: r.model_dump() | digests for name, r in members[0].protocols.items()}
    whole |= {"protocols": results, "provenance": PROVENANCE}
    found = parsed(whole | changes)
    assert isinstance(found, EnsembleRecord)
    return found


def altered(record: Record, changes: dict[str, Any]) -> Any:
    """A copy whose dotted keys have other values; its name, its epochs and what it was tested on
    follow from them."""
    whole = record.model_dump()
    for key, value in changes.items():
        *parents, leaf = key.split(".")
        functools.reduce(lambda node, part: node[part], parents, whole)[leaf] = value
    if isinstance(record, TrainingRecord):
        whole["history"] = whole["history"][: whole["science"]["trainer"]["max_epochs"]]
        whole["epochs"] = len(whole["history"])
        for tested in whole["protocols"].values():
            whole["images"][tested["split"]] = tested["num_images"]
    return parsed(whole | {"run": run_id(whole["science"])})


def parsed(whole: dict[str, Any]) -> Record:
    """The record of what would be written."""
    return records.parse(json.dumps(whole))
