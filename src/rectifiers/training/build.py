"""From a configuration to the parts of a run."""

import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from rectifiers.nn.initializers import LayerReport, initialize, warn_of_drift
from rectifiers.nn.networks.network import Network
from rectifiers.runs.config import Data, RunConfig, Target
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record_parts import Provenance
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.distributed import SINGLE_PROCESS, World, run_on_all_ranks
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import check_call
from rectifiers.runtime.signals import interruptible
from rectifiers.training.module import Classifier

# What the function of a group is called with, beside its own settings.
CALLED_WITH = {
    "activation": ("channels",),
    "init": ("weight", "layer", "generator"),
    "preprocess": ("moments",),
    "evaluation": ("crop_px",),
    "data": (),
    "callbacks": (),
}


@dataclass(frozen=True)
class Run:
    """A run that is built: what it is, where it lies, this process' place in it, and its parts."""

    config: RunConfig
    folder: Path
    here: World
    source: Source
    data: ImageData
    preprocess: Preprocess
    network: Network
    init_report: list[LayerReport]
    classifier: Classifier
    warnings: list[str]
    provenance: Provenance


def build(config: RunConfig, source: Source, folder: Path, here: World) -> Run:
    """Return the run of `folder` as it is before its training, on every rank.

    Raises:
        InputError: where its parts do not fit together: a map without a position, more processes than images ...
    """
    data = run_on_all_ranks(lambda: build_data(config, source, here))
    preprocess, statistics_hash = build_preprocess(config, data)
    network, init_report = run_on_all_ranks(lambda: build_network(config, source, preprocess.flat_output))
    drift = warn_of_drift(network.sites()) if config.model.norm == "none" else None
    device = torch.cuda.get_device_name() if config.compute.accelerator == "gpu" else "cpu"
    origin = provenance(source.digest, statistics_hash, device, torch.get_num_threads(), source.pinned)
    classifier = Classifier(
        network,
        preprocess,
        config.optim,
        fused=config.compute.fused,
        classes=len(source.classes),
        seed=config.seed,
        run=folder.name,
        code=origin.code,
    )
    if config.compute.precision == "64-true":
        classifier.double()  # Lightning would, after weights of a checkpoint were rounded to single precision
    return Run(
        config,
        folder,
        here,
        source,
        data,
        preprocess,
        network,
        init_report,
        classifier,
        warnings=[] if drift is None else [drift],
        provenance=origin,
    )


def import_function(key: str, target: Target) -> Callable[..., Any]:
    """Return the function that `target`, the value of `key`, names, with its settings as keywords.

    Raises:
        InputError: where it cannot be imported, does not take a setting or its value, or is of another kind.
    """
    try:
        function = pkgutil.resolve_name(target.target)
        inspect.signature(function)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f"{key}._target_={target.target} cannot be imported; give the dotted name of a function"
        ) from error
    check_call(function, target.options, f"{key}.")
    configured = partial(function, **target.options)
    names = CALLED_WITH[key.partition(".")[0]]
    try:
        inspect.signature(configured).bind(*names)
    except TypeError as error:
        raise InputError(
            f"{key}._target_={target.target} cannot be called with ({', '.join(names)}): {error}; "
            "give a function that takes them"
        ) from error
    return configured


def check_functions(config: RunConfig) -> None:
    """Import every function that `config` names and check its settings, which needs no data.

    Raises:
        InputError: for the first one that cannot be used.
    """
    for key, target in config.targets().items():
        import_function(key, target)


def open_source(settings: Data) -> Source:
    """Open the data.

    Raises:
        InputError: where they are not there, or not what `settings` say of them.
    """
    with interruptible("while the data was opened"):
        source: Source = import_function("data", settings)()
    if settings.color_sigma and source.channels != 3:
        raise InputError(
            f"data.color_sigma={settings.color_sigma} shifts red, green and blue, and data={source.name} has "
            f"{source.channels} channel; give data.color_sigma=0"
        )
    if source.pinned is False and not settings.allow_unpinned:
        raise InputError(
            f"data.root={settings.options['root']} has a manifest that no committed dvc.lock names, nor one just made "
            "of the official archives; prepare it by dvc repro and commit the lock, or point data.root to the pinned "
            "data, or give data.allow_unpinned=true, which the record will say"
        )
    if settings.content not in (None, source.digest):
        raise InputError(
            f"data.content={settings.content} is not the hash of the data, which is {source.digest}; point data.root "
            "to the right files, or give data.content=null to name the run by what is there"
        )
    return source


def build_data(config: RunConfig, source: Source, here: World = SINGLE_PROCESS) -> ImageData:
    """Return this process' share of the data, in batches."""
    settings, compute = config.data, config.compute
    geometry = Geometry(
        resize_px=settings.resize_px,
        crop_px=settings.crop_px,
        flip=settings.flip,
        scale_jitter_px=settings.scale_jitter_px,
        color_sigma=settings.color_sigma,
        color_scale=settings.color_scale,
    )
    return ImageData(
        source,
        geometry,
        global_batch=config.optim.global_batch,
        seed=config.seed,
        workers=compute.workers,
        timeout_s=compute.timeout_s,
        pinned=compute.accelerator == "gpu",
        skip_bad=settings.bad_images == "skip",
        here=here,
    )


def build_preprocess(config: RunConfig, data: ImageData) -> tuple[Preprocess, str]:
    """Return the preprocessing, fitted to the training split now or earlier, and the hash of its inputs."""
    settings, geometry = config.preprocess, data.geometry
    key = statistics_key(
        {
            "train": data.source.train_digest,
            "resize_px": geometry.resize_px,
            "crop_px": geometry.crop_px,
            "preprocess": settings.as_dict(),
        }
    )
    method = import_function("preprocess", settings)

    def fit_now() -> Preprocess:
        with progress_bar("fitting the preprocessing", len(data.source.train.labels) // data.here.size) as seen:

            def batches() -> Iterator[Tensor]:
                for images in data.statistics_batches():
                    yield images
                    seen(len(images))

            return fit(method, PixelMoments(batches), settings.scale)

    cache = config.cache_dir / "statistics"
    return load_or_fit(cache, key, fit_now, is_whole=lambda: not data.unread), key


def build_network(config: RunConfig, source: Source, flat_input: int | None) -> tuple[Network, list[LayerReport]]:
    """Build and initialise the network; return it with its init report."""
    factory, rule = import_function("activation", config.activation), import_function("init", config.init)

    def activation(channels: int) -> nn.Module:
        made = factory(channels)
        if not isinstance(made, nn.Module):
            raise InputError(
                f"activation._target_={config.activation.target} gives {made!r}; it must return a torch module"
            )
        return made

    network = Network(
        config.model.layers(len(source.classes)),
        activation,
        channels=source.channels,
        input_px=config.data.crop_px,
        norm=config.model.norm,
        flat_input=flat_input,
    )
    init_report = initialize(
        network.sites(),
        rule,
        seed=config.seed,
        name=config.init.target.rpartition(".")[2],
        bias=config.init.bias,
        first_layer_linear=config.init.first_layer_linear,
        fc_std=config.init.fc_std,
    )
    for entry in init_report:
        if not isinstance(entry.std_asked, int | float) or not math.isfinite(entry.std_asked):
            raise InputError(
                f"init._target_={config.init.target} returns {entry.std_asked} for {entry.layer}; "
                "it must return the std that it asks for, a finite number"
            )
    if config.compute.channels_last:
        network.to(memory_format=torch.channels_last)  # what the weights are, convolutions make of maps
    network.activation_checkpointing = config.compute.activation_checkpointing
    return network, init_report


def build_interventions(config: RunConfig) -> list[Callback]:
    """Return what is done to the network while it trains, or looks on: nothing, unless `callbacks=` is chosen."""
    return [] if config.callbacks is None else [import_function("callbacks", config.callbacks)()]
