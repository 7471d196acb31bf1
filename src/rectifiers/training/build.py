"""From a configuration to the parts of a run."""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from torch.optim import Optimizer

from rectifiers.chains import LayerReport, initialize_chain, warn_of_drift
from rectifiers.data.datamodule import ImageData
from rectifiers.data.preprocess import PixelMoments, Preprocess, fit, load_or_fit, statistics_key
from rectifiers.data.sources import Source, three_splits
from rectifiers.data.transforms import Geometry
from rectifiers.initializers import needs_images
from rectifiers.models.external import ModuleNetwork
from rectifiers.models.network import ImageNetwork, Network
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import MULTISTEP, PLATEAU
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record_parts import Provenance
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.distributed import (
    SINGLE_PROCESS,
    World,
    broadcast_from_rank_zero,
    run_on_all_ranks,
)
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import interruptible
from rectifiers.tracing import batch_stats_mode
from rectifiers.training import optim
from rectifiers.training.functions import import_function
from rectifiers.training.module import Classifier


@dataclass(frozen=True)
class Run:
    """A run that is built: what it is, where it lies, this process' place in it, and its parts."""

    config: RunConfig
    folder: Path
    here: World
    source: Source
    data: ImageData
    preprocess: Preprocess
    network: ImageNetwork
    init_report: list[LayerReport]
    classifier: Classifier
    warnings: list[str]
    provenance: Provenance


def build(
    config: RunConfig, source: Source, folder: Path, here: World, *, is_trained: bool = False
) -> Run:
    """Return the run of `folder` as it is before its training, on every rank.

    is_trained: whether it is to be tested alone, which needs no batches that the processes divide.

    Raises:
        InputError: where its parts do not fit together: a map without a position, more processes
        than images ...
    """
    data = run_on_all_ranks(lambda: build_data(config, source, here))
    if not is_trained:
        _ = data.batches  # which cannot be made of every split by any number of processes
    preprocess, statistics_hash = build_preprocess(config, data)
    network, init_report = run_on_all_ranks(lambda: initial_network(config, data, preprocess))
    drift = (
        warn_of_drift(network.sites())
        if isinstance(network, Network) and config.model.norm == "none"
        else None
    )
    device = torch.cuda.get_device_name() if config.trainer.accelerator == "gpu" else "cpu"
    origin = provenance(
        source.digest, statistics_hash, device, torch.get_num_threads(), source.pinned
    )
    classifier = Classifier(
        network,
        preprocess,
        partial(build_optimizer, config),
        build_schedule(config),
        classes=len(source.classes),
        seed=config.seed,
        run=folder.name,
        code=origin.code,
    )
    if config.trainer.precision == "64-true":
        # Lightning would, after weights of a checkpoint were rounded to single precision
        classifier.double()
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
        warnings=network.left
        if isinstance(network, ModuleNetwork)
        else []
        if drift is None
        else [drift],
        provenance=origin,
    )


def open_source(config: RunConfig) -> Source:
    """Open the data. A source's function that has a parameter `cache_dir` gets that of the
    configuration.

    Raises:
        InputError: where they are not there, or not what `settings` say of them.
    """
    settings = config.data
    function = import_function("data", settings)
    own = (
        {"cache_dir": str(config.cache_dir)}
        if "cache_dir" in inspect.signature(function).parameters
        else {}
    )
    try:
        with interruptible("while the data was opened"):
            source: Source = function(**own)
    except OSError as error:
        root = settings.options.get("root")
        if root is None:
            raise
        raise InputError(f"data.root={root} cannot be read ({error}); give another") from error
    if settings.protocol == "paper":
        source = replace(source, test=None)
    if settings.color_sigma and source.channels != 3:
        raise InputError(
            f"data.color_sigma={settings.color_sigma} shifts red, green and blue, and "
            f"data={source.name} has "
            f"{source.channels} channel; give data.color_sigma=0"
        )
    if source.pinned is False and not settings.allow_unpinned:
        raise InputError(
            f"data.root={settings.options['root']} has a manifest that no committed dvc.lock "
            "names; prepare it by dvc repro and commit the lock, or give "
            "data.allow_unpinned=true, which the record will say"
        )
    return source


def inspect_source(source: Source, config: RunConfig) -> Source:
    """Return the source with its hashes, in the splits of `data.protocol`; a collective call.

    Rank 0 looks at all images for all ranks.

    Raises:
        InputError: for an image that cannot be read, for too few images for three splits, and where
        the data are not those that the configuration names.
    """
    settings = config.data

    def look() -> tuple[str, ...] | None:
        with interruptible("while the images were looked at"):
            return source.inspected(
                config.cache_dir, skip_bad=settings.bad_images == "skip"
            ).digests

    source = replace(source, digests=broadcast_from_rank_zero(look))
    if settings.content not in (None, source.digest):
        raise InputError(
            f"data.content={settings.content} is not the hash of the data, which is "
            f"{source.digest}; point data.root "
            "to the right files, or give data.content=null to name the run by what is there"
        )
    return source if settings.protocol == "paper" else three_splits(source, settings.val_per_class)


def build_data(config: RunConfig, source: Source, here: World = SINGLE_PROCESS) -> ImageData:
    """Return this process' share of the data, in batches."""
    settings = config.data
    geometry = Geometry(
        resize_px=settings.resize_px,
        crop_px=settings.crop_px,
        flip=settings.flip,
        scale_jitter_px=settings.scale_jitter_px,
        color_sigma=settings.color_sigma,
        color_scale=settings.color_scale,
        pad_px=settings.pad_px,
    )
    return ImageData(
        source,
        geometry,
        global_batch=settings.batch_size,
        seed=config.seed,
        workers=settings.num_workers,
        timeout_s=config.timeout_s,
        pinned=config.trainer.accelerator == "gpu",
        skip_bad=settings.bad_images == "skip",
        here=here,
    )


def build_preprocess(config: RunConfig, data: ImageData) -> tuple[Preprocess, str]:
    """Return the preprocessing, fitted to the training split now or earlier, and the hash of its
    inputs."""
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
        with progress_bar(
            "fitting the preprocessing", len(data.source.train.labels) // data.here.size
        ) as seen:

            def batches() -> Iterator[Tensor]:
                for images in data.statistics_batches():
                    yield images
                    seen(len(images))

            return fit(method, PixelMoments(batches), settings.scale)

    cache = config.cache_dir / "statistics"
    return load_or_fit(cache, key, fit_now, is_whole=lambda: not data.unread), key


def initial_network(
    config: RunConfig, data: ImageData, preprocess: Preprocess
) -> tuple[ImageNetwork, list[LayerReport]]:
    """Return the network as a run of `config` starts with it, and its init report."""

    def images() -> Tensor:
        return preprocess(data.first_batch(config.seed))

    return build_network(config, data.source, preprocess.flat_output, images)


def build_network(
    config: RunConfig,
    source: Source,
    flat_input: int | None,
    images: Callable[[], Tensor] | None = None,
) -> tuple[ImageNetwork, list[LayerReport]]:
    """Build and initialise the network; return it with its init report.

    images: returns a batch of what the network reads, for initialisers that measure responses.
    """
    activation, rule = (
        import_function("activation", config.activation_at_depth()),
        import_function("init", config.init),
    )
    image = {"channels": source.channels, "input_px": config.data.crop_px}
    given: dict[str, Any] = {"seed": config.seed, "name": config.init.target.rpartition(".")[2]}
    given["bias"] = config.init.bias
    network: ImageNetwork
    if (target := config.model.builder()) is not None:
        if flat_input is not None:
            raise InputError(
                f"model._target_={target.target} needs images, and preprocess gives vectors; "
                "choose another"
            )
        function = import_function("model", target)
        network = ModuleNetwork(
            function, activation, name=target.target, classes=len(source.classes), **image
        )
        init_report = network.initialize(
            rule, **given, images=images() if images and needs_images(rule) else None
        )
    else:
        layers, norm = config.model.layers(len(source.classes)), config.model.norm
        network = Network(layers, activation, **image, norm=norm, flat_input=flat_input)
        if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
            shape = (
                (source.channels, *[config.data.crop_px] * 2)
                if flat_input is None
                else (flat_input,)
            )
            with torch.no_grad():
                network.eval()(
                    torch.zeros(1, *shape)
                )  # in which activations with a state per element find its size
            network.train()
        fixed: dict[str, Any] = {
            "first_layer_linear": config.init.first_layer_linear,
            "fc_std": config.init.fc_std,
        }
        if images and needs_images(rule):
            fixed["run"] = partial(_forward, network, images())
        init_report = initialize_chain(network.sites(), rule, **given, **fixed)
    for entry in init_report:
        if not isinstance(entry.std_asked, int | float) or not math.isfinite(entry.std_asked):
            raise InputError(
                f"init._target_={config.init.target} returns {entry.std_asked} for {entry.layer}; "
                "it must return the std that it asks for, a finite number"
            )
    if config.channels_last:
        network.to(
            memory_format=torch.channels_last
        )  # what the weights are, convolutions make of maps
    network.activation_checkpointing = config.activation_checkpointing
    return network, init_report


def _forward(network: Network, x: Tensor) -> None:
    """Run a network as in training, without dropout."""
    with batch_stats_mode(network), torch.no_grad(), torch.random.fork_rng(devices=()):
        network(x)


def build_callbacks(config: RunConfig, folder: Path) -> list[Callback]:
    """Return the callbacks that `callbacks=` chooses: ours, and Lightning's. Checkpoints of
    Lightning's go to `<folder>/checkpoints`."""
    callbacks = []
    for name, target in (config.callbacks or {}).items():
        callback = import_function(f"callbacks.{name}", target)()
        if not isinstance(callback, Callback):
            raise InputError(
                f"callbacks.{name}._target_={target.target} gives {type(callback).__name__}; it "
                "must return a callback of Lightning"
            )
        if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
            callback.dirpath = str(folder / "checkpoints")
        callbacks.append(callback)
    return callbacks


def build_optimizer(config: RunConfig, network: nn.Module) -> Optimizer:
    """Return the optimiser of a network.

    Raises:
        InputError: for a setting that its class refuses.
    """
    settings = config.optim
    groups = optim.parameter_groups(
        network,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        bias_lr_factor=settings.bias_lr_factor,
        slope_weight_decay=settings.slope_weight_decay,
    )
    kind = import_function("optim", settings)
    if settings.momentum is not None:
        kind = partial(kind, momentum=settings.momentum)
    try:
        return optim.build_optimizer(kind, groups, lr=settings.lr, fused=settings.fused)
    except (TypeError, ValueError) as error:
        raise InputError(f"optim._target_={settings.target} cannot be built: {error}") from error


def build_schedule(config: RunConfig) -> optim.Schedule:
    """Return how the learning rate changes."""
    settings = config.scheduler
    schedule = partial(
        optim.Schedule,
        max_epochs=config.trainer.max_epochs,
        warmup_epochs=settings.warmup_epochs,
    )
    if settings.target not in (PLATEAU, MULTISTEP):
        return schedule(scheduler=import_function("scheduler", settings))
    names = ("max_drops", "patience") if settings.target == PLATEAU else ("milestones",)
    for name in names:
        if getattr(settings, name) is None:
            raise InputError(f"scheduler.{name} has no value; give it one")
    rule = optim.plateau if settings.target == PLATEAU else optim.multistep
    drops = partial(rule, **{name: getattr(settings, name) for name in names})
    return schedule(drops=drops, drop_factor=settings.drop_factor)
