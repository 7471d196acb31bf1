"""What a user may ask for: the checks that need no torch, and the one error that a user's input raises."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rectifiers.data.limits import LARGEST_PX
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


@dataclass(frozen=True)
class Number:
    """A numeric key: its type and the range in which a value makes sense (`above` and `below` exclude the bound)."""

    key: str
    kind: type[int] | type[float]
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    optional: bool = False

    def fault(self, value: Any) -> str | None:
        """Return what is wrong with `value`, or None."""
        if value is None:
            return None if self.optional else f"{self.key} has no value; {self.remedy()}"
        right_type = isinstance(value, int) or (self.kind is float and isinstance(value, float))
        if isinstance(value, bool) or not right_type or not self._within(value):
            return f"{self.key}={value} is not usable; {self.remedy()}"
        return None

    def _within(self, value: float) -> bool:
        return (
            value == value
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
            and abs(value) != float("inf")
        )

    def remedy(self) -> str:
        """Return the sentence's second half: what to give instead."""
        bounds = [
            ("at least", self.least),
            ("above", self.above),
            ("at most", self.most),
            ("below", self.below),
        ]
        wanted = " and ".join(f"{word} {_plain(bound)}" for word, bound in bounds if bound is not None)
        noun = "a whole number" if self.kind is int else "a number"
        return f"give {noun} {wanted}".rstrip() + (" (or null)" if self.optional else "")


LARGEST = 1e30  # of a number that float32 has to hold

NUMBERS = (
    Number("seed", int, least=0),
    Number("model.width", float, above=0, most=64),
    Number("model.dropout", float, least=0, below=1),
    Number("data.shard_bytes", int, least=1, most=2**40),
    Number("data.resize_px", int, least=1, most=LARGEST_PX),
    Number("data.crop_px", int, least=1),
    Number("data.color_sigma", float, least=0, most=10),
    Number("data.split_seed", int, least=0, most=2**32 - 1),
    Number("data.val_fraction", float, above=0, below=1),
    Number("preprocess.epsilon", float, least=0, most=LARGEST),
    Number("preprocess.k", int, least=1, optional=True),
    Number("init.std", float, least=0, most=LARGEST, optional=True),
    Number("init.beta", float, above=0, most=LARGEST),
    Number("init.value", float, least=-LARGEST, most=LARGEST),
    Number("optim.lr", float, above=0, most=LARGEST),
    Number("optim.momentum", float, least=0, below=1),
    Number("optim.weight_decay", float, least=0, most=LARGEST),
    Number("optim.slope_weight_decay", float, least=0, most=LARGEST),
    Number("optim.bias_lr_factor", float, above=0, most=LARGEST),
    Number("optim.global_batch", int, least=1, most=1_000_000),
    Number("optim.epochs", int, least=1, most=100_000),
    Number("optim.drop_factor", float, above=1, most=LARGEST),
    Number("optim.max_drops", int, least=0),
    Number("optim.patience", int, least=1),
    Number("checkpoint.every_n_steps", int, least=1, optional=True),
    Number("logger.finish_timeout_s", float, above=0, most=86400),
    Number("compute.nodes", int, least=1, optional=True),
    Number("compute.devices", int, least=1, optional=True),
    Number("compute.timeout_s", float, above=0, most=86400),
    Number("compute.workers", int, least=0, most=1024),
    Number("compute.threads", int, least=1, most=4096, optional=True),
)

GROUPS = ("activation", "init", "model", "preprocess", "optim", "evaluation", "compute", "logger", "data")

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "model.norm": ("none", "batch"),
    "compute.accelerator": ("cpu", "gpu"),
    "compute.precision": ("32-true", "bf16-mixed", "16-mixed", "64-true"),
    "compute.compile": (False, True),
    "compute.channels_last": (False, True),
    "compute.fused": (False, True),
    "compute.activation_checkpointing": (False, True),
    "data.flip": (False, True),
    "evaluation.keep_scores": (False, True),
    "data.store": ("tiled", "plain"),
    "data.allow_unpinned": (False, True),
    "data.color_scale": ("eigenvalues", "roots"),
    "data.bad_images": ("error", "skip"),
    "init.first_layer_linear": (False, True),
    "logger.name": ("csv", "wandb", "none"),
    "logger.mode": ("auto", "offline", "online"),
    "logger.log_checkpoint": (False, True),
    "rerun": (False, True),
}


FORBIDDEN_IN_PROJECTS = "/\\#?%:"  # by W&B


def project_fault(name: Any) -> str | None:
    """Return what is wrong with a W&B project's name, or None."""
    usable = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 128
    if usable and not set(name) & set(FORBIDDEN_IN_PROJECTS):
        return None
    return f"logger.project={name} is not usable; give 1 to 128 characters without {' '.join(FORBIDDEN_IN_PROJECTS)}"


def _lookup(config: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False, None
        node = node[part]
    return True, node


def protocols(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of each protocol that is asked for, by name."""
    return {name: settings for name, settings in (config.get("evaluation") or {}).items() if name != "keep_scores"}


def options(group: str) -> str:
    """Return the files that `group` can be chosen from, in words."""
    place = CONF / group
    return ", ".join(sorted(path.relative_to(place).with_suffix("").as_posix() for path in place.rglob("*.yaml")))


def check(config: Mapping[str, Any]) -> None:
    """Check the values that can be judged before anything is loaded.

    Keys that a chosen group does not have are skipped (only `preprocess=zca` has an epsilon).

    Raises:
        InputError: for the first value that cannot be used; the message names key, value and remedy.
    """
    for group in GROUPS:
        if not (protocols(config) if group == "evaluation" else config.get(group)):
            raise InputError(f"{group} is not chosen; give {group}=<option> of: {options(group)}")
    for name, protocol in protocols(config).items():
        if not isinstance(protocol, Mapping):
            raise InputError(
                f"evaluation.{name}={protocol} is not usable; give evaluation=[<option>,...] of: "
                f"{options('evaluation')}"
            )
    for key in ("runs_dir", "cache_dir"):
        if not isinstance(config[key], str) or not config[key]:
            raise InputError(f"{key}={config[key]} is not usable; give a folder's path, quoted where it is a number")
    for number in NUMBERS:
        present, value = _lookup(config, number.key)
        fault = number.fault(value) if present else None
        if fault:
            raise InputError(fault)
    for key, choices in CHOICES.items():
        present, value = _lookup(config, key)
        if present and (value not in choices or isinstance(value, bool) != isinstance(choices[0], bool)):
            known = ", ".join(str(choice).lower() if isinstance(choice, bool) else choice for choice in choices)
            raise InputError(f"{key}={value} is not known; choose one of: {known}")
    if config["logger"]["name"] == "wandb" and (fault := project_fault(config["logger"]["project"])) is not None:
        raise InputError(fault)
    scale = config["preprocess"]["scale"]
    if scale != "unit_rms" and Number("preprocess.scale", float, above=0, most=LARGEST).fault(scale):
        raise InputError(
            f"preprocess.scale={scale} is not usable; give unit_rms or a number above 0 and at most {LARGEST:g}"
        )
    bias = config["init"]["bias"]
    fault = Number("init.bias", float, least=-LARGEST, most=LARGEST).fault(bias)
    if bias != "torch_default" and fault:
        raise InputError(f"{fault}, or torch_default")
    stds = config["init"]["fc_std"]
    usable = isinstance(stds, list) and not any(Number("", float, above=0, most=LARGEST).fault(std) for std in stds)
    if stds is not None and not usable:
        raise InputError(
            f"init.fc_std={stds} is not usable; give numbers above 0 and at most {LARGEST:g}, such as "
            "[0.01,0.01,0.001], or null"
        )
    if not isinstance(config["model"]["rows"], list):
        raise InputError(
            f"model.rows={config['model']['rows']} is not usable; rows are given in conf/model/<name>.yaml"
        )
    resize_px, crop_px = config["data"]["resize_px"], config["data"]["crop_px"]
    if crop_px > resize_px:
        raise InputError(
            f"data.crop_px={crop_px} is larger than data.resize_px={resize_px}; "
            "a crop is cut from the resized image: lower data.crop_px or raise data.resize_px"
        )
    jitter = config["data"]["scale_jitter_px"]
    whole = isinstance(jitter, list) and len(jitter) == 2 and all(type(px) is int for px in jitter)
    if jitter is not None and not (whole and crop_px <= jitter[0] <= jitter[1] <= LARGEST_PX):
        raise InputError(
            f"data.scale_jitter_px={jitter} is not usable; give a range such as [256,512] that starts at "
            f"data.crop_px={crop_px} or above, or null"
        )
    maps = any("conv" in row for row in config["model"]["rows"] if isinstance(row, Mapping))
    if config["compute"]["activation_checkpointing"] and config["model"]["norm"] == "batch" and maps:
        raise InputError(
            "compute.activation_checkpointing=true computes maps twice, and model.norm=batch would count every batch "
            "twice in its running statistics; give compute.activation_checkpointing=false or model.norm=none"
        )
    drops = config["optim"]["drop_epochs"]
    if drops is not None:
        ascending = isinstance(drops, list) and all(type(e) is int and e >= 1 for e in drops)
        if not ascending or sorted(set(drops)) != drops:
            raise InputError(f"optim.drop_epochs={drops} is not usable; give ascending epochs such as [30,60], or null")
        if drops and drops[-1] > config["optim"]["epochs"] and config["optim"]["drop_epochs_from"] is None:
            raise InputError(
                f"optim.drop_epochs={drops} goes beyond the end of the run, optim.epochs={config['optim']['epochs']}; "
                "give earlier epochs, or raise optim.epochs"
            )
