"""The run id: a hash of the part of a run's configuration that can change a number.

A key that has its schema default is left out, so that a new key makes no new names; what reads
`science` takes it by `settings`. A default may therefore never change: see
`tests/runs/test_roles.py`."""

import hashlib
import json
from collections.abc import Iterable

from pydantic_core import PydanticUndefined

from rectifiers.runs.config import KEYS, RunConfig
from rectifiers.runs.role import Role
from rectifiers.runtime.schema import JsonObject, flat, value_at

SEEDS = tuple(name for name, key in KEYS.items() if key.role is Role.SEED)
NOT_SCIENCE = tuple(k for k, key in KEYS.items() if key.role not in (Role.SCIENCE, Role.SEED))
# What `science` leaves out, with the values that it means.
DEFAULTS = {
    name: key.default
    for name, key in KEYS.items()
    if name not in NOT_SCIENCE and key.default is not PydanticUndefined
}
AWAITED = "awaited"  # what stands for the hash of weights until they are read
# Callbacks of Lightning's that look on and change no number.
ONLOOKERS = (
    *("DeviceStatsMonitor", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary"),
    *("RichModelSummary", "RichProgressBar", "TQDMProgressBar"),
)


def science(config: RunConfig) -> JsonObject:
    """Return the keys of a configuration that can change a number and have another value than the
    schema's default."""
    plain = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    kept = without(plain, NOT_SCIENCE)
    if config.init.awaits_weights:
        kept["init"]["from_weights_content"] = AWAITED
    if config.data.protocol == "paper":
        kept["data"].pop("val_per_class", None)  # which it has no use for

    callbacks = kept.pop("callbacks", None) or {}
    acting = {name: each for name, each in callbacks.items() if not _looks_on(each["_target_"])}
    return {**kept, "callbacks": acting} if acting else kept


def settings(science_keys: JsonObject) -> JsonObject:
    """Return the values of `science` by dotted key, with the defaults that it leaves out."""
    return DEFAULTS | flat(science_keys)


def _looks_on(target: str) -> bool:
    module, _, name = target.rpartition(".")
    return name in ONLOOKERS and module.startswith("pytorch_lightning.")


def without(config: JsonObject, keys: Iterable[str]) -> JsonObject:
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


def canonical_json(value: object) -> str:
    """Return the one spelling of `value`: sorted keys, and 1.0 written as 1, so that equal settings
    are equal text."""
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _whole(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def run_id(science_keys: JsonObject) -> str:
    """Return the run id, 12 hex digits, which also names the run's folder."""
    return hashlib.sha256(canonical_json(science_keys).encode()).hexdigest()[:12]


def arm_hash(science_keys: JsonObject, *but: str) -> str:
    """Return the hash of what runs of one arm share, without the dotted keys `but`: all but their
    seeds, and but the weights that the run of the same seed trained, where they start from
    those."""
    arm = without(science_keys, (*SEEDS, *but))
    if value_at(arm, "init.from_weights_content") is not None:
        arm["init"] = {**arm["init"], "from_weights_content": AWAITED}
    return run_id(arm)
