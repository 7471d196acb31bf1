"""A run's name: a hash of the part of its configuration that can change a number.

What is hashed has the layout of the first runs, so that a run keeps its name when keys are renamed.
`science` is the one place that translates."""

import hashlib
import json
from collections.abc import Iterable

from rectifiers.runs.config import RunConfig
from rectifiers.runtime.schema import JsonObject, value_at

# All other keys affect results and are part of the run id. A new key therefore makes new ids until
# someone decides, here, that it must not.
NOT_SCIENCE = (
    *("runs_dir", "cache_dir", "rerun", "tags", "ckpt_path", "logger", "checkpoint", "evaluation"),
    "weights",  # weights_content names what the file holds
    *("threads", "compile", "channels_last", "activation_checkpointing", "timeout_s"),
    "claim",  # what a claim says of a run
    *("data.root", "data.download", "data.num_workers"),
    "data.size",  # of an archive: data.content names the photographs
    *("data.store", "data.shard_bytes"),  # the same pixels in another form
    "data.allow_unpinned",  # what is there has its own hash
    # the defaults of model.width, scheduler.patience and protocols
    *("data.width", "data.patience", "data.dense_scales_px", "data.view_scales_px"),
    "optim.fused",
    *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.benchmark"),
    *("trainer.log_every_n_steps", "trainer.enable_progress_bar", "trainer.enable_model_summary"),
    *("trainer.profiler", "trainer.detect_anomaly"),
)

# Callbacks that look on and change no number.
ONLOOKERS = (
    *("DeviceStatsMonitor", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary"),
    *("RichModelSummary", "RichProgressBar", "TQDMProgressBar"),
)

# Keys that came later, with the value that all runs before them had. They are part of the id where
# they have another one.
LATER = {
    "data.pad_px": 0,
    "data.protocol": "paper",
    "fast": False,
    "init.mode": "closed_form",
    "scheduler.warmup_epochs": 0,
}

DIAGNOSTICS, INTERVENTIONS = "rectifiers.training.diagnostics", "rectifiers.training.interventions"
# A function that moved, or became a class, is hashed by its first address.
MOVED = {
    "rectifiers.activations.by_layer": "rectifiers.nn.by_layer.by_layer",
    "rectifiers.models.resnet.resnet": "rectifiers.nn.networks.residual.resnet",
    "rectifiers.models.shortcuts.mlp_shortcuts": "rectifiers.nn.networks.shortcuts.mlp_shortcuts",
    "rectifiers.models.external.timm_model": "rectifiers.nn.networks.timm.timm_model",
    f"{DIAGNOSTICS}.EquivarianceMeasure": f"{DIAGNOSTICS}.equivariance",
    f"{DIAGNOSTICS}.FisherMeasure": f"{DIAGNOSTICS}.fisher",
    f"{DIAGNOSTICS}.RankMeasure": f"{DIAGNOSTICS}.ranks",
    f"{DIAGNOSTICS}.ZigzagMeasure": f"{DIAGNOSTICS}.zigzag",
    f"{INTERVENTIONS}.Greedy": f"{INTERVENTIONS}.greedy",
    f"{INTERVENTIONS}.RedrawLayers": f"{INTERVENTIONS}.redraw_layers",
    f"{INTERVENTIONS}.ReviveDead": f"{INTERVENTIONS}.revive_dead",
    f"{DIAGNOSTICS}.fisher": "rectifiers.training.looking.fisher",
    f"{DIAGNOSTICS}.ranks": "rectifiers.training.looking.ranks",
}

# Where the first layout had a key: its place today. An optimiser and a scheduler by these targets
# are hashed without them.
RENAMED = {
    "optim.global_batch": "data.batch_size",
    "optim.epochs": "trainer.max_epochs",
    "optim.drop_factor": "scheduler.drop_factor",
    "optim.max_drops": "scheduler.max_drops",
    "optim.patience": "scheduler.patience",
    "optim.drop_epochs": "scheduler.milestones",
    "compute.precision": "trainer.precision",
    "compute.fast": "fast",
}
FIRST_OPTIMISER = "torch.optim.SGD"
PLATEAU, MULTISTEP = "rectifiers.training.optim.plateau", "rectifiers.training.optim.multistep"


def science(config: RunConfig) -> JsonObject:
    """Return the keys of a configuration that can change a number, in the layout of the first
    runs."""
    plain = config.as_dict()
    if plain["data"].get("protocol", "paper") == "paper":
        plain["data"].pop("val_per_class", None)  # which it has no use for
    defaults = [key for key, value in LATER.items() if value_at(plain, key) == value]
    kept = without(plain, (*NOT_SCIENCE, *defaults))
    kept["callbacks"] = _first_callbacks(kept.get("callbacks") or {})
    for settings in kept.values():
        while isinstance(settings, dict) and settings.get("_target_") in MOVED:
            settings["_target_"] = MOVED[settings["_target_"]]
    if config.scheduler.target in (PLATEAU, MULTISTEP):
        # both were one rule, of which `milestones` was null or a list
        usual = {"max_drops": 2, "patience": config.data.patience, "milestones": None}
        kept["scheduler"] = usual | kept["scheduler"]
        del kept["scheduler"]["_target_"]
    for first, today in RENAMED.items():
        _move(kept, today, first)
    if kept["optim"]["_target_"] == FIRST_OPTIMISER:
        del kept["optim"]["_target_"]
    for section in ("trainer", "scheduler", "callbacks"):
        if not kept[section]:
            del kept[section]
    return kept


def _first_callbacks(callbacks: JsonObject) -> JsonObject:
    """Return the callbacks that can change a number, as the first layout had them: one of ours
    without its name."""
    acting = {
        name: settings
        for name, settings in callbacks.items()
        if settings["_target_"].rpartition(".")[2] not in ONLOOKERS
        or not settings["_target_"].startswith("pytorch_lightning.")
    }
    if len(acting) == 1:
        (only,) = acting.values()
        if only["_target_"].startswith("rectifiers."):
            return dict(only)
    for settings in acting.values():  # beside others, the functions kept their second address
        settings["_target_"] = MOVED.get(settings["_target_"], settings["_target_"])
    return acting


def _move(config: JsonObject, old: str, new: str) -> None:
    """Move the value of a dotted key, where there is one."""
    section, _, leaf = old.rpartition(".")
    node = config.get(section, {}) if section else config
    if leaf in node:
        place, _, name = new.rpartition(".")
        config.setdefault(place, {})[name] = node.pop(leaf)


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
    """Return 12 hex digits that name the run."""
    return hashlib.sha256(canonical_json(science_keys).encode()).hexdigest()[:12]
