"""From a configuration's groups to the parts of a run."""

import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

from rectifiers.data.module import ImageData
from rectifiers.data.preprocess import PixelMoments, Preprocess, fit
from rectifiers.data.sources import Source
from rectifiers.data.statistics import load_or_fit, statistics_key
from rectifiers.data.transforms import Geometry
from rectifiers.nn.initializers import LayerReport, initialize
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import Row, expand
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import check_call
from rectifiers.training.module import SgdSettings
from rectifiers.training.schedule import StepRule

GEOMETRY_KEYS = ("resize_px", "crop_px", "flip", "scale_jitter_px", "color_sigma", "color_scale")
PREPARATION_KEYS = ("store", "shard_bytes", "allow_unpinned")
PROTOCOL_KEYS = ("dense_scales_px", "view_scales_px")
EVERY_SOURCE_KEYS = (*GEOMETRY_KEYS, *PREPARATION_KEYS, *PROTOCOL_KEYS, "width", "content", "bad_images")
EVERY_INIT_KEYS = ("bias", "first_layer_linear", "fc_std")
EVERY_PREPROCESS_KEYS = ("scale",)


def configured(group: str, settings: dict[str, Any], apart: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Return the function that `settings` name by `_target_`, with the other settings as its keywords.

    apart: keys that belong to the group and not to the function.

    Raises:
        InputError: where the target cannot be imported, does not take a setting, or takes another type.
    """
    options = {key: value for key, value in settings.items() if key not in (*apart, "_target_")}
    target = settings.get("_target_")
    try:
        function = pkgutil.resolve_name(str(target))
        inspect.signature(function)
    except (ImportError, AttributeError, ValueError, TypeError) as fault:
        raise InputError(f"{group}._target_={target} cannot be imported; give the dotted name of a function") from fault
    check_call(function, options, f"{group}.")
    return partial(function, **options)


def _called_with(group: str, settings: dict[str, Any], function: Callable[..., Any], names: tuple[str, ...]) -> None:
    """Refuse a function that cannot be called with `names` in order; what its own code raises stays as it is."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError as fault:
        raise InputError(
            f"{group}._target_={settings['_target_']} cannot be called with ({', '.join(names)}): {fault}; "
            "give a function that takes them"
        ) from fault


def build_source(config: dict[str, Any]) -> Source:
    """Open the data; `data.content`, where the group has it, is checked or filled in with the data's hash."""
    settings = config["data"]
    source: Source = configured("data", settings, EVERY_SOURCE_KEYS)()
    if settings["color_sigma"] and source.channels != 3:
        raise InputError(
            f"data.color_sigma={settings['color_sigma']} shifts red, green and blue, and data={source.name} has "
            f"{source.channels} channel; give data.color_sigma=0"
        )
    if source.pinned is False and not settings["allow_unpinned"]:
        raise InputError(
            f"data.root={settings['root']} has a manifest that no committed dvc.lock names, nor one just made of the "
            "official archives; prepare it by dvc repro and commit the lock, or point data.root to the pinned data, or "
            "give data.allow_unpinned=true, which the record will say"
        )
    if "content" in settings:
        if settings["content"] not in (None, source.digest):
            raise InputError(
                f"data.content={settings['content']} is not the hash of the data, which is {source.digest}; "
                "point data.root to the right files, or give data.content=null to name the run by what is there"
            )
        settings["content"] = source.digest
    return source


def build_geometry(config: dict[str, Any]) -> Geometry:
    """Return the sizes that images are brought to, and how training images are varied."""
    settings = {key: config["data"][key] for key in GEOMETRY_KEYS if key in config["data"]}
    jitter = settings.pop("scale_jitter_px")
    return Geometry(**settings, scale_jitter_px=None if jitter is None else (jitter[0], jitter[1]))


def build_data(config: dict[str, Any], source: Source, geometry: Geometry) -> ImageData:
    """Return this process' share of the data, in batches."""
    return ImageData(
        source,
        geometry,
        global_batch=config["optim"]["global_batch"],
        seed=config["seed"],
        workers=config["compute"]["workers"],
        timeout_s=config["compute"]["timeout_s"],
        pinned=config["compute"]["accelerator"] == "gpu",
        skip_bad=config["data"].get("bad_images") == "skip",
        here=world(),
    )


def build_preprocess(config: dict[str, Any], data: ImageData) -> tuple[Preprocess, str]:
    """Return the preprocessing, fitted to the training split now or earlier, and the hash of its inputs."""
    settings, geometry = config["preprocess"], data.geometry
    key = statistics_key(
        {
            "train": data.source.train_digest,
            "resize_px": geometry.resize_px,
            "crop_px": geometry.crop_px,
            "preprocess": settings,
        }
    )
    method = configured("preprocess", settings, EVERY_PREPROCESS_KEYS)

    def fit_now() -> Preprocess:
        with progress_bar("learning preprocess", len(data.source.train.labels) // world().size) as seen:

            def batches() -> Iterator[Tensor]:
                for images in data.statistics_batches():
                    yield images
                    seen(len(images))

            return fit(method, PixelMoments(batches), settings["scale"])

    cache = Path(config["cache_dir"]) / "statistics"
    return load_or_fit(cache, key, fit_now, is_whole=lambda: not data.unread), key


def build_layers(config: dict[str, Any], classes: int) -> tuple[Row, ...]:
    """Return the model's rows at its width."""
    return expand(config["model"]["rows"], width=config["model"]["width"], classes=classes)


def build_network(config: dict[str, Any], source: Source, flat_input: int | None) -> tuple[Network, list[LayerReport]]:
    """Build and initialise the network; return it with its init report."""
    chosen = config["activation"]
    factory = configured("activation", chosen)
    _called_with("activation", chosen, factory, ("channels",))

    def activation(channels: int) -> nn.Module:
        made = factory(channels)
        if not isinstance(made, nn.Module):
            raise InputError(f"activation._target_={chosen['_target_']} gives {made!r}; it must return a torch module")
        return made

    network = Network(
        build_layers(config, len(source.classes)),
        activation,
        channels=source.channels,
        input_px=config["data"]["crop_px"],
        norm=config["model"]["norm"],
        flat_input=flat_input,
    )
    settings = config["init"]
    rule = configured("init", settings, EVERY_INIT_KEYS)
    _called_with("init", settings, rule, ("weight", "layer", "generator"))
    init_report = initialize(
        network.sites(),
        rule,
        seed=config["seed"],
        name=settings["_target_"].rpartition(".")[2],
        **{key: settings[key] for key in EVERY_INIT_KEYS},
    )
    for entry in init_report:
        if not isinstance(entry.std_asked, int | float) or not math.isfinite(entry.std_asked):
            raise InputError(
                f"init._target_={settings['_target_']} returns {entry.std_asked} for {entry.layer}; "
                "it must return the std that it asks for, a finite number"
            )
    if config["compute"]["channels_last"]:
        network.to(memory_format=torch.channels_last)  # what the weights are, convolutions make of maps
    network.activation_checkpointing = config["compute"]["activation_checkpointing"]
    return network, init_report


def build_sgd_settings(config: dict[str, Any]) -> SgdSettings:
    """Return the optimiser's numbers; what a choice of `conf/optim/` does not have keeps its default."""
    known = SgdSettings.__dataclass_fields__.keys() & config["optim"].keys()
    return SgdSettings(**{key: config["optim"][key] for key in known}, fused=config["compute"]["fused"])


def build_interventions(config: dict[str, Any]) -> list[Callback]:
    """Return what is done to the network while it trains, or looks on: nothing, unless `callbacks=` is chosen."""
    settings = config.get("callbacks")
    return [configured("callbacks", settings)()] if settings else []


def build_rule(config: dict[str, Any]) -> StepRule:
    """Return the step rule: fixed epochs where there are some, else patience."""
    optim = config["optim"]
    fixed = optim["drop_epochs"]
    return StepRule(optim["patience"], optim["max_drops"], None if fixed is None else tuple(fixed))
