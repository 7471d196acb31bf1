"""A run's name: a hash of the part of its configuration that can change a number."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from rectifiers.runs.config import RunConfig

# Everything else is science. A new key therefore makes new names until someone decides, here, that
# it must not.
NOT_SCIENCE = (
    "runs_dir",
    "cache_dir",
    "rerun",
    "logger",
    "checkpoint",
    "evaluation",
    "claim",  # what a claim says of a run
    "data.root",
    "data.download",
    "data.store",  # the same pixels in another form
    "data.shard_bytes",
    "data.allow_unpinned",  # what is there has its own hash
    "data.width",  # only the default of model.width
    "data.dense_scales_px",  # only the defaults of protocols
    "data.view_scales_px",
    "compute.accelerator",
    "compute.nodes",
    "compute.devices",
    "compute.timeout_s",
    "compute.workers",
    "compute.threads",
    "compute.compile",
    "compute.channels_last",
    "compute.fused",
    "compute.autotune",
    "compute.activation_checkpointing",
    "optim.drop_epochs_from",  # resolved into optim.drop_epochs before the run is named
)

# Keys that came later, with the value that all runs before them had. They are science where they
# have another one.
LATER = {"data.pad_px": 0, "data.protocol": "paper", "compute.fast": False}

# A function that moved to another module is hashed by its first address, so that its runs keep
# their names.
HASHED_AS = {
    "rectifiers.data.imagenet.source.imagenet": "rectifiers.data.imagenet.imagenet",
    "rectifiers.training.diagnostics.fisher": "rectifiers.training.looking.fisher",
    "rectifiers.training.diagnostics.ranks": "rectifiers.training.looking.ranks",
}


def science(config: RunConfig) -> dict[str, Any]:
    """Return the keys of a configuration that can change a number. Precision is one."""
    whole = config.as_dict()
    if whole["data"].get("protocol", "paper") == "paper":
        whole["data"].pop("val_per_class", None)  # which it has no use for
    as_before = [key for key, value in LATER.items() if _value(whole, key) == value]
    kept = without(whole, (*NOT_SCIENCE, *as_before))
    for settings in kept.values():
        if isinstance(settings, dict) and settings.get("_target_") in HASHED_AS:
            settings["_target_"] = HASHED_AS[settings["_target_"]]
    return kept


def without(config: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a copy without the dotted `keys`, as far as they are there."""
    kept = dict(config)
    for key in keys:
        *parents, leaf = key.split(".")
        node = kept
        for part in parents:
            if not isinstance(node.get(part), dict):
                break
            node[part] = node = dict(node[part])  # what is shared with `config` stays as it is
        else:
            node.pop(leaf, None)
    return kept


def _value(config: dict[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def canonical_json(value: Any) -> str:
    """Return the one spelling of `value`: sorted keys, and 1.0 written as 1, so that equal settings
    are equal text."""
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def run_id(science_keys: dict[str, Any]) -> str:
    """Return 12 hex digits that name the run."""
    return hashlib.sha256(canonical_json(science_keys).encode()).hexdigest()[:12]
